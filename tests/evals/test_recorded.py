"""Cases of cycles without a run, and what of a recorded call must hold again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from spar import Agent, Context
from spar.evals.reading import read_cases, written
from spar.evals.recorded import case_of
from spar.testing import VirtualClock
from spar.types import Action, ActionResult, Call, CallResult, CycleRecord, Fault, Perception, utcnow


def cycle_of(*results: CallResult, text: str = "the disk is full", output: Any = None) -> CycleRecord:
    action = Action(calls=[result.call for result in results], output=output)
    return CycleRecord("c1", "main", "main", utcnow(), 0.1, "acted", (Perception(text),), action,
                       ActionResult(action, results=results))  # fmt: skip


async def case_after(cycle: CycleRecord, folder: Path) -> dict[str, Any]:
    """Return the case of a cycle after it was written to a file and read again."""
    async with Memory("sqlite://:memory:") as memory:
        await memory.record(cycle)
        await memory.flush()
        recorded = await case_of(memory, "main", "c1")
    path = folder / "case.yaml"
    path.write_text(written(recorded.case, recorded.about))
    assert [case.name for case in read_cases([path])] == [recorded.case["name"]]
    return recorded.case


async def test_what_a_cycle_noticed_is_the_message_and_its_answers_come_in_their_order(tmp_path: Path) -> None:
    def load(output: Any, **params: Any) -> CallResult:
        return CallResult(Call("load", params), "ok", output=output)

    failed = CallResult(Call("load", {"host": "x"}), "failed", fault=Fault("permanent", "no host x", "act"))
    skipped = CallResult(Call("load", {"host": "y"}), "skipped", reason="not needed")
    case = await case_after(
        cycle_of(load(1, host="a"), load(2, host="a"), load(3, host="a", of="cpu"), failed, skipped, output="it is 3"),
        tmp_path,
    )

    assert case["messages"] == ["the disk is full"]
    assert case["tools"]["load"]["answers"] == [
        {"when": {"host": "a", "of": "cpu"}, "result": 3},
        {"when": {"host": "a"}, "result": 1, "times": 1},
        {"when": {"host": "a"}, "result": 2},
        {"when": {"host": "x"}, "error": "no host x"},
    ]
    assert [call["times"] for call in case["expect"]["calls"]] == [2, 1, 1]
    assert case["expect"]["answer"] == {"contains": ["it is 3"]}


async def test_a_parameter_that_reads_like_a_condition_or_a_reference_is_left_open(tmp_path: Path) -> None:
    params = {"filter": {"contains": "x"}, "deep": [{"matches": "("}], "page": "†state.page", "town": "Graz"}
    case = await case_after(cycle_of(CallResult(Call("find", params), "ok", output="x")), tmp_path)

    assert case["expect"]["calls"] == [{"tool": "find", "params": {"town": "Graz"}, "times": 1}]
    assert case["tools"]["find"]["answers"] == [{"when": {"town": "Graz"}, "result": "x"}]


async def test_a_cycle_belongs_to_its_run_also_if_its_planner_does_not_name_that(clock: VirtualClock) -> None:
    async def plan(perceptions: Sequence[Perception], context: Context) -> Action | None:
        return None if context.run is None else Action(output="hi")

    async with Agent(plan=plan, clock=clock, memory=Memory("sqlite://:memory:"), loop_interval="off") as agent:
        run_ids = list[str]()
        for text in ("hello", "hello again"):
            run_ids.append((await agent.submit(text)).run_id)
            await agent.wait(run_ids[-1], 60)
            await clock.sleep(1)
        newest = (await agent.memory.cycles(1))[0]["cycle_id"]
        recorded = await case_of(agent.memory, "main", newest)

    assert recorded.case["name"] == f"hello again ({run_ids[1]})"
    assert recorded.case["history"] == [{"user": "hello", "agent": "hi"}]


async def test_that_no_request_to_a_model_is_known_is_said(clock: VirtualClock) -> None:
    async def plan(perceptions: Sequence[Perception], context: Context) -> Action | None:
        return None if context.run is None else Action(output="hi")

    async with Agent(plan=plan, clock=clock, memory=Memory("sqlite://:memory:"), loop_interval="off") as agent:
        run_id = (await agent.submit("hello")).run_id
        await agent.wait(run_id, 60)
        recorded = await case_of(agent.memory, "main", run_id)

    assert "the tools are known by their calls alone" in recorded.about[1]


async def test_secrets_are_masked_and_a_cycle_that_noticed_nothing_is_refused(tmp_path: Path) -> None:
    secret = "ghp_" + "a1B2" * 9
    case = await case_after(cycle_of(CallResult(Call("say"), "ok", output=secret), text=f"key {secret}"), tmp_path)

    assert secret not in str(case)
    assert case["messages"] == ["key ***"]
    with pytest.raises(LookupError, match="noticed nothing that could be a message"):
        await case_after(cycle_of(text=" "), tmp_path)
