"""Several planners in a row: the first that decides, decides.

A planner that raises, or that the agent has turned away from (`degrade`), hands over to the next, and the action then
says `degraded`. When one raised and none of the others decided, its error goes on: a plan that could not be made is
not the same as nothing to do. A planner that streams is handed through as the stream it is, once its first call is
there.

One planner may be the main one, whose word is final: those behind it only stand in for it, those before it decide what
they know, and that is no makeshift.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any

from spar.clock import Clock, SystemClock
from spar.errors import ConfigError, ContractError, TransientError
from spar.protocols import Ask, Context, Host, Lender, Lent, ModelQuestion, RunContext, WritesCalls, WrittenCall
from spar.records.run_options import RunOptions
from spar.threads import Threads
from spar.types import Action, Fault, Perception, replace

#: Seconds until a run that waits for the main planner asks whether it is back.
_LOOK_AGAIN = 30.0

Plan = Action | AsyncIterator[Any] | None


class Chain:
    """PLAN by the first of several planners that decides. Opens and closes them as they are modules of its own.

    Args:
        planners: objects with `plan` or bare functions, async or plain, with or without a second parameter.
        main: which of them (from 0) `degrade` turns away from, and whose decision counts even if it is that there is
            nothing to do; None: the first one, and then the next ones are asked.
    Raises: ConfigError when there is none, or no such main one.
    """

    def __init__(self, planners: Sequence[Any], *, main: int | None = None) -> None:
        if not planners:
            raise ConfigError("a chain of planners needs at least one", path=("planners",))
        if main is not None and not 0 <= main < len(planners):
            raise ConfigError(f"a chain of {len(planners)} planners has no planner {main!r}", path=("main",))
        self.planners = tuple(planners)
        self._main = main
        self.degraded_reason: str | None = None
        self._opened = AsyncExitStack()
        self._threads: Threads | None = None
        self._ask: Ask | None = None

    def written_calls(self) -> Iterator[WrittenCall]:
        """Return the calls that the planners' configuration writes out."""
        for planner in self.planners:
            if isinstance(planner, WritesCalls):
                yield from planner.written_calls()

    async def check_options(self, options: RunOptions) -> None:
        """Raises: ValueError for options of a run that the planner that asks a model cannot go by."""
        for planner in self.planners:
            if callable(check := getattr(planner, "check_options", None)):
                await check(options)
                return
        raise ValueError(f"option {next(iter(options.given))} means nothing here: no planner asks a model")

    @property
    def allowed_models(self) -> tuple[str, ...]:
        """Return the names of the models that people may choose from: those of the planner that asks a model."""
        found = (getattr(planner, "allowed_models", ()) for planner in self.planners)
        return next((tuple(models) for models in found if models), ())

    def degrade(self, reason: str) -> None:
        """Leave the first planner (or the main one) out from the next plan on, and mark what others decide; idempotent.

        With a single planner there is nothing to fall back to: it goes on, and its actions are marked.
        """
        self.degraded_reason = reason

    def restore(self) -> None:
        """Ask it again; idempotent."""
        self.degraded_reason = None

    async def plan(self, perceptions: Sequence[Perception], context: Context | None = None) -> Plan:
        """The first decision: an action that has calls or an answer, or a stream of calls that has begun.

        What was noticed, and the main planner puts off, others may decide on meanwhile; what people say waits for it.
        When nobody decides: the first action that only says something (its reason, when to look again), else None; but
        a run that the main planner would have decided on waits for it (`Action.deferred`).
        Raises: the error of the first planner that raised, when no other one decided.
        """
        context = context or Context(agent="", cycle_id="")
        reason = self.degraded_reason if self._main is None else None
        failed: Exception | None = None
        remark: Action | None = None
        put_off: Action | None = None
        for number, planner in enumerate(self.planners):
            if self.degraded_reason is not None and number == (self._main or 0) and len(self.planners) > 1:
                reason = self.degraded_reason
                continue
            try:
                plan = await _ask(planner, perceptions, context, self._in_thread)
            except Exception as error:
                reason = reason or f"{_name(planner)} failed: {Fault.of(error).message}"
                failed = _first(failed, error)
                continue
            if number == self._main:
                if (put_off := await _put_off(plan, context.run)) is None:
                    return plan
                reason, perceptions = put_off.deferred, _noticed(perceptions, context.run)
                continue
            if not isinstance(plan, Action):
                if plan is None:
                    continue
                return plan
            if plan.calls or plan.output is not None:
                return _marked(plan, reason)
            remark = remark or _marked(plan, reason)
        if put_off is not None and (context.run is None or not _is_makeshift(context.run)):
            return put_off
        if failed is not None:
            raise failed
        if self._main is not None and reason is not None and context.run is not None and not _is_makeshift(context.run):
            return Action(run_id=context.run.id, deferred=f"degraded: {reason}", next_look=_LOOK_AGAIN)
        return remark

    def snapshot(self) -> dict[str, Any]:
        """Why it is degraded (None when it is not) and what the planners say of themselves."""
        told = {_name(planner): planner.snapshot() for planner in self.planners if hasattr(planner, "snapshot")}
        return {"degraded": self.degraded_reason, "planners": told}

    def attach(self, host: Host) -> None:
        """Hand the agent's host on to every planner that wants it."""
        for planner in self.planners:
            if callable(attach := getattr(planner, "attach", None)):
                attach(host)

    def lends(self) -> Lent:
        """Return what its planners lend together; of two with one name the first one counts."""
        lent = [each.lends() for each in self.planners if isinstance(each, Lender)]
        activities = {name: handler for each in reversed(lent) for name, handler in each.activities.items()}
        self._ask = next((each.ask for each in lent if each.ask is not None), None)
        ask = None if self._ask is None else self._answer
        return Lent(tuple(tool for each in lent for tool in each.tools), activities, ask)

    async def _answer(self, question: ModelQuestion) -> Any:
        """Ask the first planner that lends a model. Raises: TransientError while this chain does without; what that
        raises."""
        if (reason := self.degraded_reason) is not None:
            raise TransientError(f"no model is asked: {reason}")
        assert self._ask is not None
        return await self._ask(question)

    async def __aenter__(self) -> Chain:
        async with AsyncExitStack() as opening:
            for planner in self.planners:
                if hasattr(planner, "__aenter__"):
                    await opening.enter_async_context(planner)
            self._opened = opening.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._opened.__aexit__(kind, error, traceback)

    async def _in_thread(self, clock: Clock | None, function: Callable[..., Any], *args: Any) -> Any:
        if self._threads is None:
            self._threads = Threads("planner", clock or SystemClock())
        return await self._threads.run(function, *args)


