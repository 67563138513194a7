"""Collects from ended calls: data on the board, messages of the batch, errors, and the result of it all.

While the batch runs only notes are taken; the messages are written from them at its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct, field

from acting.calls import Scope, fault
from acting.graph.graph import Graph
from acting.run.call.call_state import Step, wire_of
from acting.run.call.normalize import fit, unfit
from acting.run.shared.runtime import Runtime
from spar.data.blackboard import Board, message_of, write_messages
from spar.data.json_safe import NotJsonError, copied, text
from spar.data.paths import MISSING, Expression, Path, ValueTooLargeError, get, render
from spar.events import ContractViolation, WriteConflict
from spar.types import (
    Action,
    ActionResult,
    ActionStatus,
    CallResult,
    Fault,
    Message,
    replace,
    without_service_keys,
)

_RESULT: Path = ("result",)

#: What a call brought: the call, where it was written (None: as its result), how, the value, and when.
Note = tuple[Step, Sequence[Path] | None, str, Any, datetime]

_HARMLESS = frozenset({"branch", "handled", "steered"})
_GROWING = frozenset({"push", "concat"})  # adding to an array takes nothing away from the other one
#: Last words of a path that say that it is for what went wrong.
_ERRORS = frozenset({"error", "failed", "failure"})


class ResultCollector:
    """The data of one batch. Moments are a count that orders beginnings and writes."""

    def __init__(self, runtime: Runtime, board: Board, graph: Graph, session: str,
                 earlier: Sequence[dict[str, Any]] = ()) -> None:  # fmt: skip
        self._session = session
        self._runtime, self._board, self._graph = runtime, board, graph
        self._earlier = earlier  # messages of the same calls in a batch that was cut
        self._notes: list[Note] = []
        self._writes = WriteLog()
        self.moment = 0  # counts the calls that have begun and, while others are at work, their writes
        self.at_work = 0  # calls that have begun and not ended: only those can write without having seen a write

    def apply(self, step: Step, result: CallResult) -> tuple[CallResult, int | None]:
        """Put what a call returned on the board and wake its readers.

        Returns: the result as it then is, and which alternative of its output path was written.
        """
        value, target, call = result.output, step.target, step.call
        if type(value) is Message:
            return self._append(step, value, result)
        if target is None:
            if step.entry.activity:  # a latent call without a path is a thought: it stays with the call
                self._note(step, None, "set", value)
                data = {"call": call.id, "tool": call.tool, "output": value}
                self._board.patch("result", data)
                if self._graph.requirements.is_watched:
                    self._graph.written(_RESULT, data)
            return result, None
        try:
            self._write(step, target.alternatives[0], value, call.output_method)
        except ValueError as error:
            message = f"tool {call.tool!r} returned what cannot be written to {str(target)!r}: {error}"
            return replace(result, status="failed", fault=fault("bad_output", message, call.tool)), None
        return result, 0

    def handled(self, step: Step, result: CallResult) -> tuple[CallResult, int | None]:
        """Write a call's error to the branch that is there for it, if there is one: the last alternative of
        several, when its tool says so or the path does."""
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
        """Raises: ValueError when it cannot be written; nothing is changed then."""
        call, board, graph = step.call, self._board, self._graph
        kept = copied(value)
        written: Sequence[Any]
        if len(paths) == 1:
            written = (board.write(paths[0], kept, method, call.instance),)
        else:
            written = board.spread(paths, kept, method, call.instance)
        self._note(step, paths, method, value)
        for path, found in zip(paths, written, strict=True):
            if self.at_work > 1 or self._writes.last > step.began:
                self.moment += 1
                rival = self._writes.note(
                    path, call.id, method, began=step.began, now=self.moment, instance=call.instance
                )
                if rival is not None:
                    self._runtime.tell(WriteConflict, path=render(path), calls=(rival, call.id))
            if graph.requirements.is_watched:
                graph.written(path, found, call.instance)

    def _append(self, step: Step, message: Message, result: CallResult) -> tuple[CallResult, int | None]:
        """A message that a tool returned goes in as it is, whatever path the call named."""
        call = step.call
        chosen, stray = _chosen(step.target, message)
        if stray:
            if self._runtime.is_strict:
                return replace(result, status="failed", output=None, fault=fault("bad_output", stray, call.tool)), None
            self._runtime.tell(ContractViolation, part=call.tool, message=stray)
        self._note(step, None, "", message)
        self._board.patch(message.kind, message.data, message.instance)
        self._graph.written((message.kind,), message.data, message.instance)
        return replace(result, output=message.data), chosen

    def _note(self, step: Step, paths: Sequence[Path] | None, method: str, value: Any) -> None:
        runtime = self._runtime
        self._notes.append((step, paths, method, value, runtime.wall.at(runtime.clock.monotonic())))

    def outcome(
        self,
        action: Action,
        steps: Sequence[Step],
        why: Fault | None,
        *,
        interrupted: bool,
        duration: float,
    ) -> ActionResult:
        """Return the result of the action; errors of detached calls that ended since the last outcome come first.

        Args: steps: its calls; what people and hooks made of them is told as messages of their own.
        """
        results = tuple([step.result for step in steps if step.result is not None])
        corrections = [each for step in steps if step.corrections for each in step.final_corrections()]
        # A batch that was cut off hands nothing over: nobody may read what it says.
        is_late = not interrupted and self._session in self._runtime.late.sessions
        late_errors, late = self._runtime.late.take(self._session) if is_late else ([], [])
        odd = [each for each in results if each.status != "ok"]
        errors = (*late_errors, *[self._error(each) for each in odd if _is_told(each)])
        told_apart = [*[message_of("correction", each) for each in corrections],
                      *[message_of("error", error) for error in errors]]  # fmt: skip
        return ActionResult(
            replace(action, calls=tuple([each.call for each in results])),
            "interrupted" if interrupted else _status(odd, len(results), why),
            results,
            self._board.state,
            (*self._earlier, *self._messages(), *late, *told_apart),
            errors,
            why,
            duration,
        )

    def _messages(self) -> list[dict[str, Any]]:
        """Return the values of the calls as messages, with what is hidden from models."""
        found: list[dict[str, Any]] = []
        last, date = None, ""
        for step, paths, method, value, at in self._notes:
            call = step.call
            if at is not last:
                last, date = at, at.isoformat()
            if paths is not None:
                told = write_messages(paths, value, call.instance)
            elif type(value) is Message:
                told = [message_of(value.kind, value.data, value.instance)]
            else:
                id = call.id if call.id.isascii() else text(call.id)
                told = [message_of("result", {"call": id, "tool": call.tool, "output": value})]
            wire = wire_of(call, is_small=step.is_small)
            for message in told:
                message["_call"], message["_date"] = wire, date
                if method:
                    message["_outputMethod"] = method
                found.append(message)
        return found

    def _error(self, result: CallResult) -> dict[str, Any]:
        why = result.fault or Fault("error", result.status)
        return {
            "call": without_service_keys(wire_of(result.call)),
            "error": {"kind": why.kind, "message": why.message},
        }


async def reviewed(runtime: Runtime, scope: Scope, result: CallResult) -> CallResult:
    """The result after the hooks have seen it; only `result_persist` may change it."""
    if runtime.asks("after_call"):
        await runtime.consult("after_call", result, scope)
    if runtime.asks("result_persist"):
        found = (await runtime.consult("result_persist", result, scope)).value
        if isinstance(found, CallResult) and found is not result:
            limit, tool = runtime.limits.largest_result, result.call.tool
            try:
                return replace(found, call=result.call, output=fit(found.output, limit))
            except (ValueTooLargeError, NotJsonError) as error:
                return replace(result, status="failed", output=None, fault=unfit(error, found.output, tool, limit))
    return result


def _chosen(target: Expression | None, message: Message) -> tuple[int | None, str]:
    """Which alternative of the output path a message holds, and what it holds or lacks against what was declared."""
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
    """The places of a message that lead to no declared path and lie below none."""
    stack: list[tuple[Path, Any]] = [((kind,), data)]
    while stack:
        path, value = stack.pop()
        if any(path[: len(each)] == each for each in declared):
            continue
        if isinstance(value, dict) and any(each[: len(path)] == path for each in declared):
            stack += [((*path, key), item) for key, item in value.items()]
        else:
            yield path


def _is_told(result: CallResult) -> bool:
    """Return whether what became of a call that did not end well is an error that the next request is told."""
    return result.reason in ("parked", "steered") if result.status == "skipped" else result.reason != "handled"


def _status(odd: list[CallResult], count: int, why: Fault | None) -> ActionStatus:
    """Return the status of `count` calls, of which the `odd` ones did not end well.

    A branch that was not taken, a throw that a branch handles and a call that was put off are nothing bad.
    """
    if why is None and all(each.reason in _HARMLESS for each in odd):
        return "ok"
    return "partial" if len(odd) < count or any(each.reason == "parked" for each in odd) else "failed"


class WriteLog(Struct, eq=False):
    """The last write at and below each path, with the moment (a count) at which it was made; `last`: of them all."""

    last: int = -1
    _at: dict[Path, tuple[str, str, int]] = field(default_factory=dict)
    _below: dict[Path, tuple[str, str, int]] = field(default_factory=dict)

    def note(
        self, path: Path, id: str, method: str, *, began: int, now: int, instance: str | None = None
    ) -> str | None:
        """Note a write by the call `id` that began at `began`; the id of a call whose write it never saw, or None.

        What is written for different instances, or for one and for all, stands in different places.
        """
        if instance is not None:
            path = (f"†{instance}", *path)  # no kind begins so
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
