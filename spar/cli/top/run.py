"""Screen of one run: its text as it is written, and its calls of tools, from the event stream of the run."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Footer

from spar.cli.top.facts import RunFacts
from spar.cli.top.rows import Line, Page
from spar.cli.top.words import harmless, harmless_lines, of_call
from spar.client.client import Client, EventReader
from spar.events.table import BY_NAME, row_of_call
from spar.operations.runs import FollowRun, follow

#: Bounds of the shown end of a run: characters, and parts (texts and lines about calls).
SHOWN, PARTS = 200_000, 2_000
CUT = "… what came before is not shown here: spar runs follow, spar sessions transcript"
#: Seconds between two updates, and events that one update takes at most.
EVERY, AT_ONCE = 0.15, 2_000


class RunText:
    """Text of a run, collected from its events. Pure.

    Attributes: parts: texts and lines about calls, in order; is_over: whether the run has ended; is_cut: whether the
        first parts were dropped.
    """

    def __init__(self) -> None:
        self.parts: list[Line] = []
        self.is_over = self.is_cut = False
        self._is_writing = False
        self._size = 0

    def apply(self, event: dict[str, Any]) -> None:
        """Apply an event of the run."""
        data = event["data"]
        match event["stream"]:
            case "assistant" if "text" in data:
                self._write(data["text"], is_new=data["reset"])
            case "tool" if data["phase"] != "proposed":
                row = row_of_call(data)
                self._add(of_call(data), (row and row.tone) or "quiet")
            case "lifecycle" if data["phase"] in ("end", "error"):
                self.is_over = True
                answer = data.get("reply") or data.get("output") or ""
                whole = answer if isinstance(answer, str) else harmless(answer, 10_000)
                if data["phase"] == "error":
                    self._add(f"✗ the run failed: {harmless(data['error'])}", "bad")
                elif whole.strip() and whole.strip() not in {
                    text.strip() for text, tone in self.parts if tone == "plain"
                }:
                    self._add(whole, "plain")
            case "compaction" if data["phase"] == "start":
                self._add(BY_NAME["CompactionStarted"].sentence, "quiet")
            case "gap":
                self._add("… earlier events are not kept any more", "warn")

    def lines(self) -> list[Line]:
        """Return the shown lines."""
        head: list[Line] = [(CUT, "warn")] if self.is_cut else []
        return head + [(line, tone) for text, tone in self.parts for line in harmless_lines(text)]

    def _write(self, text: str, *, is_new: bool) -> None:
        """Append a piece to the text that is being written; a new one replaces that text."""
        if self._is_writing and is_new:
            self._size -= len(self.parts.pop()[0])
            self._is_writing = False
        if self._is_writing:
            before, tone = self.parts[-1]
            self.parts[-1] = (self._end_of(before + text), tone)
            self._size += len(self.parts[-1][0]) - len(before)
        elif text:
            self._add(text, "plain")
            self._is_writing = True
        self._bound()

    def _add(self, text: str, tone: str) -> None:
        self._is_writing = False
        text = self._end_of(text)
        self.parts.append((text, tone))
        self._size += len(text)
        self._bound()

    def _end_of(self, text: str) -> str:
        self.is_cut = self.is_cut or len(text) > SHOWN // 2
        return text[-SHOWN // 2 :]

    def _bound(self) -> None:
        """Drop the first parts while there are too many."""
        while len(self.parts) > 1 and (self._size > SHOWN or len(self.parts) > PARTS):
            self.is_cut = True
            self._size -= len(self.parts.pop(0)[0])


class RunScreen(ModalScreen[None]):
    """Screen of one run."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss", "Back")]

    def __init__(self, client: Client, run: RunFacts) -> None:
        super().__init__()
        self._run, self._client = run, client
        self._text = RunText()
        self._reader: EventReader | None = None

    def compose(self) -> ComposeResult:
        with Vertical(id="record"):
            yield Page(id="text", follows=True)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.query_one("#record").border_title = Content(
            f"Run {self._run.id}  session {harmless(self._run.session, 40)}"
        )
        self.query_one(Page).focus()
        self._reader = EventReader(self._client.events(follow, FollowRun(self._run.id), math.inf))
        self.set_interval(EVERY, self.look)

    def on_unmount(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def look(self) -> None:
        """Apply the new events, and draw."""
        if (reader := self._reader) is None:
            return
        new_events = reader.take(AT_ONCE)
        for event in new_events:
            self._text.apply(event)
        if new_events:
            self.query_one(Page).write(self._text.lines())
        state = (
            "has ended"
            if self._text.is_over
            else ""
            if reader.stream.is_live
            else f"away: {harmless(reader.stream.why, 60)}"
        )
        self.query_one("#record").border_subtitle = Content(state)