async def _ask(
    planner: Any, perceptions: Sequence[Perception], context: Context, in_thread: Callable[..., Any]
) -> Plan:
    """Ask one planner, however it is written, and check what it answers."""
    function = getattr(planner, "plan", planner)
    arguments = (perceptions, context) if _takes_two(function) else (perceptions,)
    target = function if inspect.isroutine(function) else type(function).__call__
    if inspect.iscoroutinefunction(target) or inspect.isasyncgenfunction(target):
        plan = function(*arguments)
    else:
        plan = await in_thread(context.clock, function, *arguments)
    if inspect.isawaitable(plan):
        plan = await plan
    if hasattr(plan, "__aiter__"):
        return await _begun(plan)
    if plan is not None and not isinstance(plan, Action):
        raise ContractError(
            f"{_name(planner)} must return an Action, a stream of calls or None, found {type(plan).__name__}"
        )
    return plan


class _StartedPlan:
    """A stream whose `first` item is there."""

    def __init__(self, first: Any, rest: AsyncIterator[Any]) -> None:
        self.first, self._rest = first, rest
        self._items = self._whole()

    def __aiter__(self) -> _StartedPlan:
        return self

    async def __anext__(self) -> Any:
        return await anext(self._items)

    async def aclose(self) -> None:
        await self._items.aclose()
        if callable(close := getattr(self._rest, "aclose", None)):
            await close()

    async def _whole(self) -> AsyncGenerator[Any]:
        try:
            yield self.first
            async for item in self._rest:
                yield item
        finally:
            if callable(close := getattr(self._rest, "aclose", None)):
                await close()


async def _begun(stream: Any) -> _StartedPlan | None:
    """The stream once its first call is there, None when it has none; until then another planner can take over."""
    calls = aiter(stream)
    try:
        return _StartedPlan(await anext(calls), calls)
    except StopAsyncIteration:
        return None


async def _put_off(plan: Any, run: RunContext | None) -> Action | None:
    """The action by which a run about something noticed is put off, as long as nothing but a makeshift came of it."""
    first = plan.first if isinstance(plan, _StartedPlan) else plan
    if not isinstance(first, Action) or not first.deferred or not first.next_look or run is None:
        return None
    if run.message is None or run.message.kind == "message" or (run.results and not _is_makeshift(run)):
        return None
    if isinstance(plan, _StartedPlan):
        await plan.aclose()
    return first


def _noticed(perceptions: Sequence[Perception], run: RunContext | None) -> Sequence[Perception]:
    """Return the noticed perceptions one by one, as they were before they became a run."""
    if run is None or run.message is None or not any(each.id == run.message.id for each in perceptions):
        return perceptions
    others = [each for each in perceptions if each.id != run.message.id]
    return [*(run.message.evidence or (run.message,)), *others]


def _is_makeshift(run: RunContext) -> bool:
    """Return whether those who stand in have decided on this run, so that it is over when they have nothing to add."""
    last = run.results[-1].action if run.results else None
    return last is not None and last.degraded


def _takes_two(function: Callable[..., Any]) -> bool:
    """Return whether a planner has room for the context."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(positional) > 1 or any(p.kind is p.VAR_POSITIONAL for p in parameters)


def _marked(plan: Action, reason: str | None) -> Action:
    if reason is None:
        return plan
    return replace(plan, degraded=True, reason="; ".join(part for part in (f"degraded: {reason}", plan.reason) if part))


def _first(failed: Exception | None, error: Exception) -> Exception:
    if failed is None:
        return error
    failed.add_note(f"and the next planner: {Fault.of(error).message}")
    return failed


def _name(planner: Any) -> str:
    return getattr(planner, "__name__", None) or type(planner).__name__
