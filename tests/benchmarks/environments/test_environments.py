"""An agent lives in an environment: turns are taken, ends are noticed, and a seed decides all that is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.environments import (
    AlertsAndRemedies,
    Change,
    DriftingTools,
    Environment,
    EnvironmentAdapter,
    FrozenLake,
    Observation,
    Offer,
    SimulatedHost,
    TextsToTools,
    agent_in,
    live,
    settings_for,
)
from benchmarks.environments.gymnasium_env import GymnasiumEnvironment
from benchmarks.environments.textworld_env import TextWorldEnvironment
from spar.events import PhaseCompleted
from spar.testing import VirtualClock

WAY = ("down", "down", "right", "right", "down", "right")


class Stairs:
    """Three steps up; `jump` falls, and nothing else moves."""

    name = "stairs"
    seconds = 10.0
    offers = (Offer("climb", "One step up."),)

    def __init__(self) -> None:
        self.height = 0

    def reset(self, seed: int | None = None) -> Observation:
        self.height = 0
        return self._seen()

    def step(self, tool: str, params: Mapping[str, Any]) -> Change:
        self.height += tool == "climb"
        return Change(self._seen(), float(self.height == 3), is_done=self.height == 3)

    def _seen(self) -> Observation:
        return Observation(f"{self.height} steps up", kind="stairs", subject=str(self.height))


async def test_the_agent_acts_on_what_it_notices_until_the_episode_ends(clock: VirtualClock) -> None:
    outcomes = await live(Stairs(), 2, clock=clock)
    assert [[(taken.situation, taken.tool) for taken in each.steps] for each in outcomes] == 2 * [
        [("stairs 0", "climb"), ("stairs 1", "climb"), ("stairs 2", "climb")]
    ]
    assert [(each.is_success, each.reward) for each in outcomes] == [(True, 1.0), (True, 1.0)]
    assert clock.elapsed == 2 * 4 * Stairs.seconds


async def test_how_an_episode_ended_is_noticed_and_nothing_is_done_about_it(
    clock: VirtualClock, tmp_path: Path
) -> None:
    adapter = EnvironmentAdapter(Stairs(), 1, life="first")
    agent = agent_in(adapter, settings_for(adapter.environment, "on", "sqlite://:memory:", str(tmp_path)), clock)
    noticed: list[dict[str, Any]] = []
    agent.on(PhaseCompleted)(
        lambda event: noticed.extend(each.attributes for each in event.output) if event.phase == "sense" else None
    )
    async with agent:
        adapter.begin()
        (outcome,) = await adapter.wait()
    assert len(outcome.steps) == 3
    assert [(each["episode"], each["step"], each["reward"], each["done"]) for each in noticed] == [
        ("first-0", 0, 0.0, False),
        ("first-0", 1, 0.0, False),
        ("first-0", 2, 0.0, False),
        ("first-0", 3, 1.0, True),
    ]


async def test_an_observation_that_the_agent_lets_pass_is_a_step_without_a_tool(clock: VirtualClock) -> None:
    rules = [{"name": "nothing", "when": {"kind": "unheard of"}, "calls": [{"tool": "restart"}]}]
    (outcome,) = await live(SimulatedHost(most_steps=3), 1, clock=clock, settings={"rules": rules})
    assert [taken.tool for taken in outcome.steps] == ["", "", ""]
    assert not outcome.is_success


async def test_a_seed_decides_all_that_is_drawn() -> None:
    async def lived(seed: int) -> list[str]:
        outcomes = await live(AlertsAndRemedies(), 12, seed=seed)
        return [outcome.steps[0].situation for outcome in outcomes]

    first, again, other = await lived(1), await lived(1), await lived(2)
    assert first == again != other


async def test_a_tool_that_an_environment_lets_fail_is_a_call_that_failed(clock: VirtualClock) -> None:
    outcomes = await live(AlertsAndRemedies({"one": ("one", "right"), "two": ("two", "wrong")}), 4, clock=clock)
    for outcome in outcomes:
        (taken,) = outcome.steps
        is_right = taken.tool == {"alert one": "right", "alert two": "wrong"}[taken.situation]
        assert (taken.error == "", taken.reward, taken.regret) == (is_right, float(is_right), float(not is_right))


def test_the_lake_is_that_of_gymnasium() -> None:
    lake = FrozenLake()
    assert lake.reset(1).subject == "field 0"
    steps = [lake.step(move, {}) for move in WAY]
    assert [step.is_done for step in steps] == [False] * 5 + [True]
    assert [step.reward for step in steps] == [0.0] * 5 + [1.0]
    lake.reset()
    fallen = [lake.step(move, {}) for move in ("right", "down")][-1]
    assert (fallen.is_done, fallen.reward, bool(fallen.error)) == (True, 0.0, True)
    lake = FrozenLake(most_steps=2)
    lake.reset()
    assert [lake.step("up", {}).is_done for _ in range(2)] == [False, True]


def test_each_trouble_of_the_host_ends_by_its_own_calls_in_their_order() -> None:
    host = SimulatedHost()
    ways = {
        "crashed": ["restart"],
        "disk full": ["clean_disk", "restart"],
        "port taken": ["end_stale_process", "restart"],
    }
    seen = set()
    for episode in range(3):
        host.reset(7 if episode == 0 else None)
        seen.add(host.trouble)
        *before, last = [host.step(tool, {}) for tool in ways[host.trouble]]
        assert not any(step.is_done or step.error for step in before)
        assert (last.is_done, last.reward) == (True, 1.0)
    assert seen == set(ways)


def test_reliability_changes_with_the_regime_and_regret_is_known() -> None:
    tools = DriftingTools(4, 2, reliabilities=[(1.0, 0.0, 0.0), (0.0, 0.0, 1.0)])
    tools.reset(1)
    first = tools.step("way_1", {})
    assert (first.reward, first.regret) == (1.0, 0.0)
    for _ in range(2):
        tools.reset()
    later = tools.step("way_1", {})
    assert (later.reward, later.regret, bool(later.error), later.may_pass) == (0.0, 1.0, True, True)


def test_of_texts_each_comes_once_and_one_tool_is_right() -> None:
    texts = TextsToTools([("play a song", "music"), ("how is the weather", "weather")])
    assert [offer.name for offer in texts.offers] == ["music", "weather"]
    assert {texts.reset(3 if not turn else None).content for turn in range(2)} == {"play a song", "how is the weather"}
    assert not {texts.step(tool, {}).reward for tool in ("music", "weather")} - {0.0, 1.0}


@pytest.mark.parametrize("made", [AlertsAndRemedies, SimulatedHost, FrozenLake, lambda: DriftingTools(10), Stairs])
def test_what_is_noticed_can_be_told_apart_and_tools_have_names(made: Any) -> None:
    environment: Environment = made()
    assert environment.reset(1) == made().reset(1)
    names = [offer.name for offer in environment.offers]
    assert len(set(names)) == len(names) > 0


class Corridor:
    """A Gymnasium environment by its shape: three fields, the reward on the right."""

    class action_space:
        n = 2

    def reset(self, seed: int | None = None) -> tuple[int, dict[str, Any]]:
        self.field = 1
        return self.field, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.field += 1 if action else -1
        return self.field, float(self.field == 2), self.field in (0, 2), False, {}


async def test_an_environment_of_gymnasium_is_learnt_as_any_other() -> None:
    environment = GymnasiumEnvironment(Corridor(), name="corridor", actions=("left", "right"))
    lived = await live(environment, 8, seed=1)
    assert [each.is_success for each in lived] == [False] + [True] * 7
    assert lived[0].steps[0].error == "it ended without a reward"
    with pytest.raises(ValueError, match="2 actions"):
        GymnasiumEnvironment(Corridor(), actions=("left",))


def test_the_lake_is_that_of_the_library() -> None:
    pytest.importorskip("gymnasium")
    theirs = GymnasiumEnvironment.make("FrozenLake-v1", actions=("left", "down", "right", "up"), is_slippery=False)
    ours = FrozenLake()
    assert f"field {theirs.reset(1).subject}" == ours.reset(1).subject
    for move in ("right", "left", *WAY):
        one, other = theirs.step(move, {}), ours.step(move, {})
        assert one.observation is not None
        assert other.observation is not None
        assert f"field {one.observation.subject}" == other.observation.subject
        assert (one.reward, one.is_done, bool(one.error)) == (other.reward, other.is_done, bool(other.error))


class Cellar:
    """A game of TextWorld by its shape: two rooms, and the coin in the lower one."""

    def __init__(self, **left_out: None) -> None:
        self.left_out = left_out

    def seed(self, seed: int) -> None: ...

    def reset(self) -> dict[str, Any]:
        self.is_below = False
        return self.state("Welcome!\n\n>  -= Attic =-0/0")

    def step(self, command: str) -> tuple[dict[str, Any], int, bool]:
        has_won = self.is_below and command == "take coin"
        self.is_below = self.is_below or command == "go down"
        return self.state("Done.\n\n> -= Cellar =-1/2"), int(has_won), has_won

    def state(self, feedback: str) -> dict[str, Any]:
        told = {
            "feedback": feedback,
            "description": f"-= {'Cellar' if self.is_below else 'Attic'} =-\nIt is  dark.\n\n",
            "inventory": "You are carrying nothing.",
            "admissible_commands": ["look", "take coin" if self.is_below else "go down"],
            "possible_admissible_commands": ["go down", "look", "take coin"],
        }
        return {**told, **self.left_out}


async def test_a_game_of_textworld_is_learnt_as_any_other() -> None:
    lived = await live(TextWorldEnvironment(Cellar(), name="cellar", most_steps=8), 6, seed=1)
    assert [(taken.situation.rpartition(" ")[0], taken.tool) for taken in lived[-1].steps[-2:]] == [
        ("cellar attic", "go_down"),
        ("cellar cellar", "take_coin"),
    ]
    assert all(each.is_success for each in lived[1:])


def test_a_command_that_cannot_be_done_fails_and_one_more_step_than_allowed_is_not_taken() -> None:
    game = TextWorldEnvironment(Cellar(), most_steps=2)
    began = game.reset()
    assert (began.content, began.attributes["room"]) == (
        "-= Attic =-\nIt is  dark.\nYou are carrying nothing.",
        "attic",
    )
    wrong, passed = game.step("take_coin", {}), game.step("", {})
    assert wrong.error == "'take coin' cannot be done here: Done."
    assert (wrong.is_done, passed.is_done, passed.is_cut, passed.error) == (False, True, True, "")
    assert game.reset() == began


def test_a_game_that_does_not_tell_what_is_needed_is_refused_with_what_to_do() -> None:
    with pytest.raises(ValueError, match="compiled"):
        TextWorldEnvironment(Cellar(description=None))
    with pytest.raises(ValueError, match="name them"):
        TextWorldEnvironment(Cellar(possible_admissible_commands=None))
    with pytest.raises(ValueError, match="differ"):
        TextWorldEnvironment(Cellar(), commands=["go down", "Go, down"])
    with pytest.raises(ValueError, match="501 commands, at most 500"):
        TextWorldEnvironment(Cellar(), commands=[f"go {number}" for number in range(501)])
    assert len(TextWorldEnvironment(Cellar(possible_admissible_commands=None), commands=["look"]).offers) == 1
