"""Values of the prompt that hooks are shown and may rewrite: the files that a model is told, and a request's draft."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from spar.types import Trust


class PromptFile(Struct, frozen=True):
    """A text that a model is told before each request.

    `origin` says where it is from (a path, or whatever a hook writes), `left_out` what of it does not stand in `text`
    ("" for nothing). One that is not trusted stands with the material to judge, never with the instructions, and what
    is planned from it is not trusted either.
    """

    name: str
    text: str
    trust: Trust = "untrusted"
    origin: str = ""
    left_out: str = ""


class RequestDraft(Struct, frozen=True):
    """A request before it is composed, as hooks at `before_request` may rewrite it.

    `instructions` may be replaced, or added to (`prepend`, `append`). `context` holds what hooks add: texts, or data as
    wire messages. `tools` are the names of those offered: hooks may leave some out and add none. `model` is the one to
    be asked first, one of `models`; "" leaves that to the configuration. `trust` may be lowered for what a hook adds
    from outside, never raised.
    """

    instructions: str = ""
    context: tuple[str | dict[str, Any], ...] = ()
    tools: tuple[str, ...] = ()
    model: str = ""
    models: tuple[str, ...] = ()
    trust: Trust = "trusted"

    def prepend(self, text: str) -> RequestDraft:
        """Return the draft with a text before its instructions."""
        return replace(self, instructions=f"{text}\n\n{self.instructions}")

    def append(self, text: str) -> RequestDraft:
        """Return the draft with a text after its instructions: what providers have cached of them stays good."""
        return replace(self, instructions=f"{self.instructions}\n\n{text}")

    def add(self, *context: str | dict[str, Any]) -> RequestDraft:
        """Return the draft with more context."""
        return replace(self, context=(*self.context, *context))

    def without(self, *tools: str) -> RequestDraft:
        """Return the draft without these tools."""
        return replace(self, tools=tuple(each for each in self.tools if each not in tools))
