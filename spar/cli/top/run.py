"""Screen of one run: its text as it is written, and its calls of tools, from the event stream of the run."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from textual.content import Content

from spar.cli.top.facts import RunFacts
from spar.cli.top.rows import TextScreen
from spar.cli.top.words import harmless, harmless_lines, of_call
from spar.client.async_client import Paced
from spar.client.client import Client, EventReader
from spar.events.table import BY_NAME
from spar.operations.runs import FollowRun, follow

#: Characters of the shown end of a run.
SHOWN = 200_000
CUT = "… what came before is not shown here: spar runs follow, spar sessions transcript"
#: Seconds between two drawings of what arrives, and events that one takes at most.
EVERY, AT_ONCE = 0.15, 2_000


class RunText:
    """Text of a run, collected from its events. Pure.

    Attributes: text: the answers and the lines about calls, in order, escaped, at most the last `SHOWN` characters;
        is_over: whether the run has ended.
    """

    def __init__(self) -> None:
        self.is_over = False
        self._before, self._answer, self._last = "", "", ""

    def apply(self, event: dict[str, Any]) -> None:
        """Apply an event of the run."""
        data = event["data"]
        match event["stream"]:
            case "assistant" if "text" in data:
                self._answer = (("" if data["reset"] else self._answer) + data["text"])[-SHOWN:]
            case "tool" if data["phase"] != "proposed":
                self._add(of_call(data))
            case "lifecycle" if data["phase"] in ("end", "error"):
                self.is_over = True
                answer = data.get("reply") or data.get("output") or ""
                whole = answer if isinstance(answer, str) else harmless(answer, 10_000)
                if data["phase"] == "error":
                    self._add(f"✗ the run failed: {harmless(data['error'])}")
                elif whole.strip() not in ("", self._answer.strip(), self._last.strip()):
                    self._add("")
                    self._answer = whole
            case "compaction" if data["phase"] == "start":
                self._add(BY_NAME["CompactionStarted"].sentence)
            case "gap":
                self._add("… earlier events are not kept any more")

    @property
    def text(self) -> str:
        whole = self._before + "\n".join(harmless_lines(self._answer))
        return whole if len(whole) <= SHOWN else f"{CUT}\n{whole[-SHOWN:]}"

    def _add(self, line: str) -> None:
        """Add an escaped line behind the answer that was written so far, which is over then."""
        lines = [*(harmless_lines(self._answer) if self._answer else ()), *filter(None, [line])]
        self._before = (self._before + "".join(f"{line}\n" for line in lines))[-SHOWN - 1 :]
        self._last, self._answer = self._answer or self._last, ""


class RunScreen(TextScreen):
    """Screen of one run."""

    def __init__(self, client: Client, run: RunFacts) -> None:
        super().__init__(f"Run {run.id}  session {harmless(run.session, 40)}", follows=True)
        self._run, self._client = run, client
        self._text = RunText()
        self._reader: EventReader | None = None

    def on_mount(self) -> None:
        self._arrivals = Paced(partial(self.call_later, self.look), EVERY)
        self._reader = EventReader(self._client.events(follow, FollowRun(self._run.id), math.inf), self._arrivals.ask)

    def on_screen_resume(self) -> None:
        self.look()

    def on_unmount(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def look(self) -> None:
        """Apply the new events, and draw."""
        if (reader := self._reader) is None or not (self.is_current and self.app.is_running):  # closing, or covered
            return
        new_events = reader.take(AT_ONCE)
        for event in new_events:
            self._text.apply(event)
        if len(new_events) == AT_ONCE:
            self._arrivals.ask()
        if new_events:
            self.page.write(self._text.text)
        away = "" if reader.stream.is_live else f"away: {harmless(reader.stream.why, 60)}"
        state = "has ended" if self._text.is_over else away
        self.query_one("#record").border_subtitle = Content(state)
