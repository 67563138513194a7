from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acting import Executor
from planning import Requests, Usage
from planning.prompt.plans.deadlock import circle
from spar import Call, Verdict, tool
from spar.data.blackboard import Board
from spar.errors import ConfigError, TransientError
from spar.hooks import Decision, Hooks
from spar.testing import Fail, Hang, RecordingTool, ScriptedModel, stream
from tests.waiting import cancelled

TEXT = {"type": "string"}
KEYS = ["calls", "output", "meta", "advisors", "_tool", "_id", "_after", "_outputPath", "_output", "_delegate",
        "_instance", "_scopes", "_activity", "version", "id", "a", "b", "name"]  # fmt: skip
NAMED = {"type": "object", "properties": {"name": TEXT}, "required": ["name"]}


@tool(effect="read")
async def add(a: int, b: int) -> int:
    return a + b


@tool(effect="read")
async def broken() -> str:
    raise ValueError("no luck")


def errors_in(request: Any) -> list[dict[str, Any]]:
    return [each["data"]["error"] for each in request.context if each.get("kind") == "error"]


# -- the loop


async def test_results_are_in_the_next_request_until_there_is_an_output() -> None:
    model = ScriptedModel(
        [{"calls": [Call("add", {"a": 1, "b": 2}, output_path="†state.sum").to_wire()]}, {"output": 3}]
    )

    answered = await Requests(model, tools=[add]).run([{"type": "input", "input": {"want": "a sum"}}])

    assert (answered.output, answered.reason, answered.errors, answered.requests) == (3, "output", (), 2)
    assert model.requests[0].context == ({"type": "input", "input": {"want": "a sum"}},)
    assert [text for text in model.requests[1].texts if "¶state" in text] == ['## Data: ¶state\n{"sum": 3}']
    assert answered.context[1]["state"] == {"sum": 3}


async def test_the_stable_part_of_a_request_is_the_same_bytes_in_every_step() -> None:
    add_once = {"calls": [{"_tool": "add", "a": 1, "b": 2}]}
    model = ScriptedModel([add_once, {"output": "done"}])

    await Requests(model, tools=[add]).run([{"type": "input", "input": {"want": "a sum"}}], NAMED | {"type": "string"})

    first, second = model.requests
    assert (first.instructions, first.schema, first.texts[0]) == (second.instructions, second.schema, second.texts[0])
    assert first.kind == "main"
    assert first.answer == NAMED | {"type": "string"}


async def test_a_call_runs_while_the_solution_is_still_being_written() -> None:
    recorded = RecordingTool("note", result="noted")
    hang = Hang()
    model = ScriptedModel([stream([{"_tool": "note"}, hang, {"output": "done"}])])

    async with asyncio.timeout(10):
        running = asyncio.create_task(Requests(model, tools=[recorded]).run())
        while not recorded.calls:
            await asyncio.sleep(0)
        assert not running.done()
        hang.release()
        assert (await running).output == "done"


async def test_what_fails_in_a_step_is_in_the_next_request() -> None:
    model = ScriptedModel(
        [{"calls": [{"_tool": "broken"}, {"_tool": "nothing"}, {"_tool": "add", "a": "x"}]}, {"output": 1}]
    )

    await Requests(model, tools=[add, broken]).run()

    assert [error["kind"] for error in errors_in(model.requests[1])] == ["bad_input", "unknown_tool", "bad_parameters"]
    assert not [each for each in model.requests[1].context if each.get("type") == "plan"]


async def test_a_skipped_call_is_offered_again_with_its_reason() -> None:
    calls = [{"_tool": "broken", "_outputPath": "†state.x"}, {"_tool": "add", "a": "†state.x", "b": 1, "_id": "sum"}]
    model = ScriptedModel([{"calls": calls}, {"calls": [{"_tool": "add", "a": 1, "b": 1}]}, {"output": 1}])

    await Requests(model, tools=[add, broken]).run()

    (skipped,) = [each for each in model.requests[1].context if each.get("kind") == "skipped"]
    assert [(each["call"]["_id"], each["reason"]) for each in skipped["data"]] == [("sum", "dep_failed")]
    assert not [each for each in model.requests[2].context if each.get("kind") == "skipped"]


