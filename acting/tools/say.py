"""`say`: tells people something while a run goes on, for what cannot wait for its answer.

It goes where the run's answer goes, or by another route that is named, through the agent (`Host.deliver`): hooks have
their say there, and what a run has told people before on the same route is not told again, its answer included.
`notify` is for what people should be called to; this is for those who already talk with the agent.

It is not safe with text from outside, unlike `notify`: whoever wrote a page could have it say what looks like the
agent's own word, and choose to whom. Calls that follow from such text are asked about, unless a rule lets them.
"""

from __future__ import annotations

from typing import Any

from acting.tooling.text import object_schema, text_of
from acting.tooling.tool_context import ToolContext
from spar.errors import PermanentError
from spar.protocols import Effect, Host

_LONGEST = {"text": 20_000, "to": 200}


class SayTool:
    """Says `text` to those who talk with the run's session, or by the route `to`."""

    name = "say"
    effect: Effect = "once"
    timeout = 30.0
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
        """Say it through this agent."""
        self._host = host

    async def __call__(self, *, text: str, to: str = "", context: ToolContext | None = None) -> dict[str, Any]:
        """Say it. Returns whether it was `delivered`, and if not, `why`.

        Raises: ValueError for what is no such text; PermanentError where nobody can be told anything.
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
