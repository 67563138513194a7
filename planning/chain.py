"""A chain of planners: the first one that decides counts.

If a planner raises, or the agent has switched it off (`degrade`), the next one is asked, and the action says
`degraded`. If one raised and no other decided, its error is raised: a plan that failed is not the same as nothing to
do. The stream of a planner is passed on as a stream once its first call is there.

One planner may be the main one. Its decision is final: planners after it only stand in for it, and their actions are
degraded. Planners before it decide by themselves, and their actions are not degraded.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import Any

from spar.clock import Clock, SystemClock
from spar.errors import ConfigError, ContractError, TransientError
from spar.ports.any_part import has
from spar.ports.planners import AnswerTo, OptionalPlanner
from spar.protocols import Ask, Context, Host, Lent, ModelQuestion, RunContext, WrittenCall
from spar.records.run_options import RunOptions
from spar.threads import Threads, Users
from spar.types import Action, Fault, Perception, replace

#: Seconds until a run that waits for the main planner asks again.
_LOOK_AGAIN = 30.0

Plan = Action | AsyncIterator[Any] | None


class Chain:
    """PLAN by the first of several planners that decides. It opens and closes those that are context managers.

    Args:
        planners: objects with `plan` or functions, async or plain, with or without the parameter for the context.
        main: the index (from 0) of the main planner. `degrade` switches it off, and its decision counts even if it is
            to do nothing. None: `degrade` switches the first one off, and no decision to do nothing is final.
    Raises: ConfigError for no planners, or for an index without a planner.
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
        self._users = Users()
        self._threads: Threads | None = None
        self._ask: Ask | None = None

    def written_calls(self) -> Iterator[WrittenCall]:
        """Yield the calls that are written in the planners' configuration."""
        for planner in self._with(OptionalPlanner.written_calls):
            yield from planner.written_calls()

    def _with(self, *members: Any) -> list[Any]:
        """Return the planners that have these members of `OptionalPlanner`."""
        return [planner for planner in self.planners if has(planner, *members)]

    async def check_options(self, options: RunOptions) -> None:
        """Raise ValueError for options of a run that the planner with a model cannot apply."""
        for planner in self.planners:
            if callable(check := getattr(planner, "check_options", None)):
                await check(options)
                return
        raise ValueError(f"option {next(iter(options.given))} means nothing here: no planner asks a model")

    @property
    def allowed_models(self) -> tuple[str, ...]:
        """Return the names of the models that people may choose from: those of the planner with a model."""
        choices = (getattr(planner, "allowed_models", ()) for planner in self.planners)
        return next((tuple(models) for models in choices if models), ())

    @property
    def reach(self) -> float:
        """Return the seconds after which an earlier decision has no effect on any of the planners."""
        planners = self._with(OptionalPlanner.reach, OptionalPlanner.recall)
        return max((planner.reach for planner in planners), default=0.0)

    def recall(self, rules: Collection[str], perceptions: Sequence[Perception], clock: Clock) -> None:
        """Tell the planners which rules fired earlier (`spar.ports.planners.OptionalPlanner.reach`)."""
        for planner in self._with(OptionalPlanner.reach, OptionalPlanner.recall):
            planner.recall(rules, perceptions, clock)

    def answer_from(self, answer_to: AnswerTo, *, is_asked: bool = False) -> None:
        """Give the planners with a model these answers (`spar.ports.planners.OptionalPlanner.answer_from`)."""
        for planner in self._with(OptionalPlanner.answer_from):
            planner.answer_from(answer_to, is_asked=is_asked)

    def degrade(self, reason: str) -> None:
        """Skip the main planner (or the first one) from the next plan on, and mark actions as degraded. Idempotent.

        A single planner is not skipped, since no other could stand in; its actions are marked.
        """
        self.degraded_reason = reason

    def restore(self) -> None:
        """Ask the skipped planner again. Idempotent."""
        self.degraded_reason = None

    async def plan(self, perceptions: Sequence[Perception], context: Context | None = None) -> Plan:
        """Return the first decision: an action with calls or an answer, or a stream of calls that has begun.

        If the main planner postpones noticed perceptions, the others may decide on them; a message of people waits for
        the main planner. If no planner decides, the result is the first action without calls (it has a reason or the
        time of the next look), else None; but a run waits for its main planner (`Action.deferred`).

        Raises: the error of the first planner that raised, if no other one decided.
        """
        context = context or Context(agent="", cycle_id="")
        reason = self.degraded_reason if self._main is None else None
        first_error: Exception | None = None
        first_remark: Action | None = None
        postponed: Action | None = None
        for number, planner in enumerate(self.planners):
            if self.degraded_reason is not None and number == (self._main or 0) and len(self.planners) > 1:
                reason = self.degraded_reason
                continue
            try:
                plan = await _ask(planner, perceptions, context, self._in_thread)
            except Exception as error:
                reason = reason or f"{_name(planner)} failed: {Fault.of(error).message}"
                first_error = _add_error(first_error, error)
                continue
            if number == self._main:
                if (postponed := await _postponed_action(plan, context.run)) is None:
                    return plan
                reason, perceptions = postponed.deferred, _noticed_perceptions(perceptions, context.run)
                continue
            if not isinstance(plan, Action):
                if plan is None:
                    continue
                return plan
            if plan.calls or plan.output is not None:
                return _mark_degraded(plan, reason)
            first_remark = first_remark or _mark_degraded(plan, reason)
        if postponed is not None and (context.run is None or not _is_makeshift(context.run)):
            return postponed
        if first_error is not None:
            raise first_error
        if self._main is not None and reason is not None and context.run is not None and not _is_makeshift(context.run):
            return Action(run_id=context.run.id, deferred=f"degraded: {reason}", next_look=_LOOK_AGAIN)
        return first_remark

    def snapshot(self) -> dict[str, Any]:
        """Return the reason why the chain is degraded (None: it is not) and the snapshots of the planners."""
        snapshots = {_name(planner): planner.snapshot() for planner in self.planners if hasattr(planner, "snapshot")}
        return {"degraded": self.degraded_reason, "planners": snapshots}

    def attach(self, host: Host) -> None:
        """Pass the agent's host to every planner with `attach`."""
        for planner in self.planners:
            if callable(attach := getattr(planner, "attach", None)):
                attach(host)

    def lends(self) -> Lent:
        """Return all that its planners lend; of two activities with the same name the first one counts."""
        loans = [planner.lends() for planner in self._with(OptionalPlanner.lends)]
        activities = {name: handler for loan in reversed(loans) for name, handler in loan.activities.items()}
        self._ask = next((loan.ask for loan in loans if loan.ask is not None), None)
        ask = None if self._ask is None else self._answer
        return Lent(tuple(tool for loan in loans for tool in loan.tools), activities, ask)

    async def _answer(self, question: ModelQuestion) -> Any:
        """Ask the first planner that lends a model. Raises: TransientError while degraded; the errors of the model."""
        if (reason := self.degraded_reason) is not None:
            raise TransientError(f"no model is asked: {reason}")
        assert self._ask is not None
        return await self._ask(question)

    async def __aenter__(self) -> Chain:
        await self._users.enter(self._open)
        return self

    async def _open(self) -> None:
        async with AsyncExitStack() as opening:
            for planner in self.planners:
                if hasattr(planner, "__aenter__"):
                    await opening.enter_async_context(planner)
            self._opened = opening.pop_all()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._users.leave(partial(self._opened.__aexit__, kind, error, traceback))

    async def _in_thread(self, clock: Clock | None, function: Callable[..., Any], *args: Any) -> Any:
        if self._threads is None:
            self._threads = Threads("planner", clock or SystemClock())
        return await self._threads.run(function, *args)