async def test_tools_of_the_contexts_messages_can_be_called() -> None:
    thought = {"properties": {"_tool": {"const": "think"}, "_output": TEXT}}
    model = ScriptedModel([
        {"calls": [{"_tool": "think", "_output": "tea", "_outputPath": "†state.drink"}], "output": "†state.drink"}
    ])  # fmt: skip

    answered = await Requests(model).run([{"type": "tool", "tool": thought}])

    assert answered.output == "tea"


# -- the output


async def test_an_output_with_failed_calls_is_asked_for_again_and_then_stands_with_its_errors() -> None:
    refund = {"calls": [{"_tool": "broken"}], "output": "refunded"}
    model = ScriptedModel([refund, {"output": "not refunded"}])

    answered = await Requests(model, tools=[broken]).run()

    assert (answered.output, answered.requests) == ("not refunded", 2)
    assert [error["kind"] for error in errors_in(model.requests[1])] == ["bad_input", "unverified"]
    assert [each["error"]["kind"] for each in answered.errors] == ["bad_input"]
    assert (await Requests(ScriptedModel([refund]), tools=[broken]).run()).requests == 2


async def test_references_in_the_output_are_what_they_name_and_are_judged_as_that() -> None:
    call = {"_tool": "add", "a": 1, "b": 2, "_outputPath": "†state.sum"}
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    model = ScriptedModel([{"calls": [call], "output": {"sum": "†state.sum"}}])

    assert (await Requests(model, tools=[add]).run(output=schema)).output == {"sum": 3}
    assert (await Requests(ScriptedModel([{"output": ["††state"]}])).run()).output == ["†state"]


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ({"name": 5}, "output 'name' is 5: it is not of type \"string\""),
        ({}, "output 'name' is missing"),
        ({"name": "†state.nowhere"}, "nothing stands at '†state.nowhere'"),
    ],
)
async def test_an_output_that_does_not_fit_is_revised(output: Any, why: str) -> None:
    model = ScriptedModel([{"output": output}, {"output": {"name": "Ada"}}])

    answered = await Requests(model).run(output=NAMED)

    assert (answered.output, answered.errors) == ({"name": "Ada"}, ())
    (error,) = errors_in(model.requests[1])
    assert (error["kind"], error["message"][: len(why)]) == ("invalid_output", why)


async def test_after_three_revisions_it_is_given_up() -> None:
    model = ScriptedModel([{"output": {}}])

    answered = await Requests(model).run(output=NAMED)

    assert (answered.output, answered.reason, answered.requests) == (None, "invalid_output", 4)
    assert answered.errors[-1]["error"]["kind"] == "invalid_output"


# -- going nowhere


async def test_the_limits_hold() -> None:
    counting = ScriptedModel([{"calls": [{"_tool": "add", "a": each, "b": 1}] * 2} for each in range(9)])
    asked = await Requests(counting, tools=[add], max_requests=3).run()
    assert (asked.reason, asked.requests) == ("max_requests", 3)

    called = await Requests(counting, tools=[add], max_calls=3).run()
    assert called.reason == "max_calls"
    assert called.errors[-1]["error"]["message"].endswith("1 was not carried out")
    with pytest.raises(ConfigError, match="max_calls is 0"):
        Requests(counting, max_calls=0)


async def test_what_the_model_raises_is_raised_with_what_was_done() -> None:
    call = {"_tool": "add", "a": 1, "b": 2, "_outputPath": "†state.sum"}
    model = ScriptedModel([stream([call, 0.01, Fail(TransientError("gone", retry_after=9))])])

    with pytest.raises(TransientError, match="gone") as caught:
        await Requests(model, tools=[add]).run()

    so_far = caught.value.so_far  # type: ignore[attr-defined]
    assert so_far.reason == "broken"
    assert so_far.context[0]["state"] == {"sum": 3}


