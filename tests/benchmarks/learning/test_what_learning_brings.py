"""The proof in short: what was learnt changes what is done, with each seed, and with the switch turned it does not."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from benchmarks.environments import AlertsAndRemedies, DriftingTools, FrozenLake, LivedEpisode, SimulatedHost, live
from planning.rules.tool_choice import choose
from spar.data.learning.abilities import KnownAbilities, ToolTrial, learn
from spar.testing.clock import START
from spar.types import Learning

SEEDS = (1, 2)
OFF: tuple[Learning, ...] = ("off", "observe")


def right(episodes: Sequence[LivedEpisode]) -> float:
    return sum(each.is_success for each in episodes) / len(episodes)


def repeated(episodes: Sequence[LivedEpisode]) -> int:
    """Return how many calls were made again that had failed in the same situation."""
    failed = Counter((step.situation, step.tool) for each in episodes for step in each.steps if step.error)
    return sum(count - 1 for count in failed.values())


@pytest.mark.parametrize("seed", SEEDS)
async def test_each_alert_gets_its_remedy_and_no_known_failure_is_repeated(seed: int) -> None:
    lived = await live(AlertsAndRemedies(), 45, seed=seed)
    assert right(lived[15:]) == 1.0
    assert repeated(lived) == 0


@pytest.mark.parametrize("seed", SEEDS)
async def test_the_agent_loses_exactly_what_choosing_by_ability_loses_where_tools_drift(seed: int) -> None:
    lived = await live(DriftingTools(90, 3), 90, seed=seed)
    tools = DriftingTools(90, 3)
    tools.reset(seed)
    names, known, lost = [offer.name for offer in tools.offers], KnownAbilities(), list[float]()
    for _ in range(90):
        tool = choose(names, "task", known) or ""
        done = tools.step(tool, {})
        lost.append(done.regret)
        known.put(learn([ToolTrial(tool, "task", done.reward)], known))
        tools.reset()

    assert [step.regret for each in lived for step in each.steps] == lost


@pytest.mark.parametrize("learning", OFF)
async def test_with_the_switch_turned_each_alert_gets_the_first_remedy(learning: Learning) -> None:
    for seed in SEEDS:
        lived = await live(AlertsAndRemedies(), 30, seed=seed, learning=learning)
        assert right(lived) == pytest.approx(1 / 3)
        assert len({step.tool for each in lived for step in each.steps}) == 1


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_trouble_that_comes_again_takes_only_the_calls_that_help(seed: int) -> None:
    host, lived = SimulatedHost(), []
    lived = await live(host, 12, seed=seed)
    calls: dict[str, list[int]] = {}
    for each in lived:
        calls.setdefault(each.steps[0].situation, []).append(len(each.steps))
    assert {situation: counts[2:] for situation, counts in calls.items()} == {
        "service.down crashed": [1, 1],
        "service.down disk full": [2, 2],
        "service.down port taken": [2, 2],
    }
    assert sum(counts[0] for counts in calls.values()) > 5


async def test_a_second_process_goes_on_with_what_the_first_one_learnt_and_the_switch_alone_decides(
    tmp_path: Path,
) -> None:
    first = tmp_path / "first.db"
    await live(AlertsAndRemedies(), 15, seed=1, memory=f"sqlite:///{first}", life="first")
    shares = {}
    for learning in ("on", *OFF):
        memory = tmp_path / f"{learning}.db"
        shutil.copy(first, memory)
        lived = await live(AlertsAndRemedies(), 30, seed=2, learning=learning, memory=f"sqlite:///{memory}", life="2",
                           start=START + timedelta(days=30))  # fmt: skip
        shares[learning] = right(lived)
    assert shares["on"] >= 28 / 30  # what is long ago may be tried anew
    assert [shares[learning] for learning in OFF] == [pytest.approx(1 / 3)] * 2


async def test_a_way_that_was_found_once_is_gone_again() -> None:
    lived = await live(FrozenLake(most_steps=25, order=1), 25, seed=1)
    assert right(lived[-5:]) == 1.0
