"""Says events and figures in few words, and makes any text fit for a terminal. Pure functions.

What is shown may come from anybody: no character of it moves the cursor, hides, or turns the direction of writing, and
a text of a megabyte costs no more than the part of it that is shown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from spar.data.text import is_hidden

#: Characters of one text in a line.
LINE = 300
#: How a call or a run ended, in one sign.
SIGNS = {"result": "✓", "error": "✗", "skipped": "–", "in_doubt": "?", "start": "▸", "proposed": "·", "progress": "…"}


def harmless(text: Any, room: int = LINE) -> str:
    """Return at most `room` characters of any text on one line, with all that is not seen as it is escaped."""
    said = text if isinstance(text, str) else _plain(text)
    head = " ".join(said[: 4 * room].split())
    shown = head if head.isascii() and head.isprintable() else "".join(map(_seen, head))
    is_cut = len(shown) > room or len(said) > 4 * room
    return f"{shown[: room - 1]}…" if is_cut else shown


def harmless_lines(text: str) -> list[str]:
    """Return all of a text by lines, with all that is not seen as it is escaped; nothing is left out."""
    lines = text.expandtabs(4).split("\n")
    return [line if line.isascii() and line.isprintable() else "".join(map(_seen, line)) for line in lines]


def _seen(sign: str) -> str:
    return f"\\u{{{ord(sign):x}}}" if sign != " " and is_hidden(sign) else sign


def _plain(value: Any) -> str:
    if value is None:
        return ""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return repr(value)


def lasted(seconds: float | None) -> str:
    """Return a duration in at most six characters: `0.3 s`, `12 s`, `4 m`, `3 h`, `9 d`; "" for none."""
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
    """Return an amount of money, which is told in millionths."""
    return f"{micros / 1e6:.2f}"


def bar(ratio: float, width: int) -> tuple[str, str]:
    """Return the full and the empty part of a bar."""
    full = min(max(round(min(ratio, 1.0) * width), 1 if ratio > 0 else 0), width)
    return "█" * full, "░" * (width - full)


def of_call(data: Mapping[str, Any]) -> str:
    """Return what a call does, from the events of a run or of the agent."""
    phase, tool = str(data.get("phase", "")), harmless(data.get("tool"), 40)
    said = data.get("error") or data.get("reason") or data.get("why") or ""
    if phase == "approval":
        state = data.get("decision") or data.get("state")
        return f"? {tool} waits for approval" if state == "requested" else f"{tool}: approval {harmless(state, 20)}"
    if phase == "proposed":
        said = _given(data.get("params"))
    elif phase == "result":
        said = data.get("output")
    elif phase == "progress":
        said = data.get("progress")
    status = data.get("status") if phase in ("error", "skipped") else ""
    return " ".join(filter(None, (SIGNS.get(phase, "·"), tool, harmless(status, 20), harmless(said))))


def _given(params: Any) -> str:
    if not isinstance(params, Mapping):
        return ""
    return ", ".join(f"{harmless(key, 30)}={harmless(value, 80)}" for key, value in list(params.items())[:8])


def of_event(event: Mapping[str, Any]) -> tuple[str, str]:
    """Return what an event says in a line ("" for nothing), and how it is meant: `good bad warn plain quiet`."""
    kind, data = str(event["type"]), event["data"]
    told = _OF.get(kind)
    if told is not None:
        tone, words = told
        if kind == "Gap" and data["missed"] is None:
            data = {"missed": "some"}
        text = words.format_map(_Said({**data, "run_id": harmless(event["run_id"], 12)}))
        return " ".join(text.split()), _tone(kind, tone, data)
    if "tool" in data and "call" in data:
        return of_call(data), _CALL_TONES.get(str(data.get("phase")), "quiet")
    said = " ".join(harmless(value, 60) for value in data.values() if isinstance(value, (str, int, float)) and value)
    return f"{kind}: {said}" if said else kind, "quiet"


class _Said(dict[str, Any]):
    """The values of an event, each harmless; "" for what it does not say."""

    def __getitem__(self, key: str) -> Any:
        value = self.get(key)
        return value if isinstance(value, float) else harmless(value)


_CALL_TONES = {"result": "good", "error": "bad", "skipped": "warn", "in_doubt": "warn", "approval": "warn"}
_OF: dict[str, tuple[str, str]] = {
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
    if kind == "LoopCompleted":
        return {"acted": "good", "failed": "bad", "degraded": "warn", "interrupted": "warn"}.get(
            data["outcome"], "quiet"
        )
    return "bad" if kind == "RunEnded" and data.get("status") != "ok" else tone
