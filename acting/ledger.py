"""What ended calls leave behind: data on the board, messages of the tick, errors, and the result of it all.

While the tick runs only notes are taken; the messages are written from them at its end.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from acting.board import Board, message_of, write_message
from acting.graph import Graph
from acting.launch import fit
from acting.outputs import plain, text
from acting.paths import MISSING, SCALARS, Path, get, render
from acting.stage import Scope, Stage, fault, wire_of
from acting.step import Step
from acting.writes import Writes
from spar.events import ContractViolation, WriteConflict
from spar.types import Action, ActionResult, ActionStatus, Call, CallResult, Fault, Message, replace

_WHOLE = 1 << 62  # what is copied here was bounded before

#: What a call brought: the call, where it was written (None: as its result), the value, and when.
Note = tuple[Call, Path | None, Any, datetime]


class Ledger:
    """The data of one tick. Moments are a count that orders beginnings and writes."""

    def __init__(self, stage: Stage, board: Board, graph: Graph, resume: ActionResult | None = None) -> None:
        self._stage, self._board, self._graph = stage, board, graph
        self._earlier = [each for each in resume.messages if each.get("kind") != "error"] if resume else []
        self._notes: list[Note] = []
        self._writes = Writes()
        self._moment = 0

    def moment(self) -> int:
        """The next moment."""
        self._moment += 1
        return self._moment

    def keep(self, step: Step, result: CallResult) -> CallResult:
        """Put what a call returned on the board and wake its readers; the result as it then is."""
        value, path = result.output, step.path
        call = step.call
        if type(value) is Message:
            self._append(call, value, path)
            return replace(result, output=value.data)
        if path is None:
            self._notes.append((call, None, value, self._stage.clock.now()))
            data = {"call": call.id, "tool": call.tool, "output": value}
            self._board.patch("result", data)
            self._graph.written(("result",), data)
            return result
        kept = value if type(value) in SCALARS else plain(value, _WHOLE)
        try:
            written = self._board.write(path, kept, call.output_method)
        except ValueError as error:
            message = f"tool {call.tool!r} returned what cannot be written to {render(path)!r}: {error}"
            return replace(result, status="failed", fault=fault("bad_output", message, call.tool))
        self._notes.append((call, path, value, self._stage.clock.now()))
        rival = self._writes.note(path, call.id, call.output_method, began=step.began, now=self.moment())
        if rival is not None:
            self._stage.tell(WriteConflict, path=render(path), calls=(rival, call.id))
        self._graph.written(path, written)
        return result

    def _append(self, call: Call, message: Message, path: Path | None) -> None:
        """A message that a tool returned goes in as it is, whatever path the call named."""
        self._notes.append((call, None, message, self._stage.clock.now()))
        if path is not None and (message.kind != path[0] or get(message.data, path[1:]) is MISSING):
            found = f"its message of kind {message.kind!r} holds nothing at {render(path)!r}, where it was to write"
            self._stage.tell(ContractViolation, part=call.tool, message=found)
        if message.instance is None:
            self._board.patch(message.kind, message.data)
            self._graph.written((message.kind,), message.data)

    def outcome(
        self, action: Action, results: tuple[CallResult, ...], why: Fault | None, *, interrupted: bool, duration: float
    ) -> ActionResult:
        """What became of the action; errors of detached calls that ended since the last outcome come first."""
        late, self._stage.late_errors = self._stage.late_errors, type(self._stage.late_errors)(maxlen=100)
        errors = (*late, *[self._error(each) for each in results if each.status not in ("ok", "skipped")])
        return ActionResult(
            replace(action, calls=tuple([each.call for each in results])),
            "interrupted" if interrupted else _status(results, why),
            results,
            self._board.state,
            (*self._earlier, *self._messages(), *[message_of("error", error) for error in errors]),
            errors,
            why,
            duration,
        )

    def _messages(self) -> list[dict[str, Any]]:
        """What the calls brought, as messages, with what is hidden from models."""
        cap = self._stage.limits.max_output
        found = []
        for call, path, value, at in self._notes:
            if path is not None:
                message = write_message(path, value)
                message["_outputMethod"] = call.output_method
            elif type(value) is Message:
                message = message_of(value.kind, value.data, value.instance)
            else:
                message = message_of("result", {"call": text(call.id), "tool": call.tool, "output": value})
                message["_outputMethod"] = call.output_method
            message["_call"], message["_date"] = wire_of(call, cap), at.isoformat()
            found.append(message)
        return found

    def _error(self, result: CallResult) -> dict[str, Any]:
        why = result.fault or Fault("error", result.status)
        return {
            "call": wire_of(result.call, self._stage.limits.max_output),
            "error": {"kind": why.kind, "message": why.message},
        }


async def reviewed(stage: Stage, scope: Scope, result: CallResult) -> CallResult:
    """The result after the hooks have seen it; only `result_persist` may change it."""
    if stage.asks("after_call"):
        await stage.consult("after_call", result, scope)
    if stage.asks("result_persist"):
        found = (await stage.consult("result_persist", result, scope)).value
        if isinstance(found, CallResult) and found is not result:
            return replace(found, call=result.call, output=fit(stage, found.output))
    return result


def _status(results: tuple[CallResult, ...], why: Fault | None) -> ActionStatus:
    is_bad = why is not None or any(each.status != "ok" and each.reason != "branch" for each in results)
    if not is_bad:
        return "ok"
    return "partial" if any(each.status == "ok" for each in results) else "failed"
