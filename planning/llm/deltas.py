"""Publisher of an answer's text while the model writes it, and of the thoughts that the model writes before it.

A model answers `NO_REPLY` to say nothing to people. Text that may still become this word is held back, so that people
never see a part of it. Where an answer cannot be used, an event takes back the text that was shown. The text ends with
the model's first call.
"""

from __future__ import annotations

from collections.abc import Callable

from planning.ports import ThoughtDelta
from spar.data.reply import may_become_silent
from spar.events import AssistantDelta, Event, ReasoningDelta
from spar.protocols import RunContext


class DeltaPublisher:
    """Publisher of one request's answer as `AssistantDelta`s, and of its thoughts as `ReasoningDelta`s if the run wants
    them. Without a run (None) nothing is published."""

    __slots__ = ("_has_thought", "_held", "_publish", "_run", "shown")

    def __init__(self, publish: Callable[[Event], object], run: RunContext | None) -> None:
        self._publish, self._run = publish, run
        self._held: str | None = ""
        self._has_thought = False
        #: Whether people see any text of the answer now.
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
        """Publish that the text ends here, because calls follow."""
        if self.shown and self._run is not None:
            self._publish(AssistantDelta(run_id=self._run.id, text="", ends=True))

    def end(self, *, is_silent: bool) -> None:
        """End the answer: publish the text that was held back, unless the answer is silent."""
        text, self._held = self._held, None
        if text and text.strip() and not is_silent:
            self._show(text)

    def take_back(self) -> None:
        """Publish that the text so far is void, and begin anew."""
        if self.shown and self._run is not None:
            self._publish(AssistantDelta(run_id=self._run.id, text="", reset=True))
        self._held, self.shown = "", False

    def forget_thoughts(self) -> None:
        """Publish that the thoughts so far are void, because the answer failed."""
        self.think(ThoughtDelta("", reset=True))
        self._has_thought = False

    def _show(self, text: str) -> None:
        if text and self._run is not None:
            self.shown = True
            self._publish(AssistantDelta(run_id=self._run.id, text=text))
