"""Values of the prompt that hooks see and may rewrite: the files that a model reads, and the draft of a request."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from spar.types import Trust


class PromptFile(Struct, frozen=True):
    """Text that a model reads before each request.

    `origin` says where it comes from (a path, or any text of a hook), `left_out` which part of it is missing in `text`
    ("" for none). An untrusted one stands with the material to judge, never with the instructions, and plans made from
    it are untrusted too.
    """

    name: str
    text: str
    trust: Trust = "untrusted"
    origin: str = ""
    left_out: str = ""


class RequestDraft(Struct, frozen=True):
    """Request before it is composed, as hooks at `before_request` may rewrite it.

    `instructions` may be replaced, or extended (`prepend`, `append`). `context` are texts or wire messages that hooks
    add. `tools` are the names of the offered tools: hooks may remove some and add none. `model` is the model to ask
    first, one of `models`; "" leaves the choice to the configuration. `trust` may be lowered for additions from
    outside, never raised.
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
        """Return the draft with a text after its instructions; the providers' caches of the instructions stay valid."""
        return replace(self, instructions=f"{self.instructions}\n\n{text}")

    def add(self, *context: str | dict[str, Any]) -> RequestDraft:
        """Return the draft with more context."""
        return replace(self, context=(*self.context, *context))

    def without(self, *tools: str) -> RequestDraft:
        """Return the draft without these tools."""
        return replace(self, tools=tuple(name for name in self.tools if name not in tools))
