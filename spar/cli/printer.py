"""Printer of the events of runs: an answer as it is written, lines about calls, and how a run has ended."""

from __future__ import annotations

import json
from typing import Any

import click

from spar.cli.context import write
from spar.data.text import one_line, printable
from spar.events.table import BY_NAME, row_of_call, sentence_of

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
        self._text, self._has_begun, self._is_void = "", False, False

    def end_line(self) -> None:
        """End the incomplete line of the answer."""
        if self._text and not self._text.endswith("\n"):
            self._text += "\n"
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
