"""Collector of the results of a batch: writes values to the board, and builds messages, errors and the whole result.

While the batch runs, each value is only noted; the messages are built from the notes at its end, those of a large batch
in slices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct, field

from acting.calls import Scope, fault
from acting.graph.graph import Graph
from acting.graph.nodes import ATTEMPT
from acting.run.call.call_state import Step, wire_of
from acting.run.call.normalize import fit, unfit
from acting.run.runtime import Runtime
from spar.data.blackboard import Board, message_of, write_messages
from spar.data.json_safe import NotJsonError, copied, text
from spar.data.paths import MISSING, Expression, Path, ValueTooLargeError, get, render
from spar.events import ContractViolation, WriteConflict
from spar.threads import in_slices
from spar.types import (
    Action,
    ActionResult,
    ActionStatus,
    CallResult,
    Fault,
    Message,
    copy_with,
    replace,
    without_service_keys,
)

_RESULT: Path = ("result",)

#: The value of a call: its step, the paths written (None: no path, only a message), the output method (how a value is
#: combined with the present one, such as "push"), the value, the time.
Note = tuple[Step, Sequence[Path] | None, str, Any, datetime]

#: Reasons of results that are no failures of the batch.
_HARMLESS = frozenset({"branch", "handled", "steered"})
_GROWING = frozenset({"push", "concat"})  # two calls that add to an array do not overwrite each other
#: Last names of a path that is meant for errors.
_ERRORS = frozenset({"error", "failed", "failure"})


class ResultCollector:
    """Collector of one batch. A *moment* is a count that orders the beginnings of calls and their writes.

    *Late* messages are those of detached calls that ended after their batch.
    """

    def __init__(self, runtime: Runtime, board: Board, graph: Graph, scope: Scope,
                 earlier: Sequence[dict[str, Any]] = ()) -> None:  # fmt: skip
        self._scope = scope
        self._runtime, self._board, self._graph = runtime, board, graph
        self._earlier = earlier  # messages of the same calls in an interrupted batch
        self._notes: list[Note] = []
        self._messages: list[dict[str, Any]] = []  # those that are built, of the first `_built` notes
        self._built = 0
        self._dated: tuple[datetime | None, str] = (None, "")  # the time of the last note, and its text
        self._errors: dict[Step, dict[str, Any]] = {}  # those that are built
        self._writes = WriteLog()
        self.moment = 0  # count of the calls that have begun and, while several run, of their writes
        self.at_work = 0  # calls that have begun and not ended: only they can overwrite a value that they never read

    def begin(self, step: Step) -> None:
        """Count a call whose first attempt begins, and take the messages that its tool is to see."""
        step.state = ATTEMPT
        self.moment = step.moment = self.moment + 1
        self.at_work += 1
        if step.call.meta:
            step.select_messages(self._board)

    def apply(self, step: Step, result: CallResult) -> tuple[CallResult, int | None]:
        """Write the value of a call to the board and free the calls that wait for it.

        Returns: the result (failed if the value cannot be written), and the index of the alternative of its output path
        that was written (None for none).
        """
        value, target, call = result.output, step.target, step.call
        if type(value) is Message:
            return self._append(step, value, result)
        if target is None:
            if step.entry.activity:  # the value of a latent call without a path is no data for others
                self._note(step, None, "set", value)
                data = {"call": call.id, "tool": call.tool, "output": value}
                self._board.patch("result", data)
                if self._graph.requirements.is_watched:  # a call has waited for a value
                    self._graph.written(_RESULT, data)
            return result, None
        try:
            self._write(step, target.alternatives[0], value, call.output_method)
        except ValueError as error:
            message = f"tool {call.tool!r} returned what cannot be written to {str(target)!r}: {error}"
            return replace(result, status="failed", fault=fault("bad_output", message, call.tool)), None
        return result, 0

    def handled(self, step: Step, result: CallResult) -> tuple[CallResult, int | None]:
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
        try:
            self._write(step, last, {"code": result.fault.kind, "message": result.fault.message}, "set")
        except ValueError:
            return result, None
        return replace(result, reason="handled"), len(target.alternatives) - 1

    def _write(self, step: Step, paths: Sequence[Path], value: Any, method: str) -> None:
        """Write a value to the board. Raises: ValueError when it cannot be written; nothing has changed then."""
        call, board, graph = step.call, self._board, self._graph
        sliced, step.for_board = step.for_board, None
        own_copy = sliced[1] if sliced is not None and sliced[0] is value else copied(value)
        written: Sequence[Any]
        if len(paths) == 1:
            written = (board.write(paths[0], own_copy, method, call.instance),)
        else:
            written = board.spread(paths, own_copy, method, call.instance)
        self._note(step, paths, method, value)
        for path, new_value in zip(paths, written, strict=True):
            if self.at_work > 1 or self._writes.last > step.moment:
                self.moment += 1
                rival = self._writes.note(
                    path, call.id, method, began=step.moment, now=self.moment, instance=call.instance
                )
                if rival is not None:
                    self._runtime.tell(WriteConflict, path=render(path), calls=(rival, call.id))
            if graph.requirements.is_watched:
                graph.written(path, new_value, call.instance)

    def _append(self, step: Step, message: Message, result: CallResult) -> tuple[CallResult, int | None]:
        """Put a message that a tool returned on the board as it is, whatever path the call named."""
        call = step.call
        chosen, stray = _chosen(step.target, message)
        if stray:
            if self._runtime.is_strict:
                return replace(result, status="failed", output=None, fault=fault("bad_output", stray, call.tool)), None
            self._runtime.tell(ContractViolation, part=call.tool, message=stray)
        self._note(step, None, "", message)
        if (approvals := self._runtime.approvals) is not None:
            approvals.taint.wrote(call, step.entry, self._scope.trust, self._scope, (message.kind,))
        self._board.patch(message.kind, message.data, message.instance)
        self._graph.written((message.kind,), message.data, message.instance)
        return replace(result, output=message.data), chosen

    def _note(self, step: Step, paths: Sequence[Path] | None, method: str, value: Any) -> None:
        runtime = self._runtime
        self._notes.append((step, paths, method, value, runtime.wall.at(runtime.clock.monotonic())))

    async def build(self, steps: Sequence[Step]) -> None:
        """Build the messages and errors of so many calls that `outcome` would hold up the event loop, in slices.

        The results of the calls do not change any more.
        """
        async for note in in_slices(self._notes):
            self._build(note)
        async for step in in_slices(steps):
            if step.result is not None and _is_shown_error(step.result):
                self._errors[step] = _error(step.result)

    def outcome(
        self,
        action: Action,
        steps: Sequence[Step],
        why: Fault | None,
        *,
        interrupted: bool,
        duration: float,
    ) -> ActionResult:
        """Return the result of the action; the errors of detached calls that have ended since come first.

        Args: steps: its calls; changes of them by people and hooks become messages of kind "correction".
        """
        results = tuple([step.result for step in steps if step.result is not None])
        # An interrupted batch takes no late messages: perhaps nobody reads its result.
        session, approvals = self._scope.session, self._runtime.approvals
        is_late = not interrupted and session in self._runtime.late.sessions
        late_errors, late = self._runtime.late.take(session) if is_late else ([], [])
        if is_late and approvals is not None:
            approvals.taint.came_late(self._scope, {"error", *[str(message.get("kind")) for message in late]})
        not_ok = [result for result in results if result.status != "ok"]
        for note in self._notes[self._built :]:
            self._build(note)
        errors, other_messages = [*late_errors], []
        for step in steps:
            if step.corrections:
                other_messages += [message_of("correction", correction) for correction in step.final_corrections()]
            if step.result is not None and _is_shown_error(step.result):
                errors.append(self._errors.get(step) or _error(step.result))
        if errors:
            other_messages += [message_of("error", error) for error in errors]
        return ActionResult(
            copy_with(action, calls=tuple([result.call for result in results])),
            "interrupted" if interrupted else _status(not_ok, len(results), why),
            results,
            self._board.state,
            (*self._earlier, *self._messages, *late, *other_messages),
            tuple(errors),
            why,
            duration,
        )

    def _build(self, note: Note) -> None:
        """Add a value to the messages, with the fields that models do not see (`_call`, `_date`)."""
        step, paths, method, value, at = note
        call = step.call
        if at is not self._dated[0]:
            self._dated = at, at.isoformat()
        if paths is not None:
            written = write_messages(paths, value, call.instance)
        elif type(value) is Message:
            written = [message_of(value.kind, value.data, value.instance)]
        else:
            id = call.id if call.id.isascii() else text(call.id)
            written = [message_of("result", {"call": id, "tool": call.tool, "output": value})]
        wire = wire_of(call, is_small=step.is_small)
        for message in written:
            message["_call"], message["_date"] = wire, self._dated[1]
            if method:
                message["_outputMethod"] = method
        self._messages += written
        self._built += 1


def _error(result: CallResult) -> dict[str, Any]:
    why = result.fault or Fault("error", result.status)
    return {
        "call": without_service_keys(wire_of(result.call)),
        "error": {"kind": why.kind, "message": why.message},
    }


async def reviewed(runtime: Runtime, scope: Scope, result: CallResult) -> CallResult:
    """Show a result to the hooks and return it; only the hook point `result_persist` may change it."""
    if runtime.asks("after_call"):
        await runtime.consult("after_call", result, scope)
    if runtime.asks("result_persist"):
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

    chosen = next((at for at, paths in enumerate(target.alternatives) if all(map(is_there, paths))), None)
    if chosen is None:
        chosen = next((at for at, paths in enumerate(target.alternatives) if any(map(is_there, paths))), None)
    if chosen is None:
        return None, f"its message of kind {message.kind!r} holds nothing at {str(target)!r}, where it was to write"
    declared = [path for paths in target.alternatives for path in paths]
    for path in _ends(message.kind, message.data, declared):
        return (
            chosen,
            f"its message holds something at {render(path)!r}, which is not where it was to write: {target!r}",
        )
    return chosen, ""


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


def _is_shown_error(result: CallResult) -> bool:
    """Return whether the end of a call is an error that the next request shows."""
    if result.status == "ok":
        return False
    return result.reason in ("parked", "steered") if result.status == "skipped" else result.reason != "handled"


def _status(odd: list[CallResult], count: int, why: Fault | None) -> ActionStatus:
    """Return the status of `count` calls, of which the `odd` ones did not end well.

    Branches that were not taken, errors that a branch handles and calls that were put off do not count as failures.
    """
    if why is None and all(result.reason in _HARMLESS for result in odd):
        return "ok"
    return "partial" if len(odd) < count or any(result.reason == "parked" for result in odd) else "failed"


class WriteLog(Struct, eq=False):
    """The last write at and below each path, with its moment (a count).

    `last` is the moment of the last write of all.
    """

    last: int = -1
    _at: dict[Path, tuple[str, str, int]] = field(default_factory=dict)
    _below: dict[Path, tuple[str, str, int]] = field(default_factory=dict)

    def note(
        self, path: Path, id: str, method: str, *, began: int, now: int, instance: str | None = None
    ) -> str | None:
        """Record a write by the call `id`. Return the id of a call that wrote there after `began`, or None.

        Such a write is a conflict: this call began before it and so never saw it. Writes for different instances, or
        for one instance and for all, do not conflict.
        """
        if instance is not None:
            path = (f"†{instance}", *path)  # no kind begins with this sign
        rival = self._rival(path, method, began) if self.last > began else None
        entry = (id, method, now)
        self._at[path] = self._below[path] = entry
        for length in range(1, len(path)):
            self._below[path[:length]] = entry
        self.last = now
        return rival

    def _rival(self, path: Path, method: str, began: int) -> str | None:
        known = [self._below.get(path), *(self._at.get(path[:length]) for length in range(1, len(path)))]
        for entry in known:
            if entry and entry[2] > began and not (method in _GROWING and entry[1] in _GROWING):
                return entry[0]
        return None
