"""Writes of a batch's values to its board; errors and the status of its result; results of an interrupted batch.

A call that began before a write at, above or below its own path, and never saw that value, overwrites it: this is told
as a conflict. Calls that only add to an array do not conflict with one another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

from msgspec import Struct, field

from acting.graph.graph import Graph
from acting.run.call_state import Step, wire_of
from acting.run.checks import fit, unfit
from acting.run.holds import judge_trust
from acting.run.runtime import Runtime
from acting.tooling.context import Scope, fault
from spar.checks import SCALARS
from spar.data.blackboard import Board, message_of
from spar.data.json_safe import NotJsonError, copied
from spar.data.paths import MISSING, Expression, Path, PathIndex, ValueTooLargeError, get, render
from spar.events import ContractViolation, WriteConflict
from spar.types import ActionResult, ActionStatus, CallResult, Fault, Message, replace, without_service_keys

#: The value of a call: its step, the paths written (None: no path, only a message), the output method (how a value is
#: combined with the present one, such as "push"), the value, the time.
Note = tuple[Step, Sequence[Path] | None, str, Any, datetime]
#: Writes at a place: the number of the last one with the id of its call, and of the last one that does not only add.
_Last = tuple[tuple[int, str], tuple[int, str]]

#: The hook points at which results are looked at.
REVIEWS: Final = ("after_call", "result_persist")
#: Reasons of results that are no failures of the batch.
_HARMLESS: Final = frozenset({"branch", "handled", "steered"})
_GROWING: Final = frozenset({"push", "concat"})  # two calls that add to an array do not overwrite each other
#: Last names of a path that is meant for errors.
_ERRORS: Final = frozenset({"error", "failed", "failure"})


def _latest(one: _Last, other: _Last) -> _Last:
    later = max(one, other)
    return later if later[0] is later[1] else (later[0], max(one[1], other[1]))


class Writes(Struct, eq=False):
    """Writer of the values of one batch. `notes` are what it has written, in order, until the `messages` tell of it;
    `count` is the number of the writes that another call may overwrite."""

    _runtime: Runtime
    _board: Board
    _graph: Graph
    messages: list[dict[str, Any]]
    notes: list[Note] = field(default_factory=list)
    errors: dict[Step, dict[str, Any]] = field(default_factory=dict)  # those made ahead of the batch's result
    count: int = 0
    _last: PathIndex[_Last] = field(default_factory=partial(PathIndex, _latest))

    def apply(self, step: Step, result: CallResult, at: datetime, *, is_alone: bool) -> tuple[CallResult, int | None]:
        """Write the value of a call to its output path, or a message that the tool returned; free the calls that wait.

        Args: is_alone: whether no other call has begun and not ended: only such a one can overwrite what it never saw.
        Returns: the result (failed if the value cannot be written), and the index of the alternative of its output path
        that was written (None for none).
        """
        value, target = result.output, step.target
        if type(value) is Message or target is None:
            return self._append(step, value, result, at)
        try:
            self._write(step, target.alternatives[0], value, step.call.output_method, at, is_alone)
        except ValueError as error:
            tool = step.call.tool
            message = f"tool {tool!r} returned what cannot be written to {str(step.target)!r}: {error}"
            return replace(result, status="failed", fault=fault("bad_output", message, tool)), None
        return result, 0

    def handled(self, step: Step, result: CallResult, at: datetime, *, is_alone: bool) -> tuple[CallResult, int | None]:
        """Write a call's error to the last of several alternatives of its output path, if that one is for errors.

        The last alternative is for errors if the tool's terms say so (`on_error`), or if its path ends with a name such
        as "error". Returns: as `apply`.
        """
        target = step.target
        if target is None or len(target.alternatives) < 2 or result.fault is None:
            return result, None
        last = target.alternatives[-1]
        if step.entry.terms.on_error != "branch" and not any(path[-1] in _ERRORS for path in last):
            return result, None
        error = {"code": result.fault.kind, "message": result.fault.message}
        try:
            self._write(step, last, error, "set", at, is_alone)
        except ValueError:
            return result, None
        return replace(result, reason="handled"), len(target.alternatives) - 1

    def _write(self, step: Step, paths: Sequence[Path], value: Any, method: str, at: datetime, is_alone: bool) -> None:
        """Write a value to the board. Raises: ValueError when it cannot be written; nothing has changed then."""
        call, board, graph, own_copy = step.call, self._board, self._graph, value
        if type(value) not in SCALARS:
            sliced, step.for_board = step.for_board, None
            own_copy = sliced[1] if sliced is not None and sliced[0] is value else copied(value)
        written: Sequence[Any]
        if len(paths) == 1:
            written = (board.write(paths[0], own_copy, method, call.instance),)
        else:
            written = board.spread(paths, own_copy, method, call.instance)
        self.notes.append((step, paths, method, value, at))
        if is_alone and self.count <= step.moment and not graph.is_watched:
            return
        for path, new_value in zip(paths, written, strict=True):
            if (not is_alone or self.count > step.moment) and (rival := self._rival(step, path, method)):
                self._runtime.tell(WriteConflict, path=render(path), calls=(rival, call.id))
            if graph.is_watched:
                graph.written(path, new_value, call.instance)

    def _rival(self, step: Step, path: Path, method: str) -> str:
        """Count a write. Return the id of a call that wrote there after this one began; "" for none."""
        instance, id = step.call.instance, step.call.id
        if instance is not None:
            path = (f"†{instance}", *path)  # no kind begins with this sign
        is_growing = method in _GROWING
        last = self._last.over(path) if self.count > step.moment else None
        self.count += 1
        self._last.add(path, (now := (self.count, id), (0, "") if is_growing else now))
        number, rival = last[is_growing] if last is not None else (0, "")
        return rival if number > step.moment else ""

    def _append(self, step: Step, message: Message, result: CallResult, at: datetime) -> tuple[CallResult, int | None]:
        """Put a message that a tool returned on the board as it is, whatever path the call named."""
        call = step.call
        chosen, stray = _chosen(step.target, message)
        if stray:
            if self._runtime.is_strict:
                return replace(result, status="failed", output=None, fault=fault("bad_output", stray, call.tool)), None
            self._runtime.tell(ContractViolation, part=call.tool, message=stray)
        self.notes.append((step, None, "", message, at))
        if (approvals := self._runtime.approvals) is not None:
            approvals.taint.wrote(call, step.entry, step.scope.trust, step.scope, (message.kind,))
        self._board.patch(message.kind, message.data, message.instance)
        self._graph.written((message.kind,), message.data, message.instance)
        return replace(result, output=message.data), chosen


def error_of(step: Step) -> dict[str, Any]:
    """Return the error of an ended call as the next request shows it."""
    assert step.result is not None
    result = step.result
    why = result.fault or Fault("error", result.status)
    return {"call": without_service_keys(wire_of(result.call)), "error": {"kind": why.kind, "message": why.message}}


def corrections_of(step: Step) -> list[dict[str, Any]]:
    """Return the messages about changes by people and hooks; `ran` is None for a call that has not run."""
    result = step.result
    ran = {} if result is not None and (result.attempts > 0 or result.status == "ok") else {"ran": None}
    return [message_of("correction", correction | ran) for correction in step.corrections]


async def reviewed(runtime: Runtime, scope: Scope, result: CallResult) -> CallResult:
    """Show a result to the hooks and return it; only the hook point `result_persist` may change it."""
    await runtime.consult("after_call", result, scope)
    changed = (await runtime.consult("result_persist", result, scope)).value
    if isinstance(changed, CallResult) and changed is not result:
        limit, tool = runtime.limits.largest_result, result.call.tool
        try:
            return replace(changed, call=result.call, output=fit(changed.output, limit))
        except (ValueTooLargeError, NotJsonError) as error:
            return replace(result, status="failed", output=None, fault=unfit(error, changed.output, tool, limit))
    return result


def _chosen(target: Expression | None, message: Message) -> tuple[int | None, str]:
    """Return the index of the alternative of the output path that a message fills, and a sentence about its difference
    from the declared paths ("" for none)."""
    if target is None:
        return None, ""

    def is_there(path: Path) -> bool:
        return message.kind == path[0] and get(message.data, path[1:]) is not MISSING

    alternatives = list(enumerate(target.alternatives))
    fits = (at for is_filled in (all, any) for at, paths in alternatives if is_filled(map(is_there, paths)))
    if (chosen := next(fits, None)) is None:
        return None, f"its message of kind {message.kind!r} holds nothing at {str(target)!r}, where it was to write"
    if (stray := next(_ends(message.kind, message.data, target.paths), None)) is None:
        return chosen, ""
    return chosen, f"its message holds something at {render(stray)!r}, which is not where it was to write: {target!r}"


def _ends(kind: str, data: Any, declared: Sequence[Path]) -> Iterator[Path]:
    """Yield the paths of values in a message that are neither on the way to a declared path nor below one."""
    stack: list[tuple[Path, Any]] = [((kind,), data)]
    while stack:
        path, value = stack.pop()
        if any(path[: len(declared_path)] == declared_path for declared_path in declared):
            continue
        if isinstance(value, dict) and any(declared_path[: len(path)] == path for declared_path in declared):
            stack += [((*path, key), item) for key, item in value.items()]
        else:
            yield path


def is_shown_error(step: Step) -> bool:
    """Return whether the end of a call is an error that the next request shows."""
    if (result := step.result) is None or result.status == "ok":
        return False
    return result.reason in ("parked", "steered") if result.status == "skipped" else result.reason != "handled"


def status_of(odd: list[CallResult], count: int, why: Fault | None) -> ActionStatus:
    """Return the status of `count` calls, of which the `odd` ones did not end well.

    Branches that were not taken, errors that a branch handles and calls that were put off do not count as failures.
    """
    if why is None and all(result.reason in _HARMLESS for result in odd):
        return "ok"
    return "partial" if len(odd) < count or any(result.reason == "parked" for result in odd) else "failed"


class Replay(Struct, eq=False):
    """The results, by id, of the calls of an interrupted batch that must not run again; `messages` are its messages.

    Where these are known, its values are on the board already: each call gets its result when it arrives. Where only
    results are known, as from a journal, all calls arrive first; then they end in the order of these results, and their
    values are written to the board again.
    """

    results: dict[str, CallResult]
    messages: Sequence[dict[str, Any]] = ()
    is_on_board: bool = False  # whether the values of these calls are on the board

    @classmethod
    def of(cls, cut: ActionResult) -> Replay | None:
        """Return the replay of an interrupted batch by its result; None if no call of it has ended."""
        results = {result.call.id: result for result in cut.results if _is_final(result)}
        if not cut.messages:
            return cls(results) if results else None
        messages = [message for message in cut.messages if message.get("kind") != "error"]
        return cls(results, messages, is_on_board=True)

    def take_over(self, step: Step, runtime: Runtime, graph: Graph) -> bool:
        """Give an arriving call its known result, if the values are on the board; return whether it has one now."""
        ended = self.results.get(step.id) if self.is_on_board else None
        if ended is None:
            return False
        graph.refuse(step, step.target, step.call.instance)  # adds the call as one that will not run
        judge_trust(runtime, step, step.scope.trust)  # records which paths it wrote, if it is untrusted
        step.result = replace(ended, call=step.call)
        graph.end(step, ended.status == "ok")
        return True

    def endings(self, runtime: Runtime, graph: Graph, writes: Writes) -> Iterator[tuple[Step, CallResult]]:
        """Yield the calls with known results, each with its result, in the order of the results.

        Each counts as begun now, so that its write is no conflict with the one before.
        """
        for id, result in self.results.items():
            step: Any = graph.known.get(id)
            if step is not None and step.result is None:
                step.moment = writes.count
                judge_trust(runtime, step, step.scope.trust)
                yield step, replace(result, call=step.call)


def _is_final(result: CallResult) -> bool:
    """Return whether a call of an interrupted batch must not run again: it ended, or may have had its effect."""
    return result.status not in ("cancelled", "skipped")
