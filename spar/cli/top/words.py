"""Formatting of events and figures in few words, and escaping of texts for a terminal. Pure functions.

Shown texts may come from strangers. Escaped, no character of them moves the cursor, is invisible, or changes the
direction of writing. A text of a megabyte costs no more than its shown part.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from spar.data.text import is_hidden

#: Characters of one text in a line.
LINE = 300
#: The sign for each phase of a call.
SIGNS = {"result": "✓", "error": "✗", "skipped": "–", "in_doubt": "?", "start": "▸", "proposed": "·", "progress": "…"}


def harmless(text: Any, room: int = LINE) -> str:
    """Return at most `room` characters of any value as one line, with invisible characters escaped."""
    whole = text if isinstance(text, str) else _plain(text)
    head = " ".join(whole[: 4 * room].split())
    shown = head if head.isascii() and head.isprintable() else "".join(map(_escaped, head))
    is_cut = len(shown) > room or len(whole) > 4 * room
    return f"{shown[: room - 1]}…" if is_cut else shown


def harmless_lines(text: str) -> list[str]:
    """Return all lines of a text, with invisible characters escaped."""
    lines = text.expandtabs(4).split("\n")
    return [line if line.isascii() and line.isprintable() else "".join(map(_escaped, line)) for line in lines]


def _escaped(character: str) -> str:
    return f"\\u{{{ord(character):x}}}" if character != " " and is_hidden(character) else character


def _plain(value: Any) -> str:
    if value is None:
        return ""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return repr(value)


def lasted(seconds: float | None) -> str:
    """Return a duration in at most six characters: `0.3 s`, `12 s`, `4 m`, `3 h`, `9 d`; "" for None."""
    if seconds is None:
        return ""
    if seconds < 9.95:
        return f"{max(seconds, 0.0):.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds // 60:.0f} m"
    return f"{seconds // 3600:.0f} h" if seconds < 172_800 else f"{seconds // 86_400:.0f} d"


def number(value: float) -> str:
    """Return a number in at most five characters: `999`, `1.2k`, `34M`."""
    for unit in ("", "k", "M", "G", "T"):
        if abs(value) < 999.5:
            return f"{value:.0f}{unit}" if not unit or value >= 9.95 else f"{value:.1f}{unit}"
        value /= 1000
    return f"{value:.0f}P"


def money(micros: float) -> str:
    """Return an amount of money, which is given in millionths."""
    return f"{micros / 1e6:.2f}"


def bar(ratio: float, width: int) -> tuple[str, str]:
    """Return the full and the empty part of a bar of this width."""
    full = min(max(round(min(ratio, 1.0) * width), 1 if ratio > 0 else 0), width)
    return "█" * full, "░" * (width - full)


def of_call(data: Mapping[str, Any]) -> str:
    """Return the line about a call, from the data of an event of a run or of the agent."""
    phase, tool = str(data.get("phase", "")), harmless(data.get("tool"), 40)
    detail = data.get("error") or data.get("reason") or data.get("why") or ""
    if phase == "approval":
        state = data.get("decision") or data.get("state")
        return f"? {tool} waits for approval" if state == "requested" else f"{tool}: approval {harmless(state, 20)}"
    if phase == "proposed":
        detail = _arguments(data.get("params"))
    elif phase == "result":
        detail = data.get("output")
    elif phase == "progress":
        detail = data.get("progress")
    status = data.get("status") if phase in ("error", "skipped") else ""
    return " ".join(filter(None, (SIGNS.get(phase, "·"), tool, harmless(status, 20), harmless(detail))))


def _arguments(params: Any) -> str:
    if not isinstance(params, Mapping):
        return ""
    return ", ".join(f"{harmless(key, 30)}={harmless(value, 80)}" for key, value in list(params.items())[:8])


def of_event(event: Mapping[str, Any]) -> tuple[str, str]:
    """Return the line of an event, "" for none, and its tone: `good`, `bad`, `warn`, `plain` or `quiet`."""
    kind, data = str(event["type"]), event["data"]
    entry = _LINES.get(kind)
    if entry is not None:
        tone, words = entry
        if kind == "Gap" and data["missed"] is None:
            data = {"missed": "some"}
        text = words.format_map(_EventValues({**data, "run_id": harmless(event["run_id"], 12)}))
        return " ".join(text.split()), _tone(kind, tone, data)
    if "tool" in data and "call" in data:
        return of_call(data), _CALL_TONES.get(str(data.get("phase")), "quiet")
    values = " ".join(harmless(value, 60) for value in data.values() if isinstance(value, (str, int, float)) and value)
    return f"{kind}: {values}" if values else kind, "quiet"


class _EventValues(dict[str, Any]):
    """Values of an event for a format string, escaped; "" for a missing one."""

    def __getitem__(self, key: str) -> Any:
        value = self.get(key)
        return value if isinstance(value, float) else harmless(value)


_CALL_TONES = {"result": "good", "error": "bad", "skipped": "warn", "in_doubt": "warn", "approval": "warn"}
#: The tone and the format of the line of each event; an empty format: no line.
_LINES: dict[str, tuple[str, str]] = {
    "LoopStarted": ("", ""), "PhaseStarted": ("", ""), "PhaseCompleted": ("", ""), "AssistantDelta": ("", ""),
    "CallProposed": ("", ""), "CallProgressed": ("", ""), "MessageOutcome": ("", ""),
    "LoopCompleted": ("plain", "cycle {outcome}"),
    "ErrorOccurred": ("bad", "{phase} failed: {message}"),
    "StateChanged": ("warn", "agent {old} → {new}"),
    "HealthAlert": ("bad", "alert {kind}: {message}"),
    "HealthRecovered": ("good", "alert {kind} is over"),
    "ModelStateChanged": ("warn", "model {model} {state} {reason}"),
    "RecoveryStep": ("warn", "{step} {part}: {reason}"),
    "SensorQuarantined": ("bad", "sensor {sensor} in quarantine: {reason}"),
    "SensorRestored": ("good", "sensor {sensor} is back"),
    "RunAccepted": ("plain", "run {run_id} accepted"),
    "RunStarted": ("plain", "run {run_id} begins"),
    "RunEnded": ("good", "run {run_id} {status}: {error} {reply}"),
    "DeadLettered": ("bad", "{item} put aside: {reason}"),
    "BudgetWarned": ("warn", "budget {budget}: {measure}"),
    "BudgetExceeded": ("bad", "budget {budget} exceeded by {what}"),
    "BudgetRenewed": ("good", "budget {budget} is free again"),
    "MessageSent": ("plain", "told {route}: {text}"),
    "Gap": ("warn", "{missed} events were missed"),
    "ConfigReloaded": ("plain", "configuration read again"),
}  # fmt: skip


def _tone(kind: str, tone: str, data: Mapping[str, Any]) -> str:
    """Return the tone of an event, which depends on the outcome of cycles and runs."""
    if kind == "LoopCompleted":
        return {"acted": "good", "failed": "bad", "degraded": "warn", "interrupted": "warn"}.get(
            data["outcome"], "quiet"
        )
    return "bad" if kind == "RunEnded" and data.get("status") != "ok" else tone
