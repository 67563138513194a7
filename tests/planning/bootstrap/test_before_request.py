from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from planning.bootstrap.before_request import apply_hooks, messages_of
from planning.llm.planner import ModelPlanner
from spar.errors import PermanentError
from spar.events import ErrorOccurred
from spar.hooks import Decision, HookContext, RequestDraft
from spar.testing import ScriptedModel, VirtualClock
from tests.planning.desk import Desk, Tool, calls_of, context, decided, message, planned, read_of

CALL = {"_tool": "note", "text": "x", "_id": "1"}
DRAFT = RequestDraft("be kind", tools=("note", "shell"), model="a", models=("a", "b"))


def desk_of(clock: VirtualClock, *hooks: Any) -> Desk:
    desk = Desk(clock, tools={"note": Tool(), "shell": Tool("shell")})
    for hook in hooks:
        desk.hooks.add("before_request", hook)
    return desk


def planner_of(desk: Desk, model: Any) -> ModelPlanner:
    made = ModelPlanner(model, instructions="be kind")
    made.attach(desk.host)
    return made


def named(schema: Any) -> list[str]:
    """The tools that a request's schema offers."""
    calls = schema["properties"].get("calls", {"items": {"anyOf": []}})
    return [each["properties"]["_tool"]["const"] for each in calls["items"]["anyOf"]]


async def test_hooks_see_and_change_what_is_asked_and_that_stands_on_the_tape(clock: VirtualClock) -> None:
    seen: list[RequestDraft] = []

    def first(ctx: HookContext) -> Decision:
        seen.append(ctx.value)
        return Decision.rewrite(ctx.value.append("rhyme").without("shell"))

    def second(ctx: HookContext) -> Decision:
        seen.append(ctx.value)
        return Decision.rewrite(ctx.value.prepend("now").add("it rains", {"kind": "weather", "data": {"rain": 3}}))

    desk, model = desk_of(clock, first, second), ScriptedModel([{"output": "yes"}])
    action = decided(await planned(planner_of(desk, model), [], context()))

    assert [each.tools for each in seen] == [("note", "shell"), ("note",)]
    request = model.requests[0]
    assert request.instructions.startswith("now\n\n")
    assert request.instructions.endswith("be kind\n\nrhyme")
    assert named(request.schema) == ["note"]
    assert '¶context\n["it rains"]' in read_of(request)
    assert '¶weather\n{"rain": 3}' in read_of(request)
    assert action.trust == "trusted"
    (kept,) = [each for _, each in desk.notes if each["kind"] == "hooks"]
    names = [f"{test_hooks_see_and_change_what_is_asked_and_that_stands_on_the_tape.__name__}.<locals>.{each}"
             for each in ("first", "second")]  # fmt: skip
    assert kept["hooks"] == [
        {"point": "before_request", "hook": names[0], "instructions": "7 characters appended", "left_out": ["shell"]},
        {"point": "before_request", "hook": names[1], "instructions": "5 characters prepended", "context": 2},
    ]


async def test_a_hook_that_widens_the_tools_is_refused_and_told(clock: VirtualClock) -> None:
    def narrow(ctx: HookContext) -> Decision:
        return Decision.rewrite(ctx.value.without("shell"))

    def widen(ctx: HookContext) -> Decision:
        return Decision.rewrite(replace(ctx.value, tools=("note", "shell", "pay"), instructions="other"))

    desk, model = desk_of(clock, narrow, widen), ScriptedModel([{"output": "yes"}])
    await planned(planner_of(desk, model), [], context())

    assert named(model.requests[0].schema) == ["note"]
    assert model.requests[0].instructions == "other"
    (event,) = desk.events.of(ErrorOccurred)
    assert event.policy == "before_request"
    assert event.error.message == "it may only leave tools out, and added 'shell', 'pay'"
    assert desk.notes[0][1]["hooks"][1]["refused"] == ["it may only leave tools out, and added 'shell', 'pay'"]


async def test_a_tool_that_was_left_out_is_not_called_even_if_the_model_names_it(clock: VirtualClock) -> None:
    desk = desk_of(clock, lambda ctx: Decision.rewrite(ctx.value.without("shell")))
    model = ScriptedModel([{"calls": [{**CALL, "_tool": "shell"}, CALL | {"_id": "2"}]}])
    calls = calls_of(await planned(planner_of(desk, model), [], context()))

    assert [each.meta.get("_bad") for each in calls] == ["this tool is not offered in this step", None]


