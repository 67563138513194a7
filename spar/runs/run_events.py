"""Events of a run's stream: those of the run itself, and those made from the bus events about its calls.

Values and pure functions only. Parameters and outputs of tools are bounded, and secrets are masked. `spar.runs.run_log`
keeps the events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import asdict

from spar.data.json_safe import plain, shortened, shown
from spar.data.scrub import MASK, is_secret_name, scrub
from spar.events import (
    ApprovalExpired,
    ApprovalRequested,
    ApprovalResolved,
    CallCompleted,
    CallFailed,
    CallInDoubt,
    CallProgressed,
    CallProposed,
    CallSkipped,
    CallStarted,
    CompactionCompleted,
    CompactionStarted,
    Event,
)

if TYPE_CHECKING:
    from spar.records.runs import RunStatus

#: The most characters of a tool's parameters or output, and of an answer or a piece of it.
PAYLOAD, ANSWER = 8_000, 1 << 18

Stream = Literal["lifecycle", "assistant", "reasoning", "verbose", "tool", "compaction", "gap"]


class RunEvent(Struct, frozen=True):
    """Event of a run. `data` is JSON-able; its keys depend on `stream`:

    `lifecycle`: {phase: "accepted" | "outcome" | "start"}, at the start with the `options` of the run if there are any;
    at last {phase: "end" | "error", status, error, output, …};
    `assistant`: {text, reset}, a piece of the answer (`reset`: earlier pieces are void), or {sent, route, is_answer,
    kind, part}; `reasoning`: {text, reset, request}, a piece of the model's thoughts in one of the run's requests;
    `verbose`: {line, call, tool}, a line about a call that has ended, if the run's options ask for it; `tool`: {phase,
    call, tool, …} with phase "proposed", "start", "progress", "result", "error", "skipped", "approval" or "in_doubt";
    `compaction`: {phase: "start" | "end", …}; `gap`: {missed}, how many events up to this `seq` are not kept (None:
    unknown). An output that is shortened has `truncated: true` beside it; of a call also `whole`, the reference of the
    full value, or else `cycle/call`.
    """

    run_id: str
    seq: int
    stream: Stream
    at: datetime
    data: dict[str, Any]

    @property
    def is_terminal(self) -> bool:
        """Return whether it is the last event of the run."""
        return self.stream == "lifecycle" and self.data["phase"] in ("end", "error")


def terminal(end: RunStatus) -> dict[str, Any]:
    """Return the data of a run's terminal event."""
    output, is_cut = shortened(end.output, ANSWER)
    data = {
        "phase": "end" if end.status == "ok" else "error",
        "status": end.status,
        "error": plain(end.error, ANSWER),
        "output": output,
        "reply": plain(end.reply, ANSWER),
        "silent": end.silent,
        "usage": asdict(end.usage),
    }
    if is_cut:
        data["truncated"] = True
    return data


def _call(phase: str, tell: Callable[[Any], Mapping[str, Any]]) -> tuple[Stream, Callable[[Any], dict[str, Any]]]:
    return "tool", lambda event: {"phase": phase, "call": event.call.id, "tool": event.call.tool, **tell(event)}


def _result(event: Any) -> dict[str, Any]:
    """Return the data of a call's result, shortened and without secrets."""
    result = event.result
    data: dict[str, Any] = {"status": result.status}
    if result.output is not None:
        data["output"], is_cut = _safe_value(result.output)
        if is_cut:
            data |= {"truncated": True, "whole": result.call.output_path or f"{event.cycle_id}/{result.call.id}"}
    if result.reason:
        data["reason"] = _safe_text(result.reason)
    if result.fault is not None:
        data["error"] = _safe_text(result.fault.message)
    return data


_Translation = tuple[Stream, Callable[[Any], dict[str, Any]]]
TRANSLATIONS: dict[type[Event], _Translation] = {
    CompactionStarted: ("compaction", lambda event: {"phase": "start", "reason": event.reason}),
    CompactionCompleted: ("compaction", lambda event: {
        "phase": "end", "completed": event.completed, "will_retry": event.will_retry, "error": _safe_text(event.error)
    }),
    CallProposed: _call("proposed", lambda event: {"params": payload(event.call.params)}),
    CallStarted: _call("start", lambda event: {"attempt": event.attempt}),
    CallProgressed: _call("progress", lambda event: {"progress": payload(event.progress)}),
    CallCompleted: _call("result", _result),
    CallFailed: _call("error", _result),
    CallSkipped: _call("skipped", _result),
    CallInDoubt: _call("in_doubt", lambda event: {"doubt": event.doubt, "why": _safe_text(event.why)}),
    ApprovalRequested: _call("approval", lambda event: {"state": "requested"}),
    ApprovalResolved: _call("approval", lambda event: {
        "state": "resolved", "decision": event.decision, "reason": _safe_text(event.reason)
    }),
    ApprovalExpired: _call("approval", lambda event: {"state": "expired"}),
}  # fmt: skip


def _safe_text(text: str) -> str:
    return scrub(str(plain(text, PAYLOAD)))


def payload(value: Any) -> Any:
    """Return a value of at most about 8,000 characters with all secrets masked."""
    return _safe_value(value)[0]


def _safe_value(value: Any) -> tuple[Any, bool]:
    shortened_value, is_cut = shown(value, PAYLOAD)
    return _without_secrets(shortened_value), is_cut


def _without_secrets(value: Any, name: str = "") -> Any:
    if value is not None and name and is_secret_name(name):
        return MASK
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, dict):
        return {key: _without_secrets(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_secrets(item) for item in value]
    return value
