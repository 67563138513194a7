"""Formatting of events and figures in few words, and escaping of texts for a terminal. Pure functions.

Shown texts may come from strangers. Escaped, no character of them moves the cursor, is invisible, or changes the
direction of writing. A text of a megabyte costs no more than its shown part.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from spar.data.text import is_hidden
from spar.events.table import BY_NAME, LiveEvent, row_of_call, sentence_of

#: Characters of one text in a line.
LINE = 300
#: The sign for each phase of a call, and for an approval that is asked for.
SIGNS = {"result": "✓", "error": "✗", "skipped": "–", "in_doubt": "?", "requested": "?", "start": "▸", "progress": "…"}
#: The tone of the end of a cycle, by its outcome.
TONES = {"acted": "good", "failed": "bad", "degraded": "warn", "interrupted": "warn"}


def harmless(text: Any, room: int = LINE) -> str:
    """Return at most `room` characters of any value as one line, with invisible characters escaped."""
    whole = (
        text if isinstance(text, str) else "" if text is None else json.dumps(text, ensure_ascii=False, default=repr)
    )
    shown = _escaped(" ".join(whole[: 4 * room].split()))
    is_cut = len(shown) > room or len(whole) > 4 * room
    return f"{shown[: room - 1]}…" if is_cut else shown


def harmless_lines(text: str) -> list[str]:
    """Return all lines of a text, with invisible characters escaped."""
    return [_escaped(line) for line in text.expandtabs(4).split("\n")]


def _escaped(line: str) -> str:
    if line.isascii() and line.isprintable():
        return line
    return "".join(f"\\u{{{ord(sign):x}}}" if sign != " " and is_hidden(sign) else sign for sign in line)


def lasted(seconds: float | None) -> str:
    """Return a duration in at most six characters: `0.3 s`, `12 s`, `4 m`, `3 h`, `9 d`; "" for None."""
    if seconds is None:
        return ""
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 9.95 else f"{max(seconds, 0.0):.1f} s"
    size, unit = (60, "m") if seconds < 7200 else (3600, "h") if seconds < 172_800 else (86_400, "d")
    return f"{seconds // size:.0f} {unit}"


def number(value: float) -> str:
    """Return a number in at most five characters: `999`, `1.2k`, `34M`."""
    for unit in ("", "k", "M", "G", "T"):
        if abs(value) < 999.5:
            return f"{value:.0f}{unit}" if not unit or value >= 9.95 else f"{value:.1f}{unit}"
        value /= 1000
    return f"{value:.0f}P"


def clock(at: str | datetime | None) -> str:
    """Return a time of the service as the local time of day; "" for None."""
    if not at:
        return ""
    return (at if isinstance(at, datetime) else datetime.fromisoformat(at)).astimezone().strftime("%H:%M:%S")


def of_call(data: Mapping[str, Any]) -> str:
    """Return the line about a call, from the data of an event of a run or of the agent."""
    row = row_of_call(data)
    sentence = harmless(data.get("tool"), 40) if row is None else sentence_of(row, data, harmless)
    detail = arguments(data["params"]) if "params" in data else harmless(data.get("output"))
    return " ".join(filter(None, (SIGNS.get(str(data.get("state") or data.get("phase")), "·"), sentence, detail)))


def arguments(params: Any) -> str:
    """Return the parameters of a call in short."""
    if not isinstance(params, Mapping):
        return ""
    return ", ".join(f"{harmless(key, 30)}={harmless(value, 80)}" for key, value in list(params.items())[:8])


def of_event(live: LiveEvent) -> tuple[str, str]:
    """Return the line of an event, "" for none, and its tone: `good`, `bad`, `warn`, `plain` or `quiet`."""
    row, data = BY_NAME.get(live.type), live.data
    if row is None:  # of another release
        values = [harmless(value, 60) for value in data.values() if isinstance(value, (str, int, float)) and value]
        return (f"{live.type}: {' '.join(values)}" if values else live.type), "quiet"
    if not row.tone or (live.type, data.get("outcome")) == ("LoopCompleted", "idle"):
        return "", ""
    if row.stream == "tool":
        return of_call(data), row.tone
    if live.type == "Gap" and data["missed"] is None:
        data = {"missed": "some"}
    text = sentence_of(row, {**data, "run_id": live.run_id[:12]}, harmless)
    if live.type == "LoopCompleted":
        return text, TONES.get(data["outcome"], "quiet")
    return text, "bad" if live.type == "RunEnded" and data.get("status") != "ok" else row.tone
