"""Publishes an answer to people while it is being written.

Text that may yet turn out to be `NO_REPLY` is held back until it is something else, so that of a silent answer nothing
was ever to be seen. When an answer comes to nothing, what was shown of it is taken back.
"""

from __future__ import annotations

from collections.abc import Callable

from spar.data.reply import may_become_silent
from spar.events import AssistantDelta


class DeltaPublisher:
    """Shows the answer of one request of a run, as `AssistantDelta`s; of no run (None) nothing is shown."""

    __slots__ = ("_held", "_publish", "_run_id", "shown")

    def __init__(self, publish: Callable[[AssistantDelta], object], run_id: str | None) -> None:
        self._publish, self._run_id = publish, run_id
        self._held: str | None = ""
        #: Whether anything is to be seen.
        self.shown = False

    def tell(self, text: str) -> None:
        """A further piece."""
        if self._held is None:
            self._show(text)
            return
        self._held += text
        if not may_become_silent(self._held):
            text, self._held = self._held, None
            self._show(text)

    def end(self, *, is_silent: bool) -> None:
        """There is no more to come; what was held back is shown, unless it is silent."""
        text, self._held = self._held, None
        if text and text.strip() and not is_silent:
            self._show(text)

    def take_back(self) -> None:
        """Take back the text that was shown, and begin anew."""
        if self.shown and self._run_id is not None:
            self._publish(AssistantDelta(run_id=self._run_id, text="", reset=True))
        self._held, self.shown = "", False

    def _show(self, text: str) -> None:
        if text and self._run_id is not None:
            self.shown = True
            self._publish(AssistantDelta(run_id=self._run_id, text=text))
