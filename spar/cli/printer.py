"""Events for people: those of runs as they come, each live event as one line, and texts escaped for a terminal.

Shown texts may come from strangers. Escaped, no character of them moves the cursor, is invisible, or changes the
direction of writing. A text of a megabyte costs no more than its shown part.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import click

from spar.cli.context import write
from spar.data.text import is_hidden, one_line, printable
from spar.events.table import BY_NAME, LiveEvent, row_of_call, sentence_of

#: The line for a run that ended well without an answer.
NO_ANSWER = "(handled, no answer)"
#: The line for a run that people have ended, by its error.
CALLED_OFF = {
    "aborted": "stopped",
    "reset": "stopped: the conversation began anew",
    "superseded": "stopped: a newer message took its place",
    "interrupted by a newer message": "stopped: a newer message took its place",
}
#: Phases of a call that the lines of a verbose run report as well.
_IN_LINES = ("start", "result", "error", "skipped")


def failure_line(error: str) -> str:
    """Return the line for a run that ended without an answer; one that people ended has not failed."""
    return CALLED_OFF.get(error) or f"the run failed: {error}"


class RunPrinter:
    """Printer of the events of runs; it remembers the printed part of the answer.

    `put` prints a text of the answer, `put_aside` one about it; a subclass may show them elsewhere.

    Attributes: is_verbose: whether it prints lines about calls; shows_thoughts: whether it prints the reasoning.
    """

    def __init__(self, *, is_verbose: bool = True, shows_thoughts: bool = False) -> None:
        self._text = ""  # the printed text of the answer, since its last beginning
        self._is_in_line = False  # whether its last line has no end yet
        self._is_thinking = self.has_thought = self._has_begun = False
        self._is_void = False  # whether the printed text is no longer valid
        self._has_called = False  # whether the printed text is that of a plan before its calls, which stands
        self._sends_lines = False  # whether the run itself sends lines about calls (its option `verbose`)
        self.is_verbose, self.shows_thoughts = is_verbose, shows_thoughts

    def show(self, event: dict[str, Any]) -> None:
        """Print an event."""
        data = event["data"]
        match event["stream"]:
            case "assistant" if "text" in data:
                self._write(data["text"], is_new=data["reset"])
            case "assistant" if not data["is_answer"] and data.get("kind") != "reasoning":
                self.end_line()
                self.put(data["sent"])
            case "reasoning" if "text" in data and self.shows_thoughts:
                self._think(data["text"])
            case "verbose":
                self._note(data["line"])
            case "tool" if data["phase"] == "proposed":
                self._has_called = True
            case "tool" if self._sends_lines and data["phase"] in _IN_LINES:
                pass
            case "tool" if self.is_verbose and (line := line_of_call(data)):
                self._note(line)
            case "lifecycle" if data["phase"] == "start":
                self._sends_lines = bool((data.get("options") or {}).get("verbose"))
            case "compaction" if data["phase"] == "start":
                self._note(BY_NAME["CompactionStarted"].sentence)
            case "gap" if data["missed"] is None and self._has_begun:
                pass  # the service was restarted: it writes the answer again, and `_tell_void` says so
            case "gap":
                number = "some" if data["missed"] is None else data["missed"]
                self._note(f"{number} earlier events are not kept any more")
                self._text = ""  # pieces of the answer may be missing
            case "lifecycle" if data["phase"] == "outcome" and data["outcome"] != "started":
                self._note(sentence_of(BY_NAME["MessageOutcome"], data))
            case "lifecycle" if data["phase"] == "end":
                self._answer(data.get("reply") or data["output"])
            case "lifecycle" if data["phase"] == "error":
                self._note(failure_line(data["error"]))
        self._has_begun = True

    def _think(self, text: str) -> None:
        """Print a piece of the reasoning on standard error."""
        self._tell_void()
        self.end_line()
        self._is_thinking = self.has_thought = True
        self.put_aside(text, end="")

    def _write(self, text: str, *, is_new: bool) -> None:
        """Print a piece of the answer; a new text makes the printed one void."""
        self._end_thoughts()
        if is_new and self._text:
            self.end_line()
            self._text, self._is_void, self._has_called = "", not self._has_called, False
        if text:
            self._tell_void()
        self._text += text
        self._is_in_line = not text.endswith("\n") if text else self._is_in_line
        self.put(text, end="")

    def _tell_void(self) -> None:
        """Print that the answer is written again, once its new text comes; an aborted run writes none."""
        if self._is_void:
            self._is_void = False
            self._note("it is written anew")

    def _answer(self, output: Any) -> None:
        """Print the whole answer, unless its pieces were printed already."""
        self._tell_void()
        whole = output if isinstance(output, str) else json.dumps(output, indent=2, ensure_ascii=False)
        if output is None and not self._text:
            whole = NO_ANSWER
        is_written = output is None or self._text.strip() == whole.strip()
        self.end_line()
        if not (self._text and is_written):
            self.put(whole)

    def _note(self, line: str) -> None:
        """Print a line on standard error."""
        self.end_line()
        self._end_thoughts()
        self.put_aside(one_line(printable(line)))

    def _end_thoughts(self) -> None:
        """End the line of the reasoning."""
        if self._is_thinking:
            self._is_thinking = False
            self.put_aside("")

    def begin_anew(self) -> None:
        """Forget the printed text, before another run is shown."""
        self._text, self._has_begun, self._is_void, self._is_in_line = "", False, False, False

    def end_line(self) -> None:
        """End the incomplete line of the answer."""
        if self._is_in_line:
            self._is_in_line = False
            self.put("")

    def put(self, text: str, end: str = "\n") -> None:
        """Print a text of the answer."""
        write(printable(text), end=end)

    def put_aside(self, text: str, end: str = "\n") -> None:
        """Print a text about the answer: thoughts, calls, notes."""
        click.echo(printable(text), nl=bool(end), err=True)


def line_of_call(data: dict[str, Any]) -> str:
    """Return the line about a call, "" for none."""
    row = row_of_call(data)
    if row is None:
        return ""
    line = sentence_of(row, data, _shown)
    return f"{line}; spar approvals list" if data.get("state") == "requested" else line


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)[:200]


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
