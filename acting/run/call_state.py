"""The state of one call in its batch, from its arrival to its result: its checks, its attempts, what is told of it.

`start` runs the tool's coroutine up to its first wait without a task: most calls of a cheap tool end there, and cost no
task and no timer. A coroutine that waits goes on in `run/attempt`. The tool's value is made fit to be stored, and
compared with the schema that the tool promised and the value that the call expects.

A call that hooks or people have changed is checked like a new one; the original stays in its meta as `_original`. A
text that begins like a reference but was a plain value in the call that people saw is *escaped* in their changed call,
so that it stays a plain value.
"""

from __future__ import annotations

import asyncio
import threading
import types
from collections.abc import Awaitable, Callable, Container, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from datetime import datetime
from functools import lru_cache, partial
from itertools import chain
from math import inf
from typing import Any, Final

from msgspec.structs import asdict

from acting.graph.nodes import NONE, Node
from acting.run.checks import STRUCTURAL, fit, fit_in_slices, judged, structural, unfit
from acting.tooling.bound_tool import BoundTool, LatentTool
from acting.tooling.context import NO_QUESTION, Question, Scope, ToolContext, fault, fault_of
from acting.tooling.parameters import check_finite
from acting.tooling.registry import Catalog
from spar.checks import SCALARS, shorten
from spar.clock import Clock
from spar.data.blackboard import Board, LateCopy, message_of, with_copies, write_messages
from spar.data.json_safe import NotJsonError, is_flat, plain, shortened, text
from spar.data.json_safe.copier import LARGE, LEAST
from spar.data.json_safe.slices import copied_in_slices, is_large, weigh
from spar.data.paths import (
    MARK,
    Expression,
    Path,
    ValueTooLargeError,
    copied,
    distinct,
    parse_write,
    references,
    resolve,
)
from spar.errors import InDoubtError
from spar.events import CallProgressed, CallStarted
from spar.facts import AttemptStarted
from spar.types import SERVICE_KEYS, Call, CallResult, CallStatus, Fault, Message, replace
from spar.types.slotted import slotted

_UNKNOWN: Final[Any] = None  # until the call is prepared
_LARGEST_PROGRESS = 1 << 16  # bytes of a progress report as JSON; it is only shown
_NAMES = 1024  # characters of all names of a call together that need no cutting

_text_of = lru_cache(16)(datetime.isoformat)  # calls of a millisecond have the same time
_MAY_HAVE = " and may have had its effect: find out before repeating it"
_UNFIT = (ValueTooLargeError, NotJsonError)


def wire_of(call: Call, *, is_small: bool = False) -> dict[str, Any]:
    """Return the call as a JSON object, whatever its parameters are. `is_small` says that they are short scalars.

    A call of more than 1 MiB is shortened and marked with `_truncated`.
    """
    try:
        # Containers of other types than Python's own may be endless.
        is_own = is_small or (type(call.params) is dict and type(call.meta) is dict and type(call.after) is tuple)
        wire = call.to_wire() if is_own else asdict(call)
        if is_own and not call.meta and (is_small or is_flat(call.params)):
            names = call.id + call.tool + call.reason + (call.output_path or MARK).removeprefix(MARK)
            if call.instance or call.after:
                names += "".join((call.instance or "", *call.after))
            if len(names) <= _NAMES and names.isascii():  # others may hold a lone surrogate
                return wire
    except Exception:  # a program has put values of wrong types into the fields
        wire = asdict(call)
    short, is_cut = shortened(wire)
    if not isinstance(short, dict):
        short = {"_tool": plain(call.tool, 200), "_id": plain(call.id, 200), "…": short}
    return {**short, "_truncated": True} if is_cut else short


IN_A_ROW: Final = 32  # calls in a row in one task, before other tasks get their turn
_FAILED: Final = 8  # a failed call counts as so many calls: its stack, its fault and its line in the log take time
_VALUES: Final = 32  # values of a result that count as a call: it is copied, encoded and looked through

#: The state of the tool of a call: it does not run; it runs; its deadline has passed, or its batch is cancelled, so it
#: is cancelled; it ignored that and was left behind.
IDLE, RUNNING, LATE, LEFT = range(4)


