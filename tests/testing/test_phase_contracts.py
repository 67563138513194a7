"""The contracts of planner, actor and reflector let good ones pass and name the duty that a bad one breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from spar.protocols import Context, Host
from spar.testing import (
    ScriptedActor,
    ScriptedPlanner,
    ScriptedReflector,
    check_actor,
    check_planner,
    check_reflector,
    stream,
)
from spar.types import (
    Ability,
    Action,
    ActionResult,
    Call,
    CallFailure,
    CallResult,
    Experience,
    Fault,
    Perception,
    Reflection,
    replace,
)
from tests.testing.test_contracts import breaks, deaf

# -- planners ---------------------------------------------------------------------------------------------

TIDY = Call("tidy")


def fresh(perceptions: Sequence[Perception]) -> list[Call]:
    first = Call("look", {"text": "x"})
    return [first, Call("tidy", after=[first.id])]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "planner",
    [
        pytest.param(ScriptedPlanner, id="plans nothing"),
        pytest.param(lambda: ScriptedPlanner([fresh]), id="calls"),
        pytest.param(lambda: ScriptedPlanner([stream([TIDY, 0.001, Call("note")])]), id="returns a stream"),
    ],
)
async def test_a_good_planner_passes(planner: Any) -> None:
    await check_planner(planner)


async def test_planners_of_every_shape_pass() -> None:
    contexts: list[Context] = []

    def plain(perceptions: Sequence[Perception], context: Context) -> Action | None:
        contexts.append(context)
        return None

    async def streaming(perceptions: Sequence[Perception]) -> AsyncIterator[Any]:
        yield Action(goal="tidy")
        yield Call("look", id="a")
        yield {"_tool": "tidy", "_after": ["a"]}

    await check_planner(lambda: plain)
    await check_planner(lambda: streaming)

    assert contexts[0].agent == "contract"


async def test_a_planner_is_made_attached_opened_and_closed_as_the_agent_does_it() -> None:
    seen: list[str] = []

    class Opened(ScriptedPlanner):
        def attach(self, host: Host) -> None:
            seen.append(f"attached to {host.agent}")

        async def __aenter__(self) -> None:
            seen.append("opened")

        async def __aexit__(self, *exc: object) -> None:
            seen.append("closed")

    async def made() -> Opened:
        return Opened()

    await check_planner(made)

    assert seen == ["attached to contract", "opened", "closed"] * 2


def planned(product: Any) -> Any:
    return lambda: ScriptedPlanner([lambda *given: product])


@pytest.mark.parametrize(
    ("product", "duty"),
    [
        ("tidy up", "must return Action, a stream of calls or None, found str"),
        (Action(calls=[Call("a", id="x"), Call("b", id="x")]), "different ids, found 'x' twice"),
        (Action(calls=[Call("")]), "must name a tool"),
        (Action(calls=[Call("a", {"x": object()})]), "parameters of 'a' from plan.* must be JSON-able"),
        (Action(calls=[Call("a", after=("nobody",))]), r"found \['nobody'\] in after"),
        (Action(next_look=-1), "next_look as seconds from 0"),
        (Action(output={1, 2}), "output of plan.* must be JSON-able"),
        (stream(["tidy"]), "must stream calls, found str"),
        (stream([TIDY, TIDY]), "different ids"),
        (stream([OSError("lost")]), "must not raise here, but raised OSError"),
    ],
)
async def test_a_planner_of_illegal_plans_is_caught(product: Any, duty: str) -> None:
    await breaks(check_planner, planned(product), duty)


async def test_a_planner_that_trips_over_odd_text_is_caught() -> None:
    def encode(perceptions: Sequence[Perception]) -> None:
        for item in perceptions:
            item.text.encode()

    await breaks(check_planner, lambda: ScriptedPlanner([encode]), "raised UnicodeEncodeError")


async def test_a_planner_that_changes_its_input_is_caught() -> None:
    def consume(perceptions: list[Perception]) -> None:
        perceptions.clear()

    await breaks(check_planner, lambda: ScriptedPlanner([consume]), "leave the perceptions as they are")


async def test_a_planner_that_is_legal_only_once_is_caught() -> None:
    await breaks(check_planner, lambda: ScriptedPlanner([None, None, TIDY, lambda _: 7]), "found int")


async def test_a_deaf_planner_is_caught() -> None:
    async def plan(perceptions: Sequence[Perception]) -> None:
        try:
            await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            await deaf()

    await breaks(check_planner, lambda: plan, "must let its cancellation through")


async def test_a_planner_that_does_not_open_is_caught() -> None:
    class Closed(ScriptedPlanner):
        async def __aenter__(self) -> None:
            raise OSError("no model")

        async def __aexit__(self, *exc: object) -> None:
            pass

    await breaks(check_planner, Closed, "planner must open, but opening it raised OSError")


async def test_a_factory_that_returns_nothing_is_caught() -> None:
    await breaks(check_planner, lambda: None, "the factory of the planner must return it")


# -- actors -----------------------------------------------------------------------------------------------


class StreamingProbe(ScriptedActor):
    async def act_stream(self, action: Action, calls: AsyncIterator[Call]) -> ActionResult:
        seen: list[Call] = []
        fault: Fault | None = None
        try:
            async for call in calls:
                seen.append(call)  # noqa: PERF401 - what came before the failure counts
        except ValueError as error:
            fault = Fault.of(error)
        return replace(await self.act(replace(action, calls=tuple(seen))), fault=fault)


async def test_a_good_actor_passes() -> None:
    first = Call("probe", id="a")

    await check_actor(ScriptedActor)
    await check_actor(lambda: ScriptedActor([0.005, None]), calls=[first, Call("probe", after=("a",))])
    await check_actor(StreamingProbe, calls=[first])


def answered(change: Any) -> Any:
    """An actor whose good result is changed in one point."""

    async def act(action: Action) -> Any:
        good = await ScriptedActor().act(action)
        return change(good) if action.calls else good

    return lambda: act


@pytest.mark.parametrize(
    ("change", "duty"),
    [
        (lambda good: None, "must return an ActionResult, found NoneType"),
        (lambda good: replace(good, results=()), "exactly one CallResult for each call, found none for"),
        (lambda good: replace(good, results=good.results * 2), "results of act.* different ids"),
        (lambda good: replace(good, results=(*good.results, CallResult(TIDY, "ok"))), "calls of its action only"),
        (lambda good: replace(good, results=("ok",)), "list of CallResult, found str"),
        (lambda good: replace(good, status="fine"), "fields of ActionResult: status must be .*'fine'"),
        (lambda good: replace(good, status="failed"), "must be ok as a whole when all calls are"),
        (
            lambda good: replace(good, results=changed(good, status="done")),
            "fields of CallResult: status must be .*'done'",
        ),
        (lambda good: replace(good, results=changed(good, status="failed", reason="x")), "must not be ok as a whole"),
        (lambda good: replace(good, results=changed(good, status="failed")), "say by fault or reason why"),
        (lambda good: replace(good, results=changed(good, output=object())), "output of .* must be JSON-able"),
        (
            lambda good: replace(good, results=changed(good, duration=-1.0)),
            "CallResult: duration must be seconds, at least 0",
        ),
        (lambda good: replace(good, action=Action()), "lead back to the action it was given"),
        (lambda good: replace(good, state={"x": object()}), "state, messages and errors .* JSON-able"),
    ],
)
async def test_an_actor_of_illegal_results_is_caught(change: Any, duty: str) -> None:
    await breaks(check_actor, answered(change), duty)


def changed(good: ActionResult, **fields: Any) -> tuple[CallResult, ...]:
    return tuple(replace(item, **fields) for item in good.results)


async def test_an_actor_that_raises_for_an_unknown_tool_is_caught() -> None:
    async def act(action: Action) -> ActionResult:
        for call in action.calls:
            raise LookupError(call.tool)
        return ActionResult()

    await breaks(check_actor, lambda: act, "must not raise here, but raised LookupError")


async def test_an_actor_that_cannot_do_what_it_should_is_caught() -> None:
    await breaks(check_actor, lambda: ScriptedActor([None, None, "failed"]), "execute the given calls", calls=[TIDY])


async def test_an_actor_whose_failing_call_disturbs_its_siblings_is_caught() -> None:
    async def act(action: Action) -> ActionResult:
        is_bad = any(call.tool != "tidy" for call in action.calls)
        result: ActionResult = await ScriptedActor(["failed" if is_bad else "ok"]).act(action)
        return result

    await breaks(check_actor, lambda: act, "disturb its siblings", calls=[TIDY])


async def test_an_actor_that_changes_its_action_is_caught() -> None:
    async def act(action: Action) -> ActionResult:
        for call in action.calls:
            call.params.clear()
        result: ActionResult = await ScriptedActor().act(action)
        return result

    await breaks(check_actor, lambda: act, "leave the action as it is")


async def test_a_streaming_actor_that_hides_a_broken_stream_is_caught() -> None:
    class Hiding(StreamingProbe):
        async def act_stream(self, action: Action, calls: AsyncIterator[Call]) -> ActionResult:
            return replace(await super().act_stream(action, calls), fault=None)

    class Raising(ScriptedActor):
        async def act_stream(self, action: Action, calls: AsyncIterator[Call]) -> ActionResult:
            seen = [call async for call in calls]
            result: ActionResult = await self.act(replace(action, calls=tuple(seen)))
            return result

    await breaks(check_actor, Hiding, "must set the fault")
    await breaks(check_actor, Raising, r"act_stream\(\) must not raise here")


# -- reflectors -------------------------------------------------------------------------------------------


async def test_a_good_reflector_passes() -> None:
    def learn(result: ActionResult) -> Reflection:
        bad = tuple(CallFailure(item.call, "unknown") for item in result.results if item.status != "ok")
        return Reflection(score=0.5, failures=bad, abilities=(Ability("probe", "x", 0.5, 0.29, 0),))

    await check_reflector(ScriptedReflector)
    await check_reflector(lambda: learn, results=[ActionResult(status="interrupted")])


@pytest.mark.parametrize(
    ("product", "duty"),
    [
        (None, "must return a Reflection, found NoneType"),
        (Reflection(score=2.0), r"Reflection: score must be a number from 0 to 1, found float \(2\.0\)"),
        (Reflection(score=float("nan")), "score must be a number from 0 to 1"),
        (Reflection(successes=(TIDY,)), "judge calls of its result only"),
        (Reflection(failures=("x",)), "list of CallFailure, found str"),  # type: ignore[arg-type]
        (Reflection(abilities=(Ability("a", "b", 1.5, 0.1, 1),)), "must estimate within"),
        (Reflection(abilities=(Ability("a", "b", 0.5, 0.7, 1),)), "must estimate within"),
        (Reflection(experiences=(Experience("a", id="x"), Experience("b", id="x"))), "'x' twice"),
        (Reflection(experiences=(Experience({"not": "text"}),)), "Experience: situation must be text"),  # type: ignore[arg-type]
        (Reflection(next_look=float("inf")), "next_look"),
    ],
)
async def test_a_reflector_of_illegal_reflections_is_caught(product: Any, duty: str) -> None:
    async def reflect(result: ActionResult) -> Any:
        return product

    await breaks(check_reflector, lambda: reflect, duty)


async def test_a_reflector_that_needs_an_action_is_caught() -> None:
    def reflect(result: ActionResult) -> Reflection:
        return Reflection(successes=result.action.calls)  # type: ignore[union-attr]

    await breaks(check_reflector, lambda: reflect, "raised AttributeError")


async def test_a_reflector_that_changes_its_result_is_caught() -> None:
    async def reflect(result: ActionResult) -> Reflection:
        result.state["seen"] = True
        return Reflection()

    await breaks(check_reflector, lambda: reflect, "leave the result as it is")
