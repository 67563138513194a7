"""The alert `runs`: people hear that every run fails, whoever's fault it is, and no step of recovery is taken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from spar import Agent, PermanentError
from spar.data.reply import End
from spar.events import HealthAlert
from spar.facts import MessageAbsorbed, MessageDropped
from spar.ids import new_id
from spar.records.journal import Item
from spar.runs.ends import CALLED_OFF
from spar.runs.runs import Run
from spar.service.process import HARMLESS
from spar.testing import VirtualClock
from spar.types import Action, Perception
from spar.types.values import AlertKind
from tests.doubles import HealthHeard

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "health.md"


def agent_of(clock: VirtualClock, error: Callable[[str], BaseException] = PermanentError, **more: Any) -> Agent:
    """An agent that answers what begins with "good", and fails with any other message."""

    async def plan(perceptions: list[Perception]) -> Action | None:
        for perception in perceptions:
            if not perception.text.startswith("good"):
                raise error(f"no {perception.text}")
        return Action(output="answered") if perceptions else None

    return Agent(plan=plan, clock=clock, **{"loop_interval": "off", **more})


def message(text: str) -> Perception:
    return Perception(text, kind="message", trust="trusted")


def accepted(agent: Agent, text: str) -> Run:
    return agent.conversations.parts.runs.accept(Item(new_id(), message(text), "run", at=agent.clock.now()))


async def say(agent: Agent, *texts: str) -> None:
    """Send messages, each in a session of its own, and wait for their answers."""
    for number, text in enumerate(texts):
        receipt = await agent.submit(text, session=f"s{number % 3}")
        await agent.wait(receipt.run_id, 600)


async def test_when_ten_runs_in_a_row_fail_people_are_told_and_nothing_is_paused(clock: VirtualClock) -> None:
    agent = agent_of(clock)
    async with HealthHeard(agent) as told:
        await say(agent, *["bad"] * 9)
        assert told.kinds == []
        await say(agent, *["bad"] * 6)
        [alert] = told.alerts
        assert (alert.kind, alert.severity, alert.session) == ("runs", "warning", "")
        assert alert.message == "the last 10 runs ended in error, the last: no bad"
        assert (told.steps, told.ends, agent.state) == ([], [], "running")

        await say(agent, "good")
        assert [end.alert_id for end in told.ends] == [alert.alert_id]
        await say(agent, *["bad"] * 9)
        assert told.kinds == ["runs"]
        await say(agent, "bad")
        assert told.kinds == ["runs", "runs"]


async def test_a_fault_that_may_pass_counts_as_well_once_it_has_ended_a_run(clock: VirtualClock) -> None:
    agent = agent_of(clock, ValueError, settings={"health": {"failing_after": 1000}})
    async with HealthHeard(agent) as told:
        await say(agent, *["bad"] * 10)
    assert told.kinds == ["runs"]


@pytest.mark.parametrize("error", [*CALLED_OFF, "dropped"])
async def test_a_run_that_was_called_off_neither_counts_nor_ends_the_alert(clock: VirtualClock, error: str) -> None:
    agent = agent_of(clock)
    told = HealthHeard(agent)

    def end(error: str) -> None:
        run = accepted(agent, "x")
        if error == "dropped":
            agent.core.ledger.tell(MessageDropped(session="main", run=run.id))
        agent.runs.end(run, End("error", error))

    async with agent:
        for _ in range(20):
            end(error)
        for _ in range(9):
            end("no")
        assert told.kinds == []
        end(error)
        end("no")
        end(error)
        assert (told.kinds, told.ends) == (["runs"], [])


async def test_neither_a_command_nor_a_joined_message_counts_as_a_run(clock: VirtualClock) -> None:
    agent = agent_of(clock)
    async with HealthHeard(agent) as told:
        await say(agent, *["bad"] * 8)
        run, *others = [accepted(agent, text) for text in "abcdef"]
        for other in others:
            agent.core.ledger.tell(MessageAbsorbed(session="main", run=other.id, into=run.id))
        agent.runs.end(run, End("error", "no"))
        assert told.kinds == []
        await say(agent, "/status", "/nonsense", "bad", "/status")
        assert (told.kinds, told.ends) == (["runs"], [])


async def test_an_alert_shows_no_secret_and_keeps_no_watchdog_from_its_beats(clock: VirtualClock) -> None:
    agent = agent_of(clock)
    async with HealthHeard(agent) as told:
        await say(agent, *["bad key sk-abcdefgh12345678\nand more"] * 10)
    assert told.alerts[0].message == "the last 10 runs ended in error, the last: no bad key *** and more"
    assert "runs" in HARMLESS


@pytest.mark.parametrize("kind", get_args(AlertKind))
def test_the_pages_of_health_name_each_kind_of_alert(kind: str) -> None:
    assert f"| `{kind}` |" in PAGE.read_text()
    assert kind in (HealthAlert.__doc__ or "").split("`")[3].split()