async def test_a_cancelled_run_leaves_nothing_behind() -> None:
    stuck = Hang()

    async def waits() -> None:
        await stuck.wait()

    model = ScriptedModel([{"calls": [{"_tool": "waits"}]}])
    running = asyncio.create_task(Requests(model, tools=[waits]).run())
    async with asyncio.timeout(10):
        while not stuck.waiting:
            await asyncio.sleep(0)
        await cancelled(running)

    assert (stuck.cancelled, stuck.waiting) == (1, 0)


# -- approval


async def test_calls_that_need_an_answer_are_asked_about() -> None:
    @tool(approval="ask")
    async def pay(amount: int) -> int:
        return amount

    model = ScriptedModel(
        [{"calls": [{"_tool": "pay", "amount": 9, "_outputPath": "†state.paid"}]}, {"output": "†state.paid"}]
    )

    answered = await Requests(model, tools=[pay], confirm=lambda call: Verdict.edit({"amount": 1})).run()
    assert answered.output == 1

    denied = ScriptedModel([{"calls": [{"_tool": "pay", "amount": 9}]}, {"output": "no"}])
    await Requests(denied, tools=[pay]).run()
    assert errors_in(denied.requests[1])[0]["kind"] == "denied"


# -- plans

PLAN = {"type": "plan", "plan": {"calls": []}}


def plan_in(context: Any) -> dict[str, Any]:
    (found,) = [each for each in context if each.get("type") == "plan"]
    return dict(found)


async def test_an_eager_plan_is_what_was_called_with_what_became_of_it() -> None:
    calls = [
        {"_tool": "add", "a": 1, "b": 2, "_id": "one"},
        {"_tool": "broken", "_outputPath": "†state.x"},
        {"_tool": "add", "a": "†state.x", "b": 2},
    ]
    model = ScriptedModel(
        [{"calls": calls}, {"calls": [{"_tool": "add", "a": 1, "b": 3, "_id": "two"}]}, {"output": 1}]
    )

    await Requests(model, tools=[add, broken]).run([PLAN])

    plan = plan_in(model.requests[1].context)["plan"]
    assert [call["_tool"] for call in plan["calls"]] == ["add", "broken", "add"]
    assert plan["status"] == {"one": "ok", "1.2": "failed", "1.3": "dep_failed"}
    assert plan_in(model.requests[2].context)["plan"]["status"] == {"two": "ok"}


async def test_a_lazy_plan_is_written_to_its_end_approved_and_then_carried_out() -> None:
    happened: list[Any] = []

    @tool
    async def act(n: int) -> int:
        happened.append(n)
        return n

    async def approve(calls: list[dict[str, Any]]) -> bool:
        happened.append([call["n"] for call in calls])
        return True

    model = ScriptedModel([
        stream([{"_tool": "act", "n": 1}, {"_tool": "act", "n": 2}, lambda: happened.append("written")]),
        {"output": "done"},
    ])  # fmt: skip

    answered = await Requests(model, tools=[act], approve=approve).run([{**PLAN, "mode": "lazy"}])

    assert happened[-3:] == [[1, 2], 1, 2]
    assert answered.output == "done"
    plan = plan_in(answered.context)
    assert (plan["mode"], plan["plan"]["status"]) == ("lazy", {"1.1": "ok", "1.2": "ok"})


@pytest.mark.parametrize(
    ("verdict", "why"),
    [
        (False, "the plan was not approved"),
        (Verdict.deny("too dear"), "too dear"),
        ("yes", "not approved"),
        (None, "not"),
    ],
)
async def test_a_plan_that_is_not_approved_is_not_carried_out_and_the_reason_is_told(verdict: Any, why: str) -> None:
    recorded = RecordingTool("note")
    model = ScriptedModel([{"calls": [{"_tool": "note"}]}, {"output": "given up"}])

    answered = await Requests(model, tools=[recorded], approve=lambda calls: verdict).run([{**PLAN, "mode": "lazy"}])

    assert (answered.output, recorded.calls) == ("given up", [])
    (error,) = errors_in(model.requests[1])
    assert error["kind"] == "plan_denied"
    assert why in error["message"]


