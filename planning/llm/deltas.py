"""Publishes an answer to people while it is being written, and the thoughts before it to whoever reads along.

Text that may yet turn out to be `NO_REPLY` is held back until it is something else, so that of a silent answer nothing
was ever to be seen. When an answer comes to nothing, what was shown of it is taken back. Text ends where the model
begins to call.
"""

from __future__ import annotations

from collections.abc import Callable

from planning.ports import ThoughtDelta
from spar.data.reply import may_become_silent
from spar.events import AssistantDelta, Event, ReasoningDelta
from spar.protocols import RunContext


class DeltaPublisher:
    """Shows the answer of one request of a run, as `AssistantDelta`s, and its thoughts as `ReasoningDelta`s where the
    run wants them; of no run (None) nothing is shown."""

    __slots__ = ("_has_thought", "_held", "_publish", "_run", "shown")

    def __init__(self, publish: Callable[[Event], object], run: RunContext | None) -> None:
        self._publish, self._run = publish, run
        self._held: str | None = ""
        self._has_thought = False
        #: Whether anything is to be seen.
        self.shown = False

    def tell(self, text: str) -> None:
        """Publish a further piece of the text."""
        if self._held is None:
            self._show(text)
            return
        self._held += text
        if not may_become_silent(self._held):
            text, self._held = self._held, None
            self._show(text)

    def think(self, thought: ThoughtDelta) -> None:
        """Publish a further thought, if the run wants thoughts."""
        run = self._run
        if run is None or run.reasoning == "off" or not (thought.text or (thought.reset and self._has_thought)):
            return
        self._has_thought = True
        self._publish(ReasoningDelta(run_id=run.id, text=thought.text, request=run.number, reset=thought.reset))

    def text_ends(self) -> None:
        """End the text so far, for calls follow."""
        if self.shown and self._run is not None:
            self._publish(AssistantDelta(run_id=self._run.id, text="", ends=True))

    def end(self, *, is_silent: bool) -> None:
        """End the answer: show what was held back, unless it is silent."""
        text, self._held = self._held, None
        if text and text.strip() and not is_silent:
            self._show(text)

    def take_back(self) -> None:
        """Take back the text that was shown, and begin anew."""
        if self.shown and self._run is not None:
            self._publish(AssistantDelta(run_id=self._run.id, text="", reset=True))
        self._held, self.shown = "", False

    def forget_thoughts(self) -> None:
        """Take back the thoughts as well: the request is made again."""
        self.think(ThoughtDelta("", reset=True))
        self._has_thought = False

    def _show(self, text: str) -> None:
        if text and self._run is not None:
            self.shown = True
            self._publish(AssistantDelta(run_id=self._run.id, text=text))