async def test_a_request_without_hooks_is_as_it_was(clock: VirtualClock) -> None:
    desk, model = desk_of(clock), ScriptedModel([{"output": "yes"}])
    await planned(planner_of(desk, model), [], context())

    assert named(model.requests[0].schema) == ["note", "shell"]
    assert [each for _, each in desk.notes if each["kind"] == "hooks"] == []


@pytest.mark.parametrize(
    "wrong",
    [
        "no draft",
        replace(DRAFT, instructions=3),
        replace(DRAFT, tools="note, shell"),
        replace(DRAFT, context=None),
        replace(DRAFT, model=None),
        replace(DRAFT, instructions="x" * 200_001),
        DRAFT.add({"type": "tool", "tool": {}}),
        DRAFT.add({"kind": "state", "data": 1}),
        DRAFT.add({"kind": "x", "data": 1, "_call": {}}),
        replace(DRAFT, context=(3,)),
        DRAFT.add("x" * 200_001),
    ],
)
async def test_a_hook_that_puts_nonsense_there_changes_nothing_and_is_told(clock: VirtualClock, wrong: Any) -> None:
    desk = desk_of(clock, lambda ctx: Decision.rewrite(wrong), lambda ctx: Decision.rewrite(ctx.value.append("on")))
    found = await apply_hooks(desk.host, context(), DRAFT)

    assert found.draft == DRAFT.append("on")
    assert len(desk.events.of(ErrorOccurred)) == 1


async def test_another_allowed_model_may_be_chosen_and_no_other(clock: VirtualClock) -> None:
    desk = desk_of(clock, lambda ctx: Decision.rewrite(replace(ctx.value, model="b")),
                   lambda ctx: Decision.rewrite(replace(ctx.value, model="z", models=("z",))))  # fmt: skip
    found = await apply_hooks(desk.host, context(), DRAFT)

    assert (found.draft.model, found.draft.models) == ("b", ("a", "b"))
    assert desk.events.of(ErrorOccurred)[0].error.message == "model 'z' is not allowed; allowed: a, b"


async def test_trust_may_be_lowered_and_not_raised(clock: VirtualClock) -> None:
    lower = desk_of(clock, lambda ctx: Decision.rewrite(replace(ctx.value.add("a web page"), trust="untrusted")),
                    lambda ctx: Decision.rewrite(replace(ctx.value, trust="trusted")))  # fmt: skip
    action = decided(await planned(planner_of(lower, ScriptedModel([{"output": "yes"}])), [], context()))

    assert action.trust == "untrusted"


@pytest.mark.parametrize("decision", [Decision.deny("not now"), Decision.stop_run("not now")])
async def test_a_hook_that_is_against_the_request_ends_the_run_with_its_reason(
    clock: VirtualClock, decision: Decision
) -> None:
    model = ScriptedModel([{"output": "yes"}])
    with pytest.raises(PermanentError, match="a hook is against the request: not now"):
        await planned(planner_of(desk_of(clock, lambda ctx: decision), model), [], context())
    assert model.requests == []


async def test_a_hook_that_fails_is_told_and_the_request_goes_on(clock: VirtualClock) -> None:
    def broken(ctx: HookContext) -> None:
        raise OSError("no disk")

    desk, model = desk_of(clock, broken), ScriptedModel([{"output": "yes"}])
    await planned(planner_of(desk, model), [message()], context())

    assert len(model.requests) == 1
    assert [event.policy for event in desk.events.of(ErrorOccurred)] == ["before_request"]


def test_texts_are_one_list_of_data() -> None:
    assert messages_of(DRAFT.add("a", "b")) == [{"type": "data", "kind": "context", "data": ["a", "b"], "_now": True}]
    assert messages_of(DRAFT) == []


async def test_half_a_sign_is_replaced(clock: VirtualClock) -> None:
    desk, model = (
        desk_of(clock, lambda ctx: Decision.rewrite(ctx.value.append("\ud800"))),
        ScriptedModel([{"output": 1}]),
    )
    await planned(planner_of(desk, model), [], context())

    assert model.requests[0].instructions.endswith("\n\n?")
