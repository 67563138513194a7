"""The executor of call graphs: the standard act module, usable on its own.

    result = await Executor([fetch, save]).run([
        Call("fetch", {"url": "…"}, output_path="†state.page"),
        {"_tool": "save", "text": "†state.page.body"},
    ])

The executor holds the tools and the state that all batches share; `run/batch` carries out one batch of calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from math import isnan
from typing import Any, Literal

from acting.approvals.policy import trust_in
from acting.approvals.queue import ApprovalQueue
from acting.repetition import with_notice
from acting.run.batch import Batch
from acting.run.checks import checked
from acting.run.holds import Confirm
from acting.run.order import Spending
from acting.run.parked import Approvals
from acting.run.results import Replay
from acting.run.runtime import Limits, Runtime
from acting.tooling.context import EarlierCalls, Scope
from acting.tooling.parameters import ParametersError, settings_of
from acting.tooling.registry import Catalog
from spar.clock import Clock, SystemClock
from spar.data.blackboard import Board, LateCopy
from spar.data.bounded import BoundedDict
from spar.data.json_safe import UNBOUNDED, NotJsonError
from spar.data.json_safe.slices import is_large, whole_in_slices
from spar.data.paths import MISSING, ValueTooLargeError, marked
from spar.errors import ConfigError
from spar.events import RepetitionNoticed
from spar.facts import Planned
from spar.ids import new_id
from spar.protocols import CallJournal, Context, Host, Lent
from spar.threads import Users
from spar.types import ASKED, Action, ActionResult, Call, Trust, copy_with, trust_of

_NO_ACTION = Action()
_KEPT_INTERRUPTED = 16
_MOST_STEERED = 1_000  # runs whose next batch must start no call; the oldest are dropped

_STEERED = "not started because of a new message; it may be issued again"


class Executor:
    """Runs calls against `tools`: functions marked by `@tool`, plain typed functions, tool objects.

    Args:
        tools: what can be called: functions, objects, schemas and sources; of two with one name the later one counts.
        activities: by name, `handler(call, tool, context)` for tools that are schemas: the call with its values, the
            tool's schema, the messages of its scopes. `_delegate` and `_latent` carry out what needs a model.
        strict: a message that a tool returns fails its call if it holds what the call did not say it writes.
        fallback: "wait": a read `†a || †b` waits for earlier calls that write a; "race": it takes what is there.
        approval_timeout: seconds from asking to denial; None waits as long as the run lasts.
        events: anything with `publish(event)`; hooks: a `spar.hooks.Hooks`. Given by `attach` when left out.
        settings: `max_parallel` (64 calls at once in a run), `largest_result` (16 MiB as JSON; a call that returns more
            fails), `grace` (0.5 s between cancelling and leaving behind), `drain` (5 s for detached calls on close),
            `max_detached` (64). With `approval`, a mapping (`hold`, `expires`, `untrusted`, `max_pending`, `rules`),
            people are asked at `approvals`.

    Raises: ConfigError for a tool or a value that cannot be used, and for what is not supported yet.
    """

    def __init__(
        self,
        tools: Iterable[Any] = (),
        *,
        activities: Mapping[str, Any] | None = None,
        strict: bool = False,
        fallback: Literal["wait", "race"] = "wait",
        approval_timeout: float | None = None,
        events: Any = None,
        hooks: Any = None,
        journal: Any = None,
        clock: Clock | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        _check_given(journal, fallback, approval_timeout)
        self._given = {"clock": clock, "events": events, "hooks": hooks, "journal": journal}
        given = dict(settings or {})
        approval = given.pop("approval", None)
        self._runtime = runtime = Runtime(
            Catalog(tools, activities), clock or SystemClock(), events, hooks, settings_of(Limits, given, "acting"),
            approval_timeout,
        )  # fmt: skip
        runtime.fallback, runtime.is_strict = fallback, strict
        runtime.journal = journal
        if approval is not None:
            check = partial(checked, catalog=runtime.catalog)
            runtime.approvals = approvals = Approvals(
                approval, runtime.catalog.parts, check, runtime.clock, runtime.tell
            )
            runtime.policy = approvals.policy
            approvals.is_at_work = lambda cycle_id: any(batch.scope.cycle_id == cycle_id for batch in self._batches)
            # What only an executor that asks people offers to its agent.
            self.resumable, self.waiting_runs = approvals.resumable, approvals.waiting_runs
            self.close_questions, self.end_conversation = approvals.close_questions, approvals.end_conversation
            self.hold_questions, self.take_over = approvals.queue.hold_questions, approvals.take_over
            self.forget_session = approvals.queue.forget_session
        self._batches: set[Batch] = set()
        self._interrupted: BoundedDict[str, ActionResult] = BoundedDict(_KEPT_INTERRUPTED)
        self._steered: BoundedDict[str, None] = BoundedDict(_MOST_STEERED)
        self._opened: AsyncExitStack | None = None
        self._users = Users()
        #: The approver for `act`, which has no argument for it.
        self.confirm: Confirm | None = None

    @property
    def tools(self) -> Catalog:
        """Return the tools by name; planners need `executor.tools["note"].schema`."""
        return self._runtime.catalog

    def objection(self, tool: str, params: Mapping[str, Any], unresolved: Collection[str] = ()) -> str:
        """Return why a tool cannot be called with these parameters, "" if it can or is not offered (yet).

        Args: unresolved: the names of parameters whose values are not known yet; only the names are judged.
        """
        entry = self._runtime.catalog.entries.get(tool)
        if entry is None:
            return ""
        try:
            entry.parameters.validate({**params, **dict.fromkeys(unresolved, "")}, unresolved)
        except ParametersError as error:
            return str(error)
        return ""

    def ruling(self, call: Call, trust: Trust, session: str) -> tuple[str, str]:
        """Return "auto", "ask" or "deny" and why, as the policy decides about a call; "" for an unknown tool.

        Nobody is asked. Hooks, budgets and what the call reads from others are not looked at.
        """
        if (entry := self._runtime.catalog.entries.get(call.tool)) is None:
            return "", f"there is no tool {call.tool!r}"
        if ASKED in call.meta:
            return "ask", str(call.meta[ASKED])
        unresolved = [name for name, value in call.params.items() if marked(value)]
        effect = entry.effect_before(call.params, unresolved)
        ruling = self._runtime.policy.decide(entry.terms, effect, call, call.params, trust_in(call, trust), session)
        return ruling.decision, ruling.why

    @property
    def keeps_journal(self) -> bool:
        """Return whether the executor writes its calls to a journal itself."""
        return self._runtime.journal is not None

    @property
    def approvals(self) -> ApprovalQueue | None:
        """Return the queue of approvals; None when only `confirm` can be asked."""
        return self._runtime.approvals.queue if self._runtime.approvals is not None else None

    async def abandon(self, run_id: str) -> None:
        """Drop the parked calls of a run; its questions become void."""
        self._steered.pop(run_id, None)
        if self._runtime.approvals is not None:
            await self._runtime.approvals.abandon(run_id)

    def steer(self, run_id: str) -> None:
        """Start no more calls of a run's current batch, or else of its next one, because a new message has arrived.

        Running calls finish, and denied or failed calls stay so. Every other call is skipped with the reason `steered`
        when it would start, and questions to people about it become void. Calls that an earlier cycle parked are not
        affected. Call this in the event loop's thread, at any time.
        """
        batches = [batch for batch in self._batches if batch.scope.run_id == run_id]
        for batch in batches:
            batch.stop(_STEERED, "steered")
        if not batches:
            self._steered[run_id] = None

    def attach(self, host: Host) -> None:
        """Use the agent's clock, events, hooks and journal where the constructor got none; attach the tools too."""
        runtime = self._runtime
        runtime.agent = host.agent
        runtime.keep_time(self._given["clock"] or host.clock)
        runtime.tell_to(host.events if self._given["events"] is None else runtime.events)
        runtime.hooks = host.hooks if self._given["hooks"] is None else runtime.hooks
        runtime.journal = host.journal if self._given["journal"] is None else runtime.journal
        runtime.acquire = host.acquire
        runtime.spending = Spending(host.budgets) if host.budgets is not None else None
        if runtime.approvals is not None:
            runtime.approvals.attach(host, runtime.clock)
        for part in self.tools.parts:
            if hasattr(part, "attach"):
                part.attach(host)

    def borrow(self, lent: Lent) -> None:
        """Take the tools and activities that a planner lends, for calls that need a model."""
        self.tools.borrow(lent)

    async def __aenter__(self) -> Executor:
        await self._users.enter(self._open, self._open_again)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._users.leave(self.aclose)

    async def _open(self) -> None:
        async with AsyncExitStack() as stack:
            for part in self.tools.parts:
                if hasattr(part, "__aenter__"):
                    await stack.enter_async_context(part)
            self.tools.refresh()
            await self.tools.compile(self._runtime.clock)
            if self._runtime.approvals is not None:
                stack.push_async_callback(self._runtime.approvals.queue.close)
                await self._runtime.approvals.open()
            self._opened = stack.pop_all()

    async def _open_again(self) -> None:
        """Read the questions again, since `attach` may have changed the store."""
        if self._runtime.approvals is not None:
            await self._runtime.approvals.open()

    async def aclose(self, deadline: float | None = None) -> None:
        """Wait `deadline` seconds for detached calls (None: the setting `drain`), then close the tools."""
        self._users.count = 0
        opened, self._opened = self._opened, None
        try:
            await self._runtime.close(deadline)
        finally:
            if opened is not None:
                await opened.aclose()

    async def run(
        self,
        calls: Any,
        *,
        context: Iterable[Mapping[str, Any]] = (),
        state: Mapping[str, Any] | None = None,
        confirm: Confirm | None = None,
        resume: ActionResult | None = None,
    ) -> ActionResult:
        """Execute an action, a list or a stream of calls, as `Call`s or wire dicts.

        One result for each call, in the order of arrival. A failing call, tool or stream is told in the result.
        `resume` is what `interrupted` said of an earlier run of the same calls (by their ids), or the journal's own
        `interrupted` of an earlier process's: what had ended there is not done again, what was cut off begins again,
        and what is in doubt stays so.
        Raises: CancelledError when cancelled, after everything it started has ended or was left behind (what had
        become of the calls is then at `interrupted`); TypeError for a context or state that is none.
        """
        if resume is not None and not isinstance(resume, ActionResult):
            raise TypeError(f"resume must be the ActionResult of the run that was cut, found {type(resume).__name__}")
        if state is not None and not isinstance(state, Mapping):
            raise TypeError(f"state must be an object, found {type(state).__name__}")
        key = resume.action.id if resume is not None and resume.action is not None else ""
        key = key or (calls.id if isinstance(calls, Action) else new_id())
        action = calls if isinstance(calls, Action) else copy_with(_NO_ACTION, id=key)
        replay = None if resume is None else Replay.of(resume)
        messages = tuple(context) if replay is None else (*context, *replay.messages)
        board = Board(messages, state)
        scope = Scope(key, trust=trust_of(action) if action is calls else "trusted")
        if resume is not None and self._runtime.approvals is not None:
            self._runtime.approvals.taint.recall(scope, (resume,), self.tools.get)
        return await self._run_batch(action, _items(calls), board, confirm, scope, replay, EarlierCalls(messages))

    async def act(self, action: Action, context: Context | None = None) -> ActionResult:
        """ACT: execute the action's calls with the data of the run so far."""
        return await self.act_stream(action, action.calls, context)

    async def act_stream(
        self, action: Action, calls: AsyncIterator[Call] | Iterable[Call], context: Context | None = None
    ) -> ActionResult:
        """ACT while the plan is still being written: execute the calls of a stream as they arrive."""
        run = context.run if context is not None else None
        run_id = run.id if run is not None else action.run_id
        trust = trust_of(action)
        if run is not None:
            if run.results and not self._runtime.guard.knows(run.id):  # an earlier process made them
                self._runtime.guard.recall(run.id, run.results)
                if self._runtime.approvals is not None:
                    self._runtime.approvals.taint.recall(Scope("", run_id=run.id), run.results, self.tools.get)
            if action.trust is None and run.trust == "untrusted":
                trust = "untrusted"
        is_empty = calls is action.calls and not calls
        if self._runtime.approvals is not None and run_id is not None and (trust == "untrusted" or not is_empty):
            trust = self._runtime.approvals.taint.of_plan(action.trust, trust, run_id)
        scope = Scope(action.id, run_id=run_id, trust=trust)
        if context is not None:
            scope = Scope(action.id, context.cycle_id, context.session, run_id, trust)
        known = context.known if context is not None else ()  # as the journal has them
        replay = Replay({result.call.id: result for result in known}) if known else None
        messages, results = (run.messages, run.results) if run is not None else ((), ())
        if is_empty and replay is None and scope.session not in self._runtime.late.sessions:
            if run_id is not None:
                self._steered.pop(run_id, None)
            if (journal := self._runtime.journal) is not None:  # an answer, for example, is journalled all the same
                journal.append(Planned(session=scope.session, cycle=scope.cycle_id or scope.key, action=action))
            return ActionResult(action, state=(await self._board_of(messages)).state if messages else {})
        earlier = EarlierCalls(messages, results)
        board = await self._board_of(messages)
        return await self._run_batch(action, calls, board, self.confirm, scope, replay, earlier)

    async def _board_of(self, messages: Iterable[Mapping[str, Any]]) -> Board:
        """Return the board of the messages of a run; large ones are copied in slices."""
        board = Board()
        for message in messages:
            late = LateCopy(whole_in_slices(message, UNBOUNDED)) if is_large(message) else None
            with suppress(NotJsonError, ValueTooLargeError):  # `add` shortens it then
                while late is not None and not await self._runtime.in_turn(late.advance):
                    pass
            if late is None or late.value is MISSING:
                board.add(message)
            else:
                board.add(late.value, is_own=True)
        return board

    def interrupted(self, action_id: str) -> ActionResult | None:
        """Return the results of a cancelled action, once; only the last few are stored."""
        for batch in self._batches:
            if batch.action.id == action_id:  # its tools ignore their cancellation: do not wait for them any longer
                batch.give_up()
                return batch.result()
        return self._interrupted.pop(action_id, None)

    def snapshot(self) -> dict[str, Any]:
        """Return the state for people: the calls that run or wait, and those that outlived their batch."""
        open_steps = [step for batch in list(self._batches) for step in batch.steps if step.result is None]
        now = self._runtime.clock.monotonic()
        return {
            "tools": list(self.tools),
            "running": [
                {"id": step.call.id, "tool": step.call.tool, "seconds": now - step.began}
                for step in open_steps
                if step.number
            ],
            "waiting": [
                {"id": step.call.id, "tool": step.call.tool}
                for step in open_steps
                if not step.number and step.asking is None  # approvals list those that people are asked about
            ],
            "parts": {part.name: part.snapshot() for part in self.tools.parts if hasattr(part, "snapshot")},
            "refused": dict(self.tools.refused),
            "detached": len(self._runtime.detached),
            "left_behind": len(self._runtime.outside.left_behind),
        }

    async def _run_batch(
        self,
        action: Action,
        calls: Any,
        board: Board,
        confirm: Confirm | None,
        scope: Scope,
        replay: Replay | None,
        earlier: Callable[[str], bool | None],
    ) -> ActionResult:
        batch = Batch(self._runtime, action, board, confirm, scope, replay, earlier)
        self._batches.add(batch)
        if self._steered and scope.run_id is not None and scope.run_id in self._steered:
            del self._steered[scope.run_id]
            batch.stop(_STEERED, "steered")
        try:
            await batch.run(calls)
        except BaseException as error:
            try:
                await batch.abort()
            finally:
                if isinstance(error, asyncio.CancelledError):
                    self._interrupted[action.id] = batch.result()
            raise
        finally:
            self._batches.discard(batch)
            if self._runtime.approvals is not None:
                self._runtime.approvals.taint.of.pop(scope.key, None)
        result = batch.result()
        if scope.run_id is None or action.output is not None:  # an answer ends the run anyway
            return result
        ended = ((step.params, step.result) for step in batch.steps if step.result is not None)
        notice = self._runtime.guard.note(scope.run_id, ended)
        if notice is not None:
            self._runtime.tell(RepetitionNoticed, run_id=scope.run_id, message=notice.message, times=notice.times)
        return with_notice(result, notice)


def _items(calls: Any) -> Any:
    """Return the calls given to `run` as an iterable; a single item is a list of one."""
    if isinstance(calls, Action):
        return calls.calls
    try:
        is_one = isinstance(calls, (Call, Mapping, str, bytes)) or not (
            hasattr(calls, "__aiter__") or hasattr(calls, "__iter__")
        )
    except Exception:  # an object that cannot even be asked
        is_one = True
    return [calls] if is_one else calls


def _check_given(journal: Any, fallback: str, approval_timeout: float | None) -> None:
    """Check arguments of an executor. Raises: ConfigError for one that cannot be used."""
    if journal is not None and not isinstance(journal, CallJournal):
        expected = "one such as an open memory's: Executor(journal=memory.journal)"
        raise ConfigError(f"journal is {journal!r:.100}, expected {expected}", path=("journal",))
    if fallback not in ("wait", "race"):
        raise ConfigError(f"fallback is {fallback!r}, expected 'wait' or 'race'", path=("fallback",))
    if approval_timeout is not None and (isnan(approval_timeout) or approval_timeout <= 0):
        sentence = f"approval_timeout is {approval_timeout!r}, expected seconds above 0"
        raise ConfigError(sentence, path=("approval_timeout",))
