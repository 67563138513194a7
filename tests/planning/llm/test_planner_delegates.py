"""An agent's planner carries out what needs a model: delegated calls, and thoughts whose matter came later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acting import Executor
from memory import Memory
from planning.llm.planner import ModelPlanner
from spar import Agent, tool
from spar.testing import ScriptedModel, VirtualClock
from tests.planning.desk import read_of

JUDGE = {"type": "object", "properties": {"_tool": {"const": "judge"}, "text": {"type": "string"},
         "_output": {"type": "string", "maxLength": 20}}, "required": ["text"]}  # fmt: skip
EXPERT = {"type": "object", "properties": {"_tool": {"const": "expert"}, "question": {"type": "string"},
          "_delegate": {"const": "experts/law"}}, "required": ["question"]}  # fmt: skip
LAW = {"context": [{"type": "text", "role": "user", "text": "You know the law."}], "schema": {"type": "string"}}


@tool(effect="read")
async def fetch() -> str:
    "Fetch it."
    return "a contract"


def agent_of(clock: VirtualClock, model: Any, memory: Any = None) -> Agent:
    planner = ModelPlanner(model, definitions={"experts/law": LAW})
    executor = Executor([fetch, JUDGE, EXPERT], activities=planner.activities)
    return Agent(plan=planner, act=executor, clock=clock, loop_interval=0.1, memory=memory)


async def test_a_thought_about_what_a_call_brings_is_written_once_that_is_there(clock: VirtualClock) -> None:
    model = ScriptedModel([
        {"calls": [{"_tool": "fetch", "_outputPath": "†state.page"},
                   {"_tool": "judge", "text": "†state.page", "_output": "guessed", "_outputPath": "†state.verdict"}]},
        {"output": "it is fair"},
        {"output": "the verdict: fair"},
    ])  # fmt: skip
    async with agent_of(clock, model) as agent:
        status = await agent.wait((await agent.submit("judge it")).run_id)

    assert status.output == "the verdict: fair"
    latent = model.requests[1]
    assert latent.kind == "latent"
    assert any("a contract" in str(message) for message in latent.context)
    assert "it is fair" in read_of(model.requests[2])


async def test_a_delegate_sees_its_definition_and_its_parameters_and_nothing_else(clock: VirtualClock) -> None:
    model = ScriptedModel([
        {"calls": [{"_tool": "expert", "question": "may I?", "_delegate": "experts/law"}]},
        {"output": "you may"},
        {"output": "yes"},
    ])  # fmt: skip
    async with agent_of(clock, model) as agent:
        status = await agent.wait((await agent.submit("a secret question")).run_id)

    assert (status.status, status.output) == ("ok", "yes")
    asked = model.requests[1]
    assert asked.kind == "delegate"
    assert "You know the law." in str(asked.texts)
    assert "may I?" in str(asked.texts)
    assert "secret" not in str(asked)
    assert "calls" not in asked.schema["properties"]  # it thinks, and calls nothing


@pytest.mark.parametrize("answer", [{"output": None}, {"output": 7}, "no JSON"])
async def test_a_delegate_without_a_usable_answer_is_a_failed_call(clock: VirtualClock, answer: Any) -> None:
    model = ScriptedModel([
        {"calls": [{"_tool": "expert", "question": "may I?", "_delegate": "experts/law"}]},
        answer,
        {"output": "so be it"},
        {"output": "so be it"},
    ])  # fmt: skip
    async with agent_of(clock, model) as agent:
        status = await agent.wait((await agent.submit("ask")).run_id)

    assert status.output == "so be it"
    [error] = status.errors
    assert error["call"]["_tool"] == "expert"


async def test_what_a_model_was_asked_is_kept_with_its_cycle(clock: VirtualClock, tmp_path: Path) -> None:
    model = ScriptedModel([{"calls": [{"_tool": "fetch"}]}, {"output": "done"}])
    agent = agent_of(clock, model, Memory(f"sqlite:///{tmp_path / 'memory.db'}"))
    async with agent:
        await agent.wait((await agent.submit("fetch it")).run_id)
        assert agent.memory is not None
        cycles = [await agent.memory.cycle(each["cycle_id"]) for each in await agent.memory.cycles(limit=5)]

    notes = [note for cycle in cycles if cycle is not None for note in cycle.notes]
    assert [note["kind"] for note in notes] == ["model.request", "model.request"]
    assert next(turn["text"] for turn in notes[-1]["turns"]) == "fetch it"
    assert all(cycle.action.reason.endswith(f"(request {note['digest']})")
               for cycle, note in zip(cycles, notes, strict=True) if cycle and cycle.action)  # fmt: skip