async def test_a_plan_that_goes_round_in_a_circle_is_never_begun_nor_shown_to_anybody() -> None:
    asked: list[Any] = []
    calls = [
        {"_tool": "add", "a": 1, "b": 1, "_outputPath": "†state.z"},
        {"_tool": "add", "a": "†state.y", "b": 1, "_outputPath": "†state.x"},
        {"_tool": "add", "a": "†state.x", "b": 1, "_outputPath": "†state.y"},
    ]
    model = ScriptedModel([{"calls": calls}, {"output": "sorry"}])

    answered = await Requests(model, tools=[add], approve=asked.append).run([{**PLAN, "mode": "lazy"}])

    assert (answered.output, asked) == ("sorry", [])
    assert errors_in(model.requests[1]) == [
        {"kind": "cycle", "message": "calls of the plan wait for one another: 1.2, 1.3"}
    ]


@pytest.mark.parametrize(
    ("calls", "ring"),
    [
        ([("a", "†state.b", "†state.a"), ("b", "†state.a", "†state.b")], ["a", "b"]),
        ([("a", "†state.b.c", "†state.a"), ("b", "†state.a", "†state.b")], ["a", "b"]),
        ([("a", "†state.there", "†state.a"), ("b", "†state.a", "†state.there")], []),
        ([("a", "1", "†state.a"), ("b", "†state.a", "†state.a")], []),
        (
            [("a", "†state.c", "†state.a"), ("b", "†state.a", "†state.b"), ("c", "†state.b", "†state.c")],
            ["a", "b", "c"],
        ),
        ([("a", "†state.b", "†state.a"), ("b", "1", "†state.b"), ("c", "†state.a", "†state.c")], []),
        ([("a", "†", "†state.a"), ("b", "†state.a", "†nonsense..")], []),
    ],
)
def test_circles_are_found_as_the_executor_would(calls: list[tuple[str, str, str]], ring: list[str]) -> None:
    wires = [{"_tool": "t", "_id": name, "x": reads, "_outputPath": writes} for name, reads, writes in calls]

    assert circle(wires, Board([{"type": "state", "state": {"there": 1}}]).has) == ring
    assert circle([{"_id": "a", "_after": ["b"]}, {"_id": "b", "_after": ["a"]}], lambda path, instance: False) == [
        "a",
        "b",
    ]


async def test_what_came_with_a_denied_plan_is_asked_for_again_until_that_gets_nowhere() -> None:
    plan = {"calls": [{"_tool": "add", "a": 1, "b": 1}]}
    model = ScriptedModel([plan | {"output": "added"}, {"output": "not added"}])
    lazy = [{**PLAN, "mode": "lazy"}]

    answered = await Requests(model, tools=[add], approve=lambda calls: False).run(lazy)
    assert answered.output == "not added"
    assert [error["kind"] for error in errors_in(model.requests[1])] == ["plan_denied", "unverified"]

    again = await Requests(ScriptedModel([plan]), tools=[add], approve=lambda calls: False).run(lazy)
    assert (again.reason, again.requests) == ("no_progress", 3)


# -- meta