@slotted
class Step(Node, eq=False, kw_only=True, gc=False):
    """A call in the graph: `call` as proposed, `params` with the values of its references, `arguments` as validated,
    `entry` its tool; `scope` is that of its batch, `run_id` the run of the call: for one that was parked, the run that
    parked it.

    `is_small` says that its parameters are short scalars, which can be stored as they are; `references` are the
    references in each parameter, if there are any; `target` is its output path. `late` holds its parameters and the
    copies of large values in them while these are being made; `passed` counts those of its `holds` that it has taken;
    `lines` are its lines in the order of the batch; `moment` counts the writes of the batch
    before its start. `draft` is the result while hooks look at it, `asking` the task that asks people its `question`,
    `reservation` its part of the budgets, `corrections` the changes by people and hooks, in order. `is_start_written`
    says that the journal has the entry about its start.
    """

    call: Call
    params: dict[str, Any]
    scope: Scope
    run_id: str | None = None
    entry: BoundTool = _UNKNOWN
    arguments: dict[str, Any] = _UNKNOWN
    late: tuple[dict[str, Any], list[LateCopy]] | None = None
    target: Expression | None = None
    references: Mapping[str, tuple[Expression, ...]] = NONE
    is_start_written: bool = False
    is_small: bool = True
    holds: tuple[Any, ...] = ()  # `run/holds`, which know this class
    lines: tuple[str, ...] = ()
    passed: int = 0
    moment: int = 0
    draft: CallResult | None = None
    result: CallResult | None = None
    question: Question = NO_QUESTION
    asking: asyncio.Task[Any] | None = None
    reservation: Any = None
    corrections: tuple[dict[str, Any], ...] = ()
    # Its attempts.
    messages: tuple[dict[str, Any], ...] = ()  # those that its `_scopes` select for the tool
    number: int = 0  # count of the attempts that have begun
    started_at: datetime | None = None
    began: float = 0.0  # of the first attempt, in monotonic seconds
    flight: int = IDLE
    deadline: float = inf  # monotonic seconds
    task: asyncio.Task[Any] | None = None
    started: Awaitable[Any] | None = None  # the tool, while it waits
    copying: Iterator[CallResult | None] | None = None  # the copy of the large value that it returned, in slices
    for_board: tuple[Any, Any] | None = None  # the large value that it returned, and a copy to be written

    @property
    def effect(self) -> str:
        """Return the effect of this call; the tool may derive it from the parameters."""
        return self.entry.effect or self.entry.effect_of(self.params)

    def shown(self) -> Call:
        """Return a copy of the call with the values of its references, for hooks and people."""
        return replace(self.call, params=copied(self.params))

    def prepare(
        self, catalog: Catalog, board: Board, wrong: str, known: Container[str]
    ) -> tuple[Sequence[Expression], Fault | None]:
        """Find the tool and check the parameters. Return the paths that the call reads, and its fault if it has one.

        Args: wrong: why the call could not be decoded, "" if it could; known: the ids of the calls before it.
        """
        call = self.call
        reads: Sequence[Expression] = ()
        if wrong:
            return (), fault("bad_call", wrong, call.tool)
        if call.id in known:
            return (), fault("duplicate_id", f"an earlier call has the id {shorten(call.id)} already", call.tool)
        try:
            entry = catalog.entries.get(call.tool)
            if call.output_path is not None:
                self.target = parse_write(call.output_path)
            if entry is None or entry.rules is not None or (call.meta and not SERVICE_KEYS.issuperset(call.meta)):
                self.call, entry = call, _ = catalog.bound(call)
                if call.output_path is not None:
                    self.target = parse_write(call.output_path)
            self.entry, fits = entry, False
            params = call.params
            if params:
                is_small, referring, fits = entry.parameters.inspect(params)
                if not is_small:
                    self.is_small = False
                    check_finite(call.tool, params)
                if referring:
                    by_name = references(params, referring)
                    reads = distinct(chain.from_iterable(by_name.values()))
                    if not reads:
                        self.params, fits = (params := resolve(params, board.look)), False
                    else:
                        self.references = by_name
                        if isinstance(entry, LatentTool) and not all(
                            board.knows(path, call.instance) for path in reads
                        ):
                            self.entry = catalog.rewritten(entry)
            if not fits and (params or not entry.parameters.is_empty):
                params = entry.parameters.validate(params, self.references if reads else ())
            self.arguments = params
        except ValueTooLargeError as error:
            self.call = replace(call, params=plain(call.params))  # shortened: the value may contain itself
            return (), structural(error, call.tool)
        except STRUCTURAL as error:
            return (), structural(error, call.tool)
        except Exception as error:  # an object of a foreign class among the parameters that cannot be read
            return (), fault("bad_call", f"it cannot be read: {type(error).__name__}", call.tool)
        detach = call.meta.get("_detach", entry.terms.detach) if call.meta else entry.terms.detach
        if detach and self.target is not None:
            sentence = "a detached call is not waited for and cannot write: drop '_outputPath' or '_detach'"
            return reads, fault("bad_call", sentence, call.tool)
        return reads, None

    def take_values(self, board: Board) -> Fault | None:
        """Read the values of its references now. Later writes do not change them. Return the fault if it has one.

        The copies of large values are only begun: then `late` holds them, and `take_late` is to be called.
        """
        call, by_name, scalars = self.call, self.references, self.entry.parameters.scalars
        copies: list[LateCopy] = []
        fits = self.arguments is call.params  # whether the others need no validation
        params = dict(call.params)
        try:
            for name in by_name if self.is_small else params:  # small ones are no containers, which are copied
                value, expressions = params[name], by_name.get(name)
                if type(value) is str and expressions:
                    params[name] = value = board.look_late(expressions[0], call.instance, copies)
                    fits = fits and type(value) is not str and type(value) in scalars[name]
                else:
                    look = partial(board.look_late, instance=call.instance, late=copies)
                    params[name], fits = resolve(value, look), fits and expressions is None
        except STRUCTURAL as error:
            return structural(error, call.tool)
        if copies:
            self.late = params, copies
            return None
        if fits:
            self.params = self.arguments = params
            return None
        return self._take(params)

    async def take_late(self, in_turn: Callable[[Callable[[], bool]], Awaitable[bool]]) -> Fault | None:
        """Make the copies of large values, and let others have their turn after each slice; stop when the call is over.
        Return the fault of the call if it has one."""
        assert self.late is not None
        params, copies = self.late
        for copy in copies:
            while not await in_turn(copy.advance):
                if self.result is not None:
                    return None
        self.late = None
        return self._take(with_copies(params))

    def _take(self, params: dict[str, Any]) -> Fault | None:
        self.params = params
        try:
            self.arguments = self.entry.parameters.validate(params)
            return None
        except STRUCTURAL as error:
            return structural(error, self.call.tool)

    def select_messages(self, board: Board) -> None:
        """Take the messages that the `_scopes` of the call select for its tool, as they are now."""
        scopes = self.call.meta.get("_scopes")
        if scopes and self.entry.wants_messages:
            self.messages = tuple(board.messages_of(scopes, self.call.instance))

    # -- its attempts

    def begin(self, runtime: Any, context: Context) -> CallResult | None:
        """Begin an attempt: run the tool up to its first wait, in the current task and in a copy of `context`. Return
        None if it waits (`started`), or has returned a large value (`copying`).

        Args: runtime: of the executor (`run/runtime`). Raises: only exceptions that end the process.
        """
        entry, scope, clock, arguments = self.entry, self.scope, runtime.clock, self.arguments
        now = clock.monotonic()
        at = runtime.date if now <= runtime.date_until else date_at(runtime, now)
        self.number += 1
        if self.number == 1:
            self.began, self.started_at = now, at
        elif runtime.journal is not None:
            fields: dict[str, Any] = {"session": scope.session, "cycle": scope.work, "call": self.call.id}
            fields |= {"attempt": self.number, "effect": self.effect, "allowed": "retry"}
            runtime.journal.append(AttemptStarted(**fields))
        deadline = now + entry.terms.timeout
        if runtime.wanted[CallStarted]:
            publish, about = runtime.publish, self.call
            publish(CallStarted(call=about, cycle_id=scope.cycle_id, run_id=self.run_id, attempt=self.number, at=at))
        if entry.context:
            arguments = {**arguments, entry.context: _tool_context(runtime, self, deadline)}
        drivers = runtime.drivers
        send = drivers.pop() if drivers else _new_driver()
        self.flight = RUNNING
        try:
            if entry.function is not None:
                coroutine = entry.function(**arguments)
            else:
                coroutine = entry.invoke(arguments, clock, self.call, self.messages)
            # A tool that never waits needs no timer: nothing could cancel it before its end.
            waits_for = (context := context.copy()).run(send, coroutine)
        except BaseException as error:
            ended: CallResult | None = self.broke(error, clock)
        else:
            if type(waits_for) is not tuple:
                self.started, self.deadline = _go_on(send.__self__, waits_for, context), deadline
                return None
            drivers.append(send)
            ended = self.returned(waits_for[0], clock, runtime.limits.largest_result)
        self.flight = IDLE
        return ended

    def returned(self, value: Any, clock: Clock, limit: int) -> CallResult | None:
        """Return the result for a value that the tool returned: failed if it cannot be stored, or is not as promised
        by the tool or expected by the call. None if it is large: then `copying` makes the result in slices."""
        kind = type(value)
        if value is not None and kind is not bool and not (kind is int and LEAST < value < LARGE):
            if kind not in SCALARS and is_large(value.data if kind is Message else value):
                self.copying = self._copied(value, clock, limit)
                return None
            try:
                value = fit(value, limit)
            except _UNFIT as error:
                return self.make_result("failed", clock, why=unfit(error, value, self.entry.name, limit))
        if self.entry.output is not None or self.call.meta:
            return self._judged(value, clock)
        return CallResult(self.call, "ok", "", value, None, self.number, self.started_at,
                          clock.monotonic() - self.began)  # fmt: skip

    def _copied(self, value: Any, clock: Clock, limit: int) -> Iterator[CallResult | None]:
        """Copy a large value, once more for the board; yield None after each slice, and last the result."""
        try:
            copy = yield from fit_in_slices(value, limit)
        except _UNFIT as error:
            yield self.make_result("failed", clock, why=unfit(error, value, self.entry.name, limit))
        else:
            if self.call.output_path is not None and type(copy) is not Message:
                self.for_board = copy, (yield from copied_in_slices(copy))
            yield self._judged(copy, clock)

    def _judged(self, value: Any, clock: Clock) -> CallResult:
        why, met = judged(value, self.call, self.entry)
        return self.make_result("ok" if why is None else "failed", clock, value if why is None else None, why, met)

    def broke(self, error: BaseException, clock: Clock) -> CallResult:
        """Return the result for an error that the tool raised. Raises: `error` if it ends the process."""
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise error
        if isinstance(error, asyncio.CancelledError):
            return self._broken_off("cancelled itself", f"tool {self.entry.name!r} cancelled itself", clock)
        status: CallStatus = "in_doubt" if isinstance(error, InDoubtError) else "failed"
        return self.make_result(status, clock, why=fault_of(error, self.entry.name))

    def cut(self, clock: Clock) -> CallResult:
        """Return the result of a cancelled call: its draft if there is one, else cancelled or in doubt.

        Where the tool has returned a large value, the rest of it is copied at once.
        """
        if self.draft is not None:
            return self.draft
        if self.copying is not None:
            copying, self.copying = self.copying, None
            return next(filter(None, copying))
        return self._broken_off("was cut off", "the run was cancelled", clock)

    def timed_out(self, clock: Clock) -> CallResult:
        """Return the result of a late call, whether its task has ended or was left behind."""
        name, is_once = self.entry.name, self.effect == "once"
        message = f"tool {name!r} did not end within {self.entry.terms.timeout:g} s{_MAY_HAVE if is_once else ''}"
        detail = {"in_doubt": True} if is_once else {}
        return self.make_result("timeout", clock, why=Fault("timeout", message, name, "act", not is_once, detail))

    def make_result(self, status: CallStatus, clock: Clock, value: Any = None, why: Fault | None = None,
              met: bool | None = None) -> CallResult:  # fmt: skip
        """Return the result of a call whose attempts are over now.

        Args: met: whether the value is as the call expects; None: the call expects nothing.
        """
        duration = clock.monotonic() - self.began if self.number else 0.0
        return CallResult(self.call, status, "", value, why, self.number, self.started_at, duration, met)

    def _broken_off(self, what: str, otherwise: str, clock: Clock) -> CallResult:
        """Return the result of a cancelled call: in doubt where it may have had an effect that must not be repeated.

        Args: what: what happened to the tool; otherwise: the sentence where there is no doubt.
        """
        name = self.entry.name if self.number else self.call.tool
        if self.flight != IDLE and self.effect == "once":
            return self.make_result("in_doubt", clock, why=fault("in_doubt", f"tool {name!r} {what}{_MAY_HAVE}", name))
        return self.make_result("cancelled", clock, why=fault("cancelled", otherwise, name))

    # -- its result

    def describe(self, paths: Sequence[Path] | None, method: str, value: Any, at: datetime) -> list[dict[str, Any]]:
        """Return the messages about a value of the call, with the fields that models do not see (`_call`, `_date`).

        Args: paths: where it was written; None: nowhere, or it is a message; method: how it was combined with the
            present value.
        """
        call = self.call
        if paths is not None:
            messages = write_messages(paths, value, call.instance)
        elif type(value) is Message:
            messages = [message_of(value.kind, value.data, value.instance)]
        else:
            id = call.id if call.id.isascii() else text(call.id)
            messages = [{"type": "data", "kind": "result", "data": {"call": id, "tool": call.tool, "output": value}}]
        wire = wire_of(call, is_small=self.is_small)
        for message in messages:
            message["_call"], message["_date"] = wire, _text_of(at)
            if method:
                message["_outputMethod"] = method
        return messages

    def failed(self, why: Fault) -> CallResult:
        return CallResult(self.call, "failed", fault=why)

    def denied(self, message: str, reason: str = "denied", kind: str = "denied") -> CallResult:
        return CallResult(self.call, "denied", reason, fault=fault(kind, message, self.call.tool))

    def in_doubt(self, why: str) -> CallResult:
        message = f"{why} and nobody knows what became of the call: find out"
        return CallResult(self.call, "in_doubt", fault=fault("in_doubt", message, self.call.tool))

    def skipped(self, why: str, reason: str = "dep_failed") -> CallResult:
        return CallResult(self.call, "skipped", reason, fault=fault(reason, why, self.call.tool))


