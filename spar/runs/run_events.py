"""The events of a run's stream: what the run says of itself, and what those of the bus say of its calls.

Only values and pure functions: what a tool was given or returned is bounded, and nothing is left in it that looks like
a secret. Who keeps them and who reads them is `spar.runs.run_log`.
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
    from spar.runs.run import RunStatus

#: Characters of what a tool was given or returned, and of an answer or one piece of it.
PAYLOAD, ANSWER = 8_000, 1 << 18

Stream = Literal["lifecycle", "assistant", "reasoning", "verbose", "tool", "compaction", "gap"]


class RunEvent(Struct, frozen=True):
    """Something that a run did. `data` is JSON-able; what it holds depends on `stream`:

    `lifecycle`: {phase: "accepted" | "outcome" | "start"}, at the start with the `options` of the run if there are
    any, at last {phase: "end" | "error", status, error, output, …};
    `assistant`: {text, reset}, a piece of the answer (`reset`: what came before is void), or {sent, route, is_answer,
    kind, part}; `reasoning`: {text, reset, request}, a piece of what the model thinks in one of the run's requests;
    `verbose`: {line, call, tool}, a line about a call that has ended, where the run's options ask for it;
    `tool`: {phase, call, tool, …} with phase "proposed", "start", "progress", "result", "error", "skipped",
    "approval" or "in_doubt"; `compaction`: {phase: "start" | "end", …}; `gap`: {missed}, how many events up to this
    `seq` are not kept (None: nobody knows). An output that is not shown whole has `truncated: true` beside it; of a
    call also `whole`, the reference that gives all of it, or else `cycle/call`.
    """

    run_id: str
    seq: int
    stream: Stream
    at: datetime
    data: dict[str, Any]

    @property
    def is_terminal(self) -> bool:
        return self.stream == "lifecycle" and self.data["phase"] in ("end", "error")


def terminal(end: RunStatus) -> dict[str, Any]:
    """Return what the terminal event of a run says."""
    output, is_cut = shortened(end.output, ANSWER)
    told = {
        "phase": "end" if end.status == "ok" else "error",
        "status": end.status,
        "error": plain(end.error, ANSWER),
        "output": output,
        "reply": plain(end.reply, ANSWER),
        "silent": end.silent,
        "usage": asdict(end.usage),
    }
    if is_cut:
        told["truncated"] = True
    return told


def _call(phase: str, tell: Callable[[Any], Mapping[str, Any]]) -> tuple[Stream, Callable[[Any], dict[str, Any]]]:
    return "tool", lambda event: {"phase": phase, "call": event.call.id, "tool": event.call.tool, **tell(event)}


def _result(event: Any) -> dict[str, Any]:
    result = event.result
    said: dict[str, Any] = {"status": result.status}
    if result.output is not None:
        said["output"], is_cut = _shown(result.output)
        if is_cut:
            said |= {"truncated": True, "whole": result.call.output_path or f"{event.cycle_id}/{result.call.id}"}
    if result.reason:
        said["reason"] = _words(result.reason)
    if result.fault is not None:
        said["error"] = _words(result.fault.message)
    return said


_Tell = tuple[Stream, Callable[[Any], dict[str, Any]]]
TOLD: dict[type[Event], _Tell] = {
    CompactionStarted: ("compaction", lambda event: {"phase": "start", "reason": event.reason}),
    CompactionCompleted: ("compaction", lambda event: {
        "phase": "end", "completed": event.completed, "will_retry": event.will_retry, "error": _words(event.error)
    }),
    CallProposed: _call("proposed", lambda event: {"params": payload(event.call.params)}),
    CallStarted: _call("start", lambda event: {"attempt": event.attempt}),
    CallProgressed: _call("progress", lambda event: {"progress": payload(event.progress)}),
    CallCompleted: _call("result", _result),
    CallFailed: _call("error", _result),
    CallSkipped: _call("skipped", _result),
    CallInDoubt: _call("in_doubt", lambda event: {"doubt": event.doubt, "why": _words(event.why)}),
    ApprovalRequested: _call("approval", lambda event: {"state": "requested"}),
    ApprovalResolved: _call("approval", lambda event: {
        "state": "resolved", "decision": event.decision, "reason": _words(event.reason)
    }),
    ApprovalExpired: _call("approval", lambda event: {"state": "expired"}),
}  # fmt: skip


def _words(said: str) -> str:
    return scrub(str(plain(said, PAYLOAD)))


def payload(value: Any) -> Any:
    """A value of at most about 8,000 characters in which nothing is left that looks like a secret."""
    return _shown(value)[0]


def _shown(value: Any) -> tuple[Any, bool]:
    found, is_cut = shown(value, PAYLOAD)
    return _without_secrets(found), is_cut


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
