"""Command `follow`: prints the answer of a run on standard output as it is written, and its calls on standard error.

When the connection breaks, or the service is restarted, it continues after the last event.
"""

from __future__ import annotations

import json
from typing import Any

import click

from spar.cli.client import service
from spar.cli.context import Options, fail, write
from spar.cli.nouns import completion
from spar.client.client import Client, NotRunningError
from spar.data.text import one_line, printable
from spar.events.table import BY_NAME, row_of_call, sentence_of
from spar.operations.runs import FollowRun, RunId, Wait, show, wait
from spar.operations.runs import follow as follow_events
from spar.records.runs import RunStatus
from spar.service import exit_codes as exits

#: The line for a run that ended well without an answer.
NO_ANSWER = "(handled, no answer)"
#: The line for a run without reasoning although `--reasoning` was given.
NO_THOUGHTS = 'no thoughts came: the model told none, or runs.reasoning is "off"'
#: The line for a run that people have ended, by its error.
CALLED_OFF = {
    "aborted": "stopped",
    "reset": "stopped: the conversation began anew",
    "superseded": "stopped: a newer message took its place",
    "interrupted by a newer message": "stopped: a newer message took its place",
}
#: Phases of a call that the lines of a verbose run report as well.
_IN_LINES = ("start", "result", "error", "skipped")


@click.command()
@click.argument("run_id", shell_complete=completion(follow_events, "run_id"))
@click.option("--reasoning", is_flag=True, help="Print the model's reasoning on standard error (runs.reasoning).")
@click.option("--after", type=click.IntRange(0), default=0, help="Only the events after the one with this seq.")
@click.pass_obj
def follow(options: Options, run_id: str, reasoning: bool, after: int) -> int:
    """Follow a run to its end: print its calls, and its answer as it is written. With --json, one event a line.

    Exit 0 when it ended well, 1 when it failed. Stopping this command does not stop the run (spar runs abort does).

    \b
    Examples:
      spar runs follow "$(spar send --no-wait 'tell me a long story')"
      spar --json runs follow 18ea256e775307670000245362 --after 17
    """
    with service(options) as client:
        client.answer(show, RunId(run_id))  # without a service, or such a run, the command ends at once
        return follow_run(options, client, run_id, after, shows_thoughts=reasoning)


def has_failed(status: RunStatus) -> bool:
    """Return whether an answered run has a failed call. A parked call, which waits for an answer, has not failed."""
    return any(entry["error"]["kind"] != "parked" for entry in status.errors)


def follow_run(options: Options, client: Client, run_id: str, after: int = 0, *, shows_thoughts: bool = False) -> int:
    """Print the events of a run until it ends; return the exit code."""
    printer, event = RunPrinter(shows_thoughts=shows_thoughts), dict[str, Any]()
    try:
        for event in client.events(follow_events, FollowRun(run_id, str(after) if after else None)):
            after = event["seq"]
            if options.as_json:
                write(json.dumps(event))
            else:
                printer.show(event)
    except NotRunningError as error:
        fail(f"{error}; go on with: spar runs follow {run_id} --after {after}", exits.UNAVAILABLE)
    if shows_thoughts and not (printer.has_thought or options.as_json):
        click.echo(NO_THOUGHTS, err=True)
    if event["data"]["phase"] == "error":
        return exits.FAILED
    return exits.FAILED if has_failed(client.call(wait, Wait(run_id, 0.0))) else exits.OK


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
        self._sends_lines = False  # whether the run itself sends lines about calls (its option `verbose`)
        self.is_verbose, self.shows_thoughts = is_verbose, shows_thoughts

    def show(self, event: dict[str, Any]) -> None:
        """Print an event."""
        data = event["data"]
        self._show(event["stream"], data)
        self._has_begun = True

    def _show(self, stream: str, data: dict[str, Any]) -> None:
        match stream:
            case "assistant" if "text" in data:
                self._write(data["text"], is_new=data["reset"])
            case "assistant" if not data["is_answer"] and data.get("kind") != "reasoning":
                self.end_line()
                self.put(data["sent"])
            case "reasoning" if "text" in data and self.shows_thoughts:
                self._think(data["text"])
            case "verbose":
                self._note(data["line"])
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
            self._text, self._is_void = "", True
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
    if row is None or data["phase"] == "proposed":
        return ""
    line = sentence_of(row, data, _shown)
    return f"{line}; spar approvals list" if data.get("state") == "requested" else line


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)[:200]
