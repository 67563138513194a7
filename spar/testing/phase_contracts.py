"""Contracts of the phases: planner, actor, reflector. `spar.testing.contracts` describes their use."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from spar.clock import Clock
from spar.ids import new_id
from spar.ports.any_part import has
from spar.ports.phases import OptionalActor
from spar.testing.duties import ODD_TEXTS, Harness, described, legal_action, legal_reflection, legal_result, owed
from spar.types import Action, ActionResult, Call, CallResult, Fault, Perception, replace

Factory = Callable[[], Any]
MOST_STREAMED = 10_000


async def check_planner(
    make_planner: Factory,
    *,
    perceptions: Sequence[Perception] = (),
    clock: Clock | None = None,
    limit: float = 5.0,
    grace: float = 0.5,
) -> None:
    """Check a planner against `protocols.Planner`: an object with `plan`, or a bare function.

    Args: perceptions: perceptions that it plans for, besides odd texts.
    """
    harness = Harness("planner", clock, limit, grace)
    odd_perceptions = [Perception(text, source="contract", kind="message") for text in ODD_TEXTS]
    sensible = list(perceptions) or [Perception("the disk is nearly full", source="contract", kind="alert")]
    async with harness.opened(make_planner) as planner:
        plan = harness.phase("plan", planner)

        async def planned(batch: list[Perception]) -> None:
            before = copy.deepcopy(batch)
            product = await plan(batch)
            if hasattr(product, "__aiter__"):
                product = await _written(product)
            owed(batch == before, "plan() must leave the perceptions as they are, but changed them")
            legal_action("plan()", product)

        for batch in ([], sensible, sensible, odd_perceptions, [], sensible):
            await harness.value("plan()", planned(list(batch)))
        product = await harness.value("plan()", plan(list(sensible)))
        if hasattr(product, "aclose"):
            await harness.value("closing a plan that is still being written", _first_only(product))
        await harness.cut("plan()", lambda: planned(list(sensible)), may_return=True)
        await harness.value("plan() after one that was cancelled", planned(list(sensible)))
    async with harness.opened(make_planner) as planner:
        await harness.value("plan() of a second planner", harness.phase("plan", planner)([]))
    await harness.is_clean()


async def _written(stream: AsyncIterator[Any]) -> Action:
    action = Action()
    calls: list[Call] = []
    async for piece in stream:
        if isinstance(piece, Action):
            action = piece
            calls.extend(piece.calls)
        elif isinstance(piece, Mapping):
            calls.append(Call.from_wire(piece))
        else:
            owed(isinstance(piece, Call), f"plan() must stream calls, found {described(piece)}")
            calls.append(piece)
        owed(len(calls) <= MOST_STREAMED, f"plan() must end its stream, but wrote more than {MOST_STREAMED} calls")
    return replace(action, calls=tuple(calls))


async def _first_only(stream: Any) -> None:
    async for _ in stream:
        break
    await stream.aclose()


async def check_actor(
    make_actor: Factory,
    *,
    calls: Sequence[Call] = (),
    clock: Clock | None = None,
    limit: float = 5.0,
    grace: float = 0.5,
) -> None:
    """Check an actor against `protocols.Actor`, and its `act_stream` if it has one.

    Args: calls: calls that it can execute successfully, with the calls that they depend on.
    """
    harness = Harness("actor", clock, limit, grace)
    unknown = Call("no_tool_has_this_name", {"text": ODD_TEXTS[1]})
    async with harness.opened(make_actor) as actor:
        act = harness.phase("act", actor)

        async def acted(*parts: Call) -> ActionResult:
            action = Action(calls=parts)
            before = copy.deepcopy(action)
            result: ActionResult = await harness.value("act()", act(action))
            owed(action == before, "act() must leave the action as it is, but changed it")
            legal_result("act()", action, result)
            return result

        owed((await acted()).status == "ok", "act() of an action without calls must be ok")
        await acted(*_again([unknown]))
        if calls:
            fine = await acted(*_again(calls))
            owed(fine.status == "ok", f"act() must execute the given calls, found {fine.status}: {fine.errors!r:.200}")
            disturbed = await acted(*_again(calls), *_again([unknown]))
            ended = [item.status for item in disturbed.results].count("ok")
            owed(ended >= len(calls), "act() must not let a failing call disturb its siblings")
        both = [*calls, unknown]
        await harness.cut("act()", lambda: act(Action(calls=_again(both))), may_return=True)
        await acted(*_again(both))
        if has(actor, OptionalActor.act_stream):
            for error in (None, ValueError("the plan broke off")):
                new_calls = _again(both)
                work = harness.run(actor.act_stream, Action(), _streamed(new_calls, error))
                result = await harness.value("act_stream()", work)
                is_result = isinstance(result, ActionResult)
                owed(is_result, f"act_stream() must return an ActionResult, found {described(result)}")
                legal_result("act_stream()", Action(calls=new_calls), replace(result, action=None))
                owed(error is None or result.fault, "act_stream() must set the fault when its stream breaks off")
    await harness.is_clean()


def _again(calls: Sequence[Call]) -> tuple[Call, ...]:
    """Return the calls with new ids; they still wait for one another."""
    ids = {call.id: new_id() for call in calls}
    return tuple(replace(call, id=ids[call.id], after=tuple(ids[item] for item in call.after)) for call in calls)


async def _streamed(calls: Sequence[Call], error: Exception | None) -> AsyncIterator[Call]:
    for call in calls:
        await asyncio.sleep(0)
        yield call
    if error is not None:
        raise error


async def check_reflector(
    make_reflector: Factory,
    *,
    results: Sequence[ActionResult] = (),
    clock: Clock | None = None,
    limit: float = 5.0,
    grace: float = 0.5,
) -> None:
    """Check a reflector against `protocols.Reflector`, with `results` and with good, bad and odd ones."""
    harness = Harness("reflector", clock, limit, grace)
    all_results = [*results, *_various_results()]
    async with harness.opened(make_reflector) as reflector:
        reflect = harness.phase("reflect", reflector)
        for result in (*all_results, all_results[-1]):
            before = copy.deepcopy(result)
            reflection = await harness.value("reflect()", reflect(result))
            owed(result == before, "reflect() must leave the result as it is, but changed it")
            legal_reflection("reflect()", result, reflection)
        await harness.cut("reflect()", lambda: reflect(all_results[-1]), may_return=True)
        reflection = await harness.value("reflect() after one that was cancelled", reflect(all_results[-1]))
        legal_reflection("reflect()", all_results[-1], reflection)
    await harness.is_clean()


def _various_results() -> list[ActionResult]:
    perceptions = tuple(Perception(text, source="contract") for text in ODD_TEXTS[:-1])
    good = [CallResult(Call("probe", {"text": text}), "ok", output=text, attempts=1) for text in ODD_TEXTS]
    fault = Fault("timeout", ODD_TEXTS[1], part="probe", phase="act")
    bad = [
        CallResult(Call("probe"), "failed", fault=fault, attempts=3),
        CallResult(Call("probe"), "timeout", fault=fault),
        CallResult(Call("probe"), "skipped", "dep_failed"),
        CallResult(Call("probe"), "denied", "denied"),
        CallResult(Call("probe"), "in_doubt", fault=fault),
        CallResult(Call("probe"), "cancelled", "steered"),
    ]

    def result_of(results: list[CallResult], status: Any) -> ActionResult:
        action = Action(calls=tuple(item.call for item in results), perceptions=perceptions, goal=ODD_TEXTS[2])
        return ActionResult(action=action, status=status, results=tuple(results))

    broken = ActionResult(status="failed", fault=fault)
    mixed = result_of([*good, *bad], "partial")
    return [ActionResult(), broken, result_of([], "ok"), result_of(bad, "failed"), result_of(good, "ok"), mixed]