@pytest.mark.parametrize(
    ("said", "version"),
    [
        (None, "1.2.4"),
        ({"domain": "d", "path": "p", "version": "1.3.0", "createdAt": "2026-01-01"}, "1.3.0"),
        ({"domain": "d", "path": "p", "version": "1.2.3"}, "1.2.4"),
        ({"domain": "other", "path": "p", "version": "1.2.10"}, "1.2.10"),
        ({"domain": "d", "path": "p", "version": "1.1.9"}, "1.2.4"),
        ({"domain": "d", "path": "p", "version": "1.2.3.draft.1"}, "1.2.3.draft.1"),
    ],
)
async def test_the_version_grows_whatever_the_model_says(said: Any, version: str) -> None:
    meta = {"type": "meta", "meta": {"domain": "d", "path": "p", "version": "1.2.3", "createdAt": "2020-01-01"}}

    answered = await Requests(ScriptedModel([{"meta": said, "output": 1}])).run([meta])

    (kept,) = [each["data"] for each in answered.context if each.get("kind") == "meta"]
    assert (kept["domain"], kept["path"], kept["version"]) == ("d", "p", version)
    assert kept["createdAt"] != "2020-01-01"


# -- garbage

JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.sampled_from(["", "†", "†state.x", "†state.x || †input.y", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=10,
)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.dictionaries(st.sampled_from(KEYS), JUNK, max_size=5), max_size=4),
    st.sampled_from(["", "eager", "lazy"]),
)
async def test_whatever_a_model_answers_the_run_ends_with_a_reason(solutions: list[Any], mode: str) -> None:
    solutions = [{**each, "calls": [{"_tool": "add", **call} for call in each["calls"] if isinstance(call, dict)]}
                 if isinstance(each.get("calls"), list) else each for each in solutions]  # fmt: skip
    context = [
        {"type": "meta", "meta": {"version": "1"}},
        {"type": "advisor", "id": "a"},
        *([{**PLAN, "mode": mode}] if mode else []),
    ]

    answered = await Requests(ScriptedModel([*solutions, None]), tools=[add, broken], max_requests=5).run(
        context, NAMED
    )

    assert answered.reason in ("output", "no_progress", "empty", "invalid_output", "max_requests")
    json.dumps(answered.context)


# -- what it took


async def test_what_all_requests_took_is_added_up() -> None:
    call = {"_tool": "add", "a": 1, "b": 2}
    model = ScriptedModel([stream([Usage("m", 1, 2), call]), stream([{"output": 1}, Usage("m", 3, 4)])])

    assert (await Requests(model, tools=[add]).run()).usage == Usage("m", 4, 6, cost=None)


async def test_a_hook_may_end_the_run() -> None:
    hooks = Hooks()
    hooks.add("before_call", lambda ctx: Decision.stop_run("enough"))
    model = ScriptedModel([{"calls": [{"_tool": "add", "a": 1, "b": 2}]}])

    answered = await Requests(model, executor=Executor([add], hooks=hooks)).run()

    assert (answered.reason, answered.requests) == ("stopped", 1)
    assert "enough" in answered.errors[-1]["error"]["message"]


async def test_a_context_that_is_none_is_refused() -> None:
    for context in ("text", {"type": "input"}):
        with pytest.raises(TypeError, match="a context is a list of messages"):
            await Requests(ScriptedModel([{"output": 1}])).run(context)


# -- with what it is made


async def test_an_executor_can_be_given_and_brings_its_tools() -> None:
    model = ScriptedModel(
        [{"calls": [{"_tool": "add", "a": 1, "b": 2, "_outputPath": "†state.x"}], "output": "†state.x"}]
    )

    assert (await Requests(model, executor=Executor([add])).run()).output == 3
    with pytest.raises(ConfigError, match="belong to the executor"):
        Requests(model, tools=[add], executor=Executor([add]))


async def test_it_opens_and_closes_what_its_tools_need() -> None:
    happened = []

    class Source:
        name = "thing"
        schema: dict[str, Any] = {"type": "object", "properties": {"_tool": {"const": "thing"}}}  # noqa: RUF012
        effect, timeout = "read", 5.0

        async def __aenter__(self) -> None:
            happened.append("opened")

        async def __aexit__(self, *exc: object) -> None:
            happened.append("closed")

        async def __call__(self) -> str:
            return "x"

    async with Requests(ScriptedModel([{"calls": [{"_tool": "thing"}], "output": 1}]), tools=[Source()]) as requests:
        assert (await requests.run()).output == 1

    assert happened == ["opened", "closed"]
