"""Plans, outputs with references, delegates, late thoughts, advisors and versions: in an agent as in `Requests`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from acting import Executor
from memory import Memory
from planning import Requests
from planning.assistant import Assistant
from planning.llm.planner import ModelPlanner
from spar import Agent, tool
from spar.errors import ConfigError
from spar.ports.any_part import has
from spar.ports.phases import OptionalActor
from spar.ports.planners import OptionalPlanner
from spar.protocols import Lent
from spar.testing import ScriptedModel, VirtualClock
from tests.planning.desk import read_of

THINK: dict[str, Any] = {
    "type": "object",
    "properties": {"_tool": {"const": "think"}, "about": {}, "_output": {"type": "string"}},
    "required": ["_tool"],
}


@tool(effect="read")
async def add(a: int, b: int = 1) -> int:
    return a + b


@tool(effect="read")
async def broken() -> str:
    raise ValueError("no luck")


async def by_agent(model: Any, clock: VirtualClock, *tools: Any, output: Any = None, **options: Any) -> Any:
    """What a run of an agent comes to whose planner asks this model."""
    planner = ModelPlanner(model, **options)
    async with Agent(plan=planner, act=Executor(tools), clock=clock, loop_interval=0.1) as agent:
        return await agent.wait((await agent.submit("go", output=output)).run_id, 1_000)


def plan_in(request: Any) -> dict[str, Any]:
    (found,) = [each for each in request.context if each.get("type") == "plan"]
    plan: dict[str, Any] = found["plan"]
    return plan


# -- an output that refers to its own step


@pytest.mark.parametrize(
    ("calls", "output", "schema", "why"),
    [
        ([{"_tool": "broken", "_outputPath": "†state.a"}], "†state.a", None, "calls of which some failed"),
        ([{"_tool": "add", "a": 1, "_outputPath": "†state.a"}], "†state.b", None, "state.b"),
        ([{"_tool": "add", "a": 1, "_outputPath": "†state.a"}], "†state.a", {"type": "string"}, "string"),
    ],
    ids=["a call failed", "nothing is there", "it does not fit"],
)
async def test_an_output_whose_references_come_to_nothing_is_asked_for_again(
    clock: VirtualClock, calls: list[Any], output: str, schema: Any, why: str
) -> None:
    model = ScriptedModel([{"calls": calls, "output": output}, {"output": "then this"}])

    status = await by_agent(model, clock, add, broken, output=schema)

    assert status.output == "then this"
    read = read_of(model.requests[1])
    assert "The last output could not be used" in read
    assert why in read


# -- plans


@pytest.mark.parametrize("mode", ["eager", "lazy"])
async def test_a_plan_is_kept_from_request_to_request_with_what_became_of_its_calls(
    clock: VirtualClock, mode: Any
) -> None:
    calls = [{"_tool": "add", "a": 1, "_id": "x"}, {"_tool": "broken", "_id": "y"}]
    model = ScriptedModel([{"calls": calls}, {"calls": [{"_tool": "add", "a": 2, "_id": "z"}]}, {"output": "done"}])

    assert (await by_agent(model, clock, add, broken, plan_mode=mode)).output == "done"

    assert plan_in(model.requests[0]) == {"calls": []}
    assert plan_in(model.requests[1]) == {"calls": calls, "status": {"x": "ok", "y": "failed"}}
    assert [each["_id"] for each in plan_in(model.requests[2])["calls"]] == ["z"]


# -- what the planner's model carries out


async def test_calls_are_delegated_to_definitions_without_anything_wired_by_hand(clock: VirtualClock) -> None:
    define = {"double": {"context": [{"type": "text", "text": "Double it."}], "schema": {"type": "string"}}}
    call = {"_tool": "think", "about": 21, "_delegate": "double", "_outputPath": "†state.d"}
    model = ScriptedModel([{"calls": [call]}, {"output": "42"}, {"output": "done"}])

    assert (await by_agent(model, clock, THINK, definitions=define)).output == "done"

    main, delegate, last = model.requests
    assert (main.kind, delegate.kind) == ("main", "delegate")
    assert "Double it." in read_of(delegate)
    assert read_of(last).endswith(": 42")


async def test_a_thought_whose_matter_comes_later_is_thought_then(clock: VirtualClock) -> None:
    calls = [
        {"_tool": "add", "a": 1, "_outputPath": "†state.sum"},
        {"_tool": "think", "about": "†state.sum", "_output": "made up", "_outputPath": "†state.said"},
    ]
    model = ScriptedModel([{"calls": calls}, {"output": "it is two"}, {"output": "done"}])

    assert (await by_agent(model, clock, add, THINK)).output == "done"

    assert model.requests[1].kind == "latent"
    assert read_of(model.requests[2]).endswith(": it is two")


async def test_advisors_speak_at_their_turn_and_are_consulted(clock: VirtualClock) -> None:
    advisors = [{"id": "risk", "role": "Weigh the risks.", "on": "request"}, {"id": "law", "role": "Know the law."}]
    consult = {"_tool": "ConsultAdvisor", "advisor": "law", "question": "may we?", "_id": "q"}
    answers = [
        {"advisors": [{"id": "risk", "calls": "{}"}], "calls": [consult]},
        {"output": {"verdict": "yes"}},
        {"advisors": [{"id": "risk", "calls": "{}"}], "output": "done"},
    ]
    model = ScriptedModel(answers)

    assert (await by_agent(model, clock, add, advisors=advisors)).output == "done"

    asked = model.requests[0].schema["properties"]
    assert list(asked)[:2] == ["advisors", "calls"]
    assert "Know the law." in model.requests[1].instructions
    assert '"verdict": "yes"' in read_of(model.requests[2])


@pytest.mark.parametrize("driver", ["requests", "agent"])
async def test_who_speaks_at_the_end_is_asked_once_something_was_done(clock: VirtualClock, driver: str) -> None:
    advisors = [{"id": "last", "role": "Judge it.", "on": "finish"}]
    model = ScriptedModel([{"calls": [{"_tool": "add", "a": 1}]}, {"output": "done"}])
    if driver == "requests":
        await Requests(model, tools=[add]).run([], advisors=advisors)
    else:
        await by_agent(model, clock, add, advisors=advisors)

    assert ["advisors" in each.schema["properties"] for each in model.requests] == [False, True]


async def test_what_a_model_was_asked_is_kept_with_its_cycle(clock: VirtualClock, tmp_path: Path) -> None:
    planner = ModelPlanner(ScriptedModel([{"calls": [{"_tool": "add", "a": 1}]}, {"output": "done"}]))
    memory = Memory(f"sqlite:///{tmp_path / 'memory.db'}")
    async with Agent(plan=planner, act=Executor([add]), clock=clock, loop_interval=0.1, memory=memory) as agent:
        await agent.wait((await agent.submit("add it")).run_id)
        cycles = [await memory.cycle(each["cycle_id"]) for each in await memory.cycles(limit=5)]

    notes = [note for cycle in cycles if cycle is not None for note in cycle.notes]
    assert [note["kind"] for note in notes] == ["model.request", "model.request"]
    assert next(turn["text"] for turn in notes[-1]["turns"]) == "add it"
    assert all(cycle.action.reason.endswith(f"(request {note['digest']})")
               for cycle, note in zip(cycles, notes, strict=True) if cycle and cycle.action)  # fmt: skip


# -- lending


def test_what_an_executor_has_of_its_own_stands_before_what_is_lent() -> None:
    async def own(call: Any, tool: Any, context: Any) -> str:
        return "own"

    async def lent(call: Any, tool: Any, context: Any) -> str:
        return "lent"

    executor = Executor([add], activities={"_delegate": own})
    executor.borrow(Lent((THINK, add), {"_delegate": lent, "_latent": lent}))
    assert executor.tools.activities == {"_delegate": own, "_latent": lent}
    assert set(executor.tools) == {"add", "think"}
    executor.borrow(Lent())
    assert (set(executor.tools), executor.tools.activities) == ({"add"}, {"_delegate": own})
    assert has(executor, OptionalActor.borrow)


def test_the_configured_planner_takes_the_options_and_lends_what_its_model_does() -> None:
    advisors = [{"id": "law", "role": "Know the law."}]
    made = Assistant("openai:gpt-5", plan_mode="lazy", advisors=advisors, delegates={"x": {"context": []}})

    assert has(made, OptionalPlanner.lends)
    lent = made.lends()
    assert {"_delegate", "_latent", "ConsultAdvisor"} <= set(lent.activities)
    assert len(lent.tools) == 1
    for options, path in (({"plan_mode": "later"}, "plan_mode"), ({"advisors": [{"role": "x"}]}, "advisors")):
        with pytest.raises(ConfigError) as caught:
            Assistant("openai:gpt-5", **options)  # type: ignore[arg-type]
        assert caught.value.path == (path,)


# -- text that no encoder takes


@pytest.mark.parametrize("is_kept", [False, True])
async def test_a_lone_surrogate_anywhere_in_a_conversation_leaves_it_as_it_is_told(
    is_kept: bool, clock: VirtualClock, tmp_path: Path
) -> None:
    @tool(effect="read")
    async def say(what: str) -> str:
        if what.startswith("fail"):
            raise ValueError(what)
        return what

    odd = "\ud800"
    script = [
        {"calls": [{"_tool": "say", "what": f"well {odd}"}], "said": f"I look {odd}"},
        {"calls": [{"_tool": "say", "what": f"fail {odd}"}, {"_tool": f"no{odd}"}]},
        {"output": f"done {odd}"},
        {"output": "done again"},
    ]
    model = ScriptedModel(script)
    memory = Memory(f"sqlite:///{tmp_path / 'memory.db'}") if is_kept else None
    async with Agent(
        plan=ModelPlanner(model), memory=memory, act=Executor([say]), clock=clock, loop_interval=0.1
    ) as agent:
        for text in (f"go {odd}", "go on"):
            status = await agent.wait((await agent.submit(text)).run_id, 1_000)
            assert (status.status, status.error) == ("ok", "")

    assert len(model.requests) == len(script)
    for request in model.requests:
        for turn in request.turns:
            assert msgspec.json.encode(turn)
            assert turn.size > 0
