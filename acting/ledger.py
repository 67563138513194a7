"""What ended calls leave behind: data on the board, messages of the tick, errors, and the result of it all."""

from __future__ import annotations

from typing import Any

from acting.board import Board, message_of, write_message
from acting.graph import Graph
from acting.outputs import plain, text
from acting.paths import MISSING, Path, get, render
from acting.stage import Scope, Stage, fault, wire_of
from acting.writes import Writes
from spar.events import ContractViolation, WriteConflict
from spar.types import Action, ActionResult, ActionStatus, Call, CallResult, Fault, Message, replace

_WHOLE = 1 << 62  # what is copied here was bounded before


class Ledger:
    """The data of one tick. Moments are a count that orders beginnings and writes."""

    def __init__(self, stage: Stage, board: Board, graph: Graph) -> None:
        self._stage, self._board, self._graph = stage, board, graph
        self._messages: list[dict[str, Any]] = []
        self._writes = Writes()
        self._moment = 0

    def moment(self) -> int:
        """The next moment."""
        self._moment += 1
        return self._moment

    def keep(self, call: Call, path: Path | None, began: int, result: CallResult) -> CallResult:
        """Append what a call returned to the messages and the board, and wake its readers; the result as it then is."""
        value = result.output
        hidden: dict[str, Any] = {
            "_call": wire_of(call, self._stage.limits.max_output),
            "_date": self._stage.clock.now().isoformat(),
        }
        if type(value) is Message:
            self._append(call, value, path, hidden)
            return replace(result, output=value.data)
        hidden["_outputMethod"] = call.output_method
        if path is None:
            data = {"call": text(call.id), "tool": call.tool, "output": value}
            self._messages.append({**message_of("result", data), **hidden})
            self._board.patch("result", data)
            self._graph.written(("result",), data)
            return result
        try:
            written = self._board.write(path, plain(value, _WHOLE), call.output_method)
        except ValueError as error:
            message = f"tool {call.tool!r} returned what cannot be written to {render(path)!r}: {error}"
            return replace(result, status="failed", fault=fault("bad_output", message, call.tool))
        self._messages.append({**write_message(path, value), **hidden})
        rival = self._writes.note(path, call.id, call.output_method, began=began, now=self.moment())
        if rival is not None and self._stage.events is not None:
            self._stage.tell(WriteConflict, path=render(path), calls=(rival, call.id))
        self._graph.written(path, written)
        return result

    def _append(self, call: Call, message: Message, path: Path | None, hidden: dict[str, Any]) -> None:
        """A message that a tool returned goes in as it is, whatever path the call named."""
        self._messages.append({**message_of(message.kind, message.data, message.instance), **hidden})
        is_elsewhere = path is not None and (message.kind != path[0] or get(message.data, path[1:]) is MISSING)
        if path is not None and is_elsewhere and self._stage.events is not None:
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
        errors = (*late, *(self._error(each) for each in results if each.status not in ("ok", "skipped")))
        return ActionResult(
            replace(action, calls=tuple(each.call for each in results)),
            "interrupted" if interrupted else _status(results, why),
            results,
            self._board.state,
            (*self._messages, *(message_of("error", error) for error in errors)),
            errors,
            why,
            duration,
        )

    def _error(self, result: CallResult) -> dict[str, Any]:
        why = result.fault or Fault("error", result.status)
        return {
            "call": wire_of(result.call, self._stage.limits.max_output),
            "error": {"kind": why.kind, "message": why.message},
        }


def fit(stage: Stage, value: Any) -> Any:
    """What a tool returned, bounded and JSON-safe; a message stays one until it is kept."""
    if type(value) is Message:
        return Message(plain(value.kind, 200), plain(value.data, stage.limits.max_output), plain(value.instance))
    return plain(value, stage.limits.max_output)


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
