"""Tool `say`: sends people a message during a run, when it cannot wait for the run's answer.

The agent delivers it (`Host.deliver`) on the route of the run's answer, or on another named route. Hooks can refuse it
there, and the same message of a run is not sent twice on one route, its answer included. `notify` calls people's
attention; this tool is for people who already talk with the agent.

It is not safe with text from outside, unlike `notify`: the author of a page could make it send a message that looks
like the agent's own, and choose the receiver. Calls that follow from such text need approval, unless a rule allows
them.
"""

from __future__ import annotations

from typing import Any

from acting.tooling.context import ToolContext
from acting.tooling.tool_schema import object_schema, text_of
from spar.errors import PermanentError
from spar.protocols import Effect, Host

_LONGEST = {"text": 20_000, "to": 200}


class SayTool:
    """Sends `text` to the people of the run's session, or on the route `to`."""

    name = "say"
    effect: Effect = "once"
    timeout = 30.0
    safe_with_untrusted = False
    brings_untrusted = False  # it returns whether it was delivered, in words of its own
    schema = object_schema(
        name,
        "Tell people something now, while the work goes on. Not for the answer itself: that is told at the end.",
        {
            "text": {"type": "string", "description": "what to say", "maxLength": _LONGEST["text"]},
            "to": {
                "type": "string",
                "description": "to whom, if not to those who are talked with",
                "maxLength": _LONGEST["to"],
            },
        },
        "text",
    )

    def __init__(self) -> None:
        self._host: Host | None = None

    def attach(self, host: Host) -> None:
        """Deliver messages through this agent."""
        self._host = host

    async def __call__(self, *, text: str, to: str = "", context: ToolContext | None = None) -> dict[str, Any]:
        """Send the message. Returns whether it was `delivered`, and if not, `why`.

        Raises: ValueError for a text out of bounds; PermanentError without an agent that delivers.
        """
        text_of("text", text, limit=_LONGEST["text"])
        text_of("to", to, limit=_LONGEST["to"], empty=True)
        if not text.strip():
            raise ValueError("'text' must say something, found only white space")
        deliver = self._host.deliver if self._host is not None else None
        if deliver is None or context is None:
            raise PermanentError("nobody can be told anything here: 'say' needs an agent that delivers, try 'notify'")
        route = to or context.session
        if await deliver(context.run_id or "", context.session, route, text):
            return {"delivered": True}
        return {"delivered": False, "why": f"this run has told {route!r} the same before, or a hook is against it"}