@types.coroutine
def _drive() -> Generator[Any, Any, None]:
    """Run the coroutines that are sent, one after the other: yield what each waits for, and a tuple of its value.

    A value that is yielded costs a third of one that a coroutine raises at its end.
    """
    coroutine = yield
    while True:
        coroutine = yield ((yield from coroutine),)


def _new_driver() -> Any:
    """Return the `send` of a driver that waits for a coroutine."""
    driver = _drive()
    next(driver)
    return driver.send


@types.coroutine
def _go_on(driver: Generator[Any, Any, None], waits_for: Any, context: Context) -> Generator[Any, Any, Any]:
    """Run a coroutine that waits for the future `waits_for` to its end in `context`; return its value."""
    run = context.run
    while type(waits_for) is not tuple:
        try:
            sent = yield waits_for
        except GeneratorExit:
            run(driver.close)
            raise
        except BaseException as error:
            waits_for = run(driver.throw, error)
        else:
            waits_for = run(driver.send, sent)
    return waits_for[0]


def weight(ended: CallResult) -> int:
    """Return as how many calls in a row a call counts that has ended so."""
    if ended.status != "ok":
        return _FAILED
    value = ended.output.data if type(ended.output) is Message else ended.output
    return 1 if value is None else 1 + weigh(value, IN_A_ROW * _VALUES) // _VALUES


