"""The world that one killed agent lives in: a folder with its state, the ledgers, and tools that leave traces there.

Nothing here is told by the agent: a tool notes its effect in the ledger at the moment in which the world changes, the
producer what it was promised, the person what was decided.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from acting import ToolContext
from spar.failpoints import crashpoint
from spar.protocols import Home
from spar.protocols.tools import tool
from tests.faults.ledger import Ledger

Effect = Literal["read", "idempotent", "once"]


class Want(Struct, frozen=True):
    """One step that an event must lead to: its effect, whether a person is asked, and which steps it builds on.

    `is_refused`: the person is against it, so that it must not happen.
    """

    event: str
    step: str
    effect: Effect
    asks: bool = False
    after: tuple[str, ...] = ()
    is_refused: bool = False


class World:
    """`events`: what the producer offered and was promised; `effects`: what happened; `approvals`, `answers`: what
    people said to questions and to doubts; `bills`: what a provider of models was asked for and counted; `marks`: what
    the workload notes of itself."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.inbox, self.state = folder / "inbox", folder / "state"
        self.database, self.copy, self._server = self.state / "memory.db", folder / "copy.db", folder / "server"
        self.events, self.effects, self.approvals, self.answers, self.bills, self.marks = (
            Ledger(folder / f"{name}.jsonl") for name in ("events", "effects", "approvals", "answers", "bills", "marks")
        )

    @property
    def url(self) -> str:
        return self._server.read_text() if self.is_on_server else f"sqlite:///{self.database}"

    @property
    def is_on_server(self) -> bool:
        return self._server.exists()

    def move_to(self, url: str) -> None:
        """Have its agents keep their memory in this database of a server."""
        self._server.write_text(url)

    @property
    def home(self) -> Home:
        return Home(str(self.folder), str(self.folder / "workspace"), str(self.state))

    def acked(self) -> dict[str, dict[str, Any]]:
        """By event: the line that says that it was promised."""
        return {line["event"]: line for line in self.events.read() if line["told"] == "acked"}

    def happened(self, event: str, step: str) -> bool:
        return any((line["event"], line["step"]) == (event, step) for line in self.effects.read())

    def happen(self, effect: Effect, event: str, step: str, context: ToolContext) -> dict[str, str]:
        crashpoint("tool.before_effect")
        self.effects.write(
            event=event,
            step=step,
            effect=effect,
            key=context.idempotency_key,
            attempt=context.attempt,
            call=context.call.id,
        )
        crashpoint("tool.after_effect")
        return {"event": event, "step": step}

    def tools(self) -> list[Any]:
        """One of each effect, one that blocks a thread, one that asks."""

        @tool(effect="read")
        async def look(event: str, step: str, context: ToolContext, given: Any = None) -> dict[str, str]:
            await asyncio.sleep(0.001)
            return self.happen("read", event, step, context)

        @tool(effect="idempotent")
        def tally(event: str, step: str, context: ToolContext, given: Any = None) -> dict[str, str]:
            return self.happen("idempotent", event, step, context)

        @tool(effect="once")
        async def pay(event: str, step: str, context: ToolContext, given: Any = None) -> dict[str, str]:
            await asyncio.sleep(0.001)
            done = self.happen("once", event, step, context)
            await asyncio.sleep(0.001)
            return done

        @tool(effect="once", approval="ask", safe_with_untrusted=True)
        async def sign(event: str, step: str, context: ToolContext, given: Any = None) -> dict[str, str]:
            return self.happen("once", event, step, context)

        return [look, tally, pay, sign]
