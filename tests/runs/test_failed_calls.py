"""A cycle whose calls failed has acted, and says how they went: in its event, on the tape, in what people are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from planning.rules.planner import RulesPlanner
from spar import Agent, Context
from spar.data.reply import answer_of
from spar.errors import ConfigError
from spar.events import LoopCompleted
from spar.operations.history import CycleSummary, _calls
from spar.testing import VirtualClock
from spar.types import Action, ActionResult, Answer, Call, CallResult, Fault, count_calls
from tests.doubles import heard


def restart(unit: str) -> str:
    """Restart a unit."""
    if unit == "broken":
        raise OSError("the device is gone")
    return f"{unit} restarted"


def rule(unit: str, **more: Any) -> dict[str, Any]:
    return {"name": unit, "when": {"pattern": unit}, "answer": f"{unit} was restarted", "stop": False,
            "calls": [{"tool": "restart", "params": {"unit": unit}}], **more}  # fmt: skip


RULES = [rule("web"), rule("broken"), rule("spare", calls=[{"tool": "restart", "params": {"unit": "broken"}}],
                                           on_failure="the spare did not come up")]  # fmt: skip


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize(
    ("said", "output"),
    [
        ("web", "web was restarted"),
        ("broken", "It did not work: restart failed: the device is gone."),
        ("spare", "the spare did not come up"),
        ("web and broken", "web was restarted\nIt did not work: restart failed: the device is gone."),
    ],
)
async def test_a_rules_answer_is_given_only_if_its_calls_went_well(
    clock: VirtualClock, said: str, output: str, verify: bool
) -> None:
    agent = Agent(plan=RulesPlanner(RULES), tools=[restart], clock=clock, loop_interval="off",
                  settings={"runs": {"verify_output": verify}})  # fmt: skip
    ended = heard(agent, LoopCompleted)
    async with agent:
        receipt = await agent.submit(said)
        status = await agent.wait(receipt.run_id)
    assert (status.status, status.output) == ("ok", output)
    assert bool(status.errors) == (said != "web")
    acted = next(event for event in ended if event.outcome != "idle")
    assert acted.outcome == "acted"
    assert acted.calls == {"ok": int("web" in said), "failed": int(said != "web"), "skipped": 0}


async def test_a_rule_that_only_speaks_of_a_failure_says_nothing_else(clock: VirtualClock) -> None:
    silent = [{key: value for key, value in rule(unit, on_failure=f"{unit} is down").items() if key != "answer"}
              for unit in ("web", "broken")]  # fmt: skip
    agent = Agent(plan=RulesPlanner(silent), tools=[restart], clock=clock, loop_interval="off")
    async with agent:
        outputs = [(await agent.wait((await agent.submit(unit)).run_id)).output for unit in ("web", "broken")]
    assert outputs == [None, "broken is down"]


def test_what_can_never_be_said_is_refused() -> None:
    with pytest.raises(ConfigError, match="makes no call that could fail"):
        RulesPlanner([{"name": "hello", "answer": "hello", "on_failure": "never"}])


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (("ok", ""), "done"),
        (("failed", "handled"), "done"),
        (("skipped", "branch"), "done"),
        (("timeout", ""), "It did not work: x took too long: why."),
        (("denied", "denied"), "It did not work: x was denied: why."),
        (("in_doubt", ""), "It is not known whether x was done: why."),
        (("skipped", "parked"), "It is not done yet: x waits for an approval."),
        (("cancelled", ""), "It did not work: x was called off: why."),
    ],
)
def test_each_way_of_not_going_well_is_told_in_a_sentence(result: tuple[Any, str], told: str) -> None:
    call = Call("x")
    status, reason = result
    came = CallResult(call, status, reason, fault=None if status == "ok" else Fault("error", "why."))
    action = Action([call], output="done", answers=(Answer("done", (call.id,)),))
    assert answer_of(action, ActionResult(action, "partial", (came,))) == told


def test_an_answer_whose_calls_came_to_no_end_is_not_given() -> None:
    action = Action([Call("x", id="c")], output="done", answers=(Answer("done", ("c",)),))
    assert answer_of(action, None) == "It did not work: a call came to no end."


def test_every_call_is_counted_once() -> None:
    statuses: list[Any] = ["ok", "ok", "failed", "timeout", "in_doubt", "skipped", "cancelled", "denied"]
    results = [CallResult(Call("x"), status) for status in statuses]
    assert count_calls(results) == {"ok": 2, "failed": 3, "skipped": 3}


async def test_the_tape_finds_the_cycles_whose_calls_failed(tmp_path: Path) -> None:
    async with Memory.open(f"sqlite:///{tmp_path}/memory.db") as memory:
        agent = Agent(plan=RulesPlanner(RULES), tools=[restart], memory=memory, loop_interval="off")
        async with agent:
            for text in ("web", "broken", "web", "broken"):
                await agent.wait((await agent.submit(text)).run_id)
        await memory.flush()
        every, failed = await memory.cycles(), await memory.cycles(failed=True)
        assert [each["calls"] for each in failed] == [{"ok": 0, "failed": 1, "skipped": 0}] * 2
        assert {each["outcome"] for each in failed} == {"acted"}
        assert len(every) > len(failed)
        assert len(await memory.cycles(failed=True, limit=1)) == 1
        whole = await memory.cycle(failed[0]["cycle_id"])
        assert whole.calls == {"ok": 0, "failed": 1, "skipped": 0}


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({}, ""),
        ({"ok": 0, "failed": 0, "skipped": 0}, ""),
        ({"ok": 3, "failed": 0, "skipped": 0}, "✓ 3"),
        ({"ok": 2, "failed": 0, "skipped": 1}, "✓ 2, 1 not done"),
        ({"ok": 2, "failed": 1, "skipped": 0}, "✗ 1 of 3"),
    ],
)
def test_a_list_shows_how_calls_went_in_a_few_signs(counts: dict[str, int], text: str) -> None:
    assert _calls(CycleSummary("c1", calls=counts)) == text


# -- an answer that comes together with failed calls: asked once more, then it stands, with the errors


def broken() -> None:
    raise OSError("the device is gone")


@pytest.mark.parametrize(
    ("second", "output"),
    [(None, "I tried"), (Action(output="it failed"), "it failed")],
    ids=["nothing more to say", "a better answer"],
)
async def test_an_answer_beside_a_failed_call_stands_unless_a_better_one_follows(
    clock: VirtualClock, second: Action | None, output: str
) -> None:
    requests: list[int] = []

    async def plan(perceptions: Any, context: Context) -> Action | None:
        requests.append(context.run.number)
        return Action([Call("broken")], output="I tried") if len(requests) == 1 else second

    async with Agent(plan=plan, tools=[broken], clock=clock, loop_interval="off") as agent:
        receipt = await agent.submit("try it")
        status = await agent.wait(receipt.run_id)

    assert (status.status, status.output, requests) == ("ok", output, [1, 2])
    assert status.errors[0]["error"]["message"] == "the device is gone"