async def _ask(
    planner: Any, perceptions: Sequence[Perception], context: Context, in_thread: Callable[..., Any]
) -> Plan:
    """Ask one planner, a function or an object, async or plain, and check the type of its plan."""
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
        return await _start(plan)
    if plan is not None and not isinstance(plan, Action):
        raise ContractError(
            f"{_name(planner)} must return an Action, a stream of calls or None, found {type(plan).__name__}"
        )
    return plan


class _StartedPlan:
    """A stream with its `first` item already read."""

    def __init__(self, first: Any, remaining: AsyncGenerator[Any]) -> None:
        self.first, self._remaining, self._is_given = first, remaining, False
        self.aclose = remaining.aclose

    def __aiter__(self) -> _StartedPlan:
        return self

    async def __anext__(self) -> Any:
        if self._is_given:
            return await anext(self._remaining)
        self._is_given = True
        return self.first


async def _start(stream: Any) -> _StartedPlan | None:
    """Return the stream after its first call; None if it has none. Before that, another planner can stand in."""
    items = _closing(stream)
    try:
        return _StartedPlan(await anext(items), items)
    except StopAsyncIteration:
        return None


async def _closing(stream: Any) -> AsyncGenerator[Any]:
    """Yield the items of a stream, and close it at the end."""
    try:
        async for item in stream:
            yield item
    finally:
        if callable(close := getattr(stream, "aclose", None)):
            await close()


async def _postponed_action(plan: Any, run: RunContext | None) -> Action | None:
    """Return the action that postpones a run about a noticed perception, before the main planner has decided in it.

    Returns: None for other plans, for messages, and for a run in which the main planner has decided.
    """
    first = plan.first if isinstance(plan, _StartedPlan) else plan
    if not isinstance(first, Action) or not first.deferred or not first.next_look or run is None:
        return None
    if run.message is None or run.message.kind == "message" or (run.results and not _is_makeshift(run)):
        return None
    if isinstance(plan, _StartedPlan):
        await plan.aclose()
    return first


def _noticed_perceptions(perceptions: Sequence[Perception], run: RunContext | None) -> Sequence[Perception]:
    """Return the perceptions, with the message of a run replaced by the noticed perceptions that it was made from."""
    if run is None or run.message is None or not any(perception.id == run.message.id for perception in perceptions):
        return perceptions
    others = [perception for perception in perceptions if perception.id != run.message.id]
    return [*(run.message.evidence or (run.message,)), *others]


def _is_makeshift(run: RunContext) -> bool:
    """Return whether the last action of this run is degraded. Then it ends when the planners have nothing to add."""
    last = run.results[-1].action if run.results else None
    return last is not None and last.degraded


def _takes_two(function: Callable[..., Any]) -> bool:
    """Return whether a planner has a second parameter, for the context."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(positional) > 1 or any(p.kind is p.VAR_POSITIONAL for p in parameters)


def _mark_degraded(plan: Action, reason: str | None) -> Action:
    if reason is None:
        return plan
    return replace(plan, degraded=True, reason="; ".join(part for part in (f"degraded: {reason}", plan.reason) if part))


def _add_error(failed: Exception | None, error: Exception) -> Exception:
    if failed is None:
        return error
    failed.add_note(f"and the next planner: {Fault.of(error).message}")
    return failed


def _name(planner: Any) -> str:
    return getattr(planner, "__name__", None) or type(planner).__name__
