"""The state of one call in its batch, from its arrival to its result; checks whether the call can run.

A call that hooks or people have changed is checked like a new one; the original stays in its meta as `_original`. A
text that begins like a reference but was a plain value in the call that people saw is *escaped* in their changed call,
so that it stays a plain value.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any, Final

from msgspec.structs import asdict

from acting.calls import NO_QUESTION, Question, Scope, fault
from acting.graph.nodes import NOBODY, Node
from acting.run.call.prepare import BadCallError, UnknownToolError, bound, decode, rewritten
from acting.tooling.bound_tool import BoundTool, LatentTool
from acting.tooling.parameters import ParametersError, check_finite
from acting.tooling.registry import Catalog
from spar.checks import SCALARS, shorten
from spar.data.blackboard import Board, LateCopy, with_copies
from spar.data.json_safe import is_flat, plain, shortened
from spar.data.paths import (
    MARK,
    BadReferenceError,
    Expression,
    ValueTooLargeError,
    copied,
    distinct,
    escape,
    marked,
    parse_write,
    references,
    resolve,
)
from spar.ports.budgets import CallReservation
from spar.types import SERVICE_KEYS, Call, CallResult, Fault, replace, without_service_keys

_UNKNOWN: Final[Any] = None  # until the call is prepared
_SHORT, _LARGE = 256, 1 << 63  # most characters of a short text; bound of integers that 64 bits hold
_NAMES = 1024  # characters of all names of a call together that need no cutting


def _inspect(params: dict[str, Any]) -> tuple[bool, bool]:
    """Return whether all parameters are short scalars, which can be stored as they are, and whether any may be a
    reference."""
    is_small, may_refer = True, False
    for value in params.values():
        kind = type(value)
        if kind is str:
            if value[:1] == MARK:
                may_refer = True
            if len(value) > _SHORT or not (value.isascii() or value.isprintable()):  # a lone surrogate is not printable
                is_small = False
        elif kind is int:
            if not -_LARGE < value < _LARGE:
                is_small = False
        elif kind is float:
            is_small = False
        elif kind not in SCALARS:
            is_small, may_refer = False, True
    return is_small, may_refer


#: The errors of a call that cannot run.
STRUCTURAL = (BadReferenceError, ValueTooLargeError, ParametersError, BadCallError)


_KINDS: dict[type[Exception], str] = {
    BadReferenceError: "bad_reference",
    ParametersError: "bad_parameters",
    UnknownToolError: "unknown_tool",
}


def _structural(error: Exception, tool: str) -> Fault:
    """Return the fault for an error in `STRUCTURAL`."""
    return fault(_KINDS.get(type(error), "bad_call"), str(error), tool)


def objection_to(call: Call, entry: BoundTool, target: Expression | None) -> Fault | None:
    """Return the fault of a detached call that has an output path; None for any other call."""
    if target is not None and (entry.terms.detach or call.meta) and entry.detaches(call):
        message = "a detached call is not waited for and cannot write: drop '_outputPath' or '_detach'"
        return fault("bad_call", message, call.tool)
    return None


def wire_of(call: Call, *, is_small: bool = False) -> dict[str, Any]:
    """Return the call as a JSON object, whatever its parameters are. `is_small` says that they are short scalars.

    A call of more than 1 MiB is shortened and marked with `_truncated`.
    """
    try:
        # Containers of other types than Python's own may be endless.
        is_own = is_small or (type(call.params) is dict and type(call.meta) is dict and type(call.after) is tuple)
        wire = call.to_wire() if is_own else asdict(call)
        if is_own and not call.meta and (is_small or is_flat(call.params)):
            names = "".join((call.id, call.tool, call.output_path or "", call.instance or "", call.reason, *call.after))
            if len(names) <= _NAMES and (names.isascii() or names.isprintable()):  # a lone surrogate is neither
                return wire
    except Exception:  # a program has put values of wrong types into the fields
        wire = asdict(call)
    short, is_cut = shortened(wire)
    if not isinstance(short, dict):
        short = {"_tool": plain(call.tool, 200), "_id": plain(call.id, 200), "…": short}
    return {**short, "_truncated": True} if is_cut else short


#: The state of the tool of a call: it does not run; it runs; its deadline has passed, or its batch is cancelled, so it
#: is cancelled; it ignored that and was left behind.
IDLE, RUNNING, LATE, LEFT = range(4)


class Step(Node, eq=False, kw_only=True):
    """A call in the graph: `call` as proposed, `params` with the values of its references, `arguments` as validated,
    `entry` its tool; `scope` is that of its batch.

    `is_small` says that its parameters are short scalars, which can be stored as they are; `references` are the
    references in each parameter, if there are any; `target` is its output path. `late` holds its parameters and the
    copies of large values in them while these are being made; `passed` counts those of its `holds` that it has taken;
    `lines` are its lines in the order of the batch (None: not known yet); `moment` is that of its start, as `results`
    counts them. `draft` is the result while hooks look at it. `asking` is the task that asks people its `question`,
    `reservation` its part of the budgets, `corrections` the changes by people and hooks, in order. `is_start_written`
    says that the journal has the entry about its start.
    """

    call: Call
    params: dict[str, Any]
    scope: Scope
    entry: BoundTool = _UNKNOWN
    arguments: dict[str, Any] = _UNKNOWN
    late: tuple[dict[str, Any], list[LateCopy]] | None = None
    target: Expression | None = None
    references: Mapping[str, tuple[Expression, ...]] = NOBODY
    is_start_written: bool = False
    is_small: bool = True
    holds: tuple[Any, ...] = ()  # `run/holds`, which know this class
    lines: tuple[str, ...] | None = ()
    passed: int = 0
    moment: int = 0
    draft: CallResult | None = None
    result: CallResult | None = None
    question: Question = NO_QUESTION
    asking: asyncio.Task[Any] | None = None
    reservation: CallReservation | None = None
    corrections: tuple[dict[str, Any], ...] = ()
    # Its attempts.
    messages: tuple[dict[str, Any], ...] = ()  # those that its `_scopes` select for the tool
    number: int = 0  # count of the attempts that have begun
    started_at: datetime | None = None
    began: float = 0.0  # of the first attempt, in monotonic seconds
    flight: int = IDLE
    deadline: float | None = None  # monotonic seconds
    task: asyncio.Task[Any] | None = None
    started: Awaitable[Any] | None = None  # the tool, while it waits
    copying: Iterator[CallResult | None] | None = None  # the copy of the large value that it returned, in slices
    for_board: tuple[Any, Any] | None = None  # the large value that it returned, and a copy to be written

    @property
    def effect(self) -> str:
        """Return the effect of this call; the tool may derive it from the parameters."""
        return self.entry.effect_of(self.params)

    def shown(self) -> Call:
        """Return a copy of the call with the values of its references, for hooks and people."""
        return replace(self.call, params=copied(self.params))

    def note_correction(self, old: Call, decision: str, by: str, reason: str) -> None:
        """Record that the call as it is now has replaced `old`, by whom and why."""
        correction = {
            "call": without_service_keys(wire_of(old)),
            "decision": decision,
            "by": by,
            "reason": reason,
            "ran": without_service_keys(wire_of(self.call)),
        }
        self.corrections = (*self.corrections, correction)

    def swap(self, catalog: Catalog, board: Board, new: Call, is_done: Callable[[str], bool]) -> Fault | None:
        """Replace the call by `new`, which gets the old id. Return the fault if it cannot run; nothing is changed then.

        Args: is_done: returns whether the call with an id has ended well.
        """
        old = self.call
        texts = frozenset(marked(self.params))
        if texts:
            new = replace(new, params=escape(new.params, texts))
        meta = {**new.meta, "_original": old.meta.get("_original", wire_of(old))}
        path = old.output_path if new.output_path is None else new.output_path
        method = old.output_method if new.output_path is None else new.output_method
        instance = old.instance if new.instance is None else new.instance
        new, wrong = decode(
            replace(new, id=old.id, output_path=path, output_method=method, instance=instance, meta=meta)
        )
        if wrong:
            return fault("bad_call", wrong, old.tool)
        try:
            new, entry = bound(new, catalog)
            if late := [id for id in new.after if not is_done(id)]:
                raise BadReferenceError(
                    f"the call that replaces {old.id!r} is to run after {late[0]!r}, which has not ended well"
                )
            references(new.params)
            check_finite(new.tool, new.params)
            params = resolve(new.params, partial(board.look, instance=new.instance))
            arguments = entry.parameters.validate(params)
            place = None if new.output_path is None else parse_write(new.output_path)
        except STRUCTURAL as error:
            return _structural(error, new.tool)
        if objection := objection_to(new, entry, place):
            return objection
        self.call, self.entry, self.params, self.arguments, self.target = new, entry, params, arguments, place
        return None

    def final_corrections(self) -> Sequence[dict[str, Any]]:
        """Return the corrections by people and hooks; `ran`, the call as it ran, is None if it has not run."""
        result = self.result
        has_run = result is not None and (result.attempts > 0 or result.status == "ok")
        return self.corrections if has_run else [{**correction, "ran": None} for correction in self.corrections]

    def prepare(
        self, catalog: Catalog, board: Board, wrong: str, known: Container[str]
    ) -> tuple[Sequence[Expression], Fault | None]:
        """Find the tool and check the parameters. Return the paths that the call reads, and its fault if it has one.

        Args: wrong: why the call could not be decoded, "" if it could; known: the ids of the calls before it.
        """
        call = self.call
        if wrong:
            return (), fault("bad_call", wrong, call.tool)
        if call.id in known:
            return (), fault("duplicate_id", f"an earlier call has the id {shorten(call.id)} already", call.tool)
        try:
            entry = catalog.entries.get(call.tool)
            if call.output_path is not None:
                self.target = parse_write(call.output_path)
            if entry is None or entry.rules is not None or not SERVICE_KEYS.issuperset(call.meta):
                self.call, entry = call, _ = bound(call, catalog)
                if call.output_path is not None:
                    self.target = parse_write(call.output_path)
            self.entry = entry
            params = call.params
            if params:
                self.is_small, may_refer = _inspect(params)
                if not self.is_small:
                    check_finite(call.tool, params)
                if may_refer:
                    by_name = references(params)
                    reads = distinct(chain.from_iterable(by_name.values()))
                    if reads:
                        self.references = by_name
                        if isinstance(entry, LatentTool) and not all(
                            board.knows(path, call.instance) for path in reads
                        ):
                            self.entry = rewritten(call, entry, catalog)
                        self.arguments = entry.parameters.validate(params, by_name)
                        return reads, objection_to(self.call, self.entry, self.target)
                    self.params = params = resolve(params, board.look)
            if params or not entry.parameters.is_empty:
                params = entry.parameters.validate(params)
            self.arguments = params
        except ValueTooLargeError as error:
            self.call = replace(call, params=plain(call.params))  # shortened: the value may contain itself
            return (), _structural(error, call.tool)
        except STRUCTURAL as error:
            return (), _structural(error, call.tool)
        except Exception as error:  # an object of a foreign class among the parameters that cannot be read
            return (), fault("bad_call", f"it cannot be read: {type(error).__name__}", call.tool)
        return (), objection_to(self.call, self.entry, self.target)

    def take_values(self, board: Board) -> Fault | None:
        """Read the values of its references now. Later writes do not change them. Return the fault if it has one.

        The copies of large values are only begun: then `late` holds them, and `take_late` is to be called.
        """
        call, by_name, copies = self.call, self.references, list[LateCopy]()

        def look(expression: Expression) -> Any:
            value = board.look_late(expression, call.instance)
            if type(value) is LateCopy:
                copies.append(value)
            return value

        try:
            params = {
                name: value
                if name not in by_name and type(value) in SCALARS
                else look(by_name[name][0])
                if type(value) is str and by_name[name]
                else resolve(value, look)
                for name, value in call.params.items()
            }
        except STRUCTURAL as error:
            return _structural(error, call.tool)
        if copies:
            self.late = params, copies
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
        except STRUCTURAL as error:
            return _structural(error, self.call.tool)
        return None

    def select_messages(self, board: Board) -> None:
        """Take the messages that the `_scopes` of the call select for its tool, as they are now."""
        scopes = self.call.meta.get("_scopes")
        if scopes and self.entry.wants_messages:
            self.messages = tuple(board.messages_of(scopes, self.call.instance))

    def failed(self, why: Fault) -> CallResult:
        return CallResult(self.call, "failed", fault=why)

    def denied(self, message: str, reason: str = "denied", kind: str = "denied") -> CallResult:
        return CallResult(self.call, "denied", reason, fault=fault(kind, message, self.call.tool))

    def in_doubt(self, why: str) -> CallResult:
        message = f"{why} and nobody knows what became of the call: find out"
        return CallResult(self.call, "in_doubt", fault=fault("in_doubt", message, self.call.tool))

    def skipped(self, why: str, reason: str = "dep_failed") -> CallResult:
        return CallResult(self.call, "skipped", reason, fault=fault(reason, why, self.call.tool))