def date_at(runtime: Any, now: float) -> datetime:
    """Return the wall time at a recent monotonic time; all within a millisecond have the same."""
    if now > runtime.date_until:
        runtime.date, runtime.date_until = runtime.clock.now(), now + 0.001
    date: datetime = runtime.date
    return date


def _tool_context(runtime: Any, step: Step, deadline: float) -> ToolContext:
    """Return the context of the attempt that is about to begin."""
    loop, home, number = asyncio.get_running_loop(), threading.get_ident(), step.number

    def is_current() -> bool:
        return step.flight == RUNNING and step.number == number

    def publish(value: Any) -> None:
        if is_current() and runtime.wanted[CallProgressed]:
            runtime.tell_of(CallProgressed, step, progress=plain(value, _LARGEST_PROGRESS))

    def progress(value: Any) -> None:
        if threading.get_ident() == home:
            publish(value)
            return
        with suppress(RuntimeError):  # the event loop has closed
            loop.call_soon_threadsafe(publish, value)

    return ToolContext(
        step.call, runtime.agent, deadline if deadline < inf else None, number, f"{step.scope.key}/{step.call.id}",
        progress, step.entry.schema, step.messages, runtime.next_fence(), step.scope.session, step.question.binds,
        step.run_id, is_current,
    )  # fmt: skip
