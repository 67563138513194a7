"""What people are told by an agent: the answers of its runs, and what tools say during them; each thing once.

`message_sending` may change or stop it, `message_sent` hears of it, and so does everybody who subscribes to
`MessageSent`, which is what a channel does. What a run has told people on a route it does not tell them there again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spar.events import MessageSent
from spar.hooks import HookContext
from spar.replies import Reply, is_same
from spar.run import End, Run

if TYPE_CHECKING:
    from spar.agent import Agent

#: Texts of one run that are remembered; a run that says more than this repeats itself sooner or later.
_REMEMBERED = 200


class Deliveries:
    """Of one agent. Its runs' sayings are forgotten with the runs."""

    __slots__ = ("_agent", "_said")

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._said: dict[str, list[tuple[str, str]]] = {}

    @property
    def is_guarded(self) -> bool:
        """Whether anybody has to be asked first."""
        return self._agent.hooks.at("message_sending") or self._agent.hooks.at("message_sent")

    async def tell(self, run_id: str, session: str, route: str, text: str) -> bool:
        """Tell people something during a run; False when they know it, or must not be told."""
        return text.strip() != "" and await self._send(run_id, session, route, text) is not None

    async def answer(self, run: Run, end: End) -> End:
        """Tell people how a run ends. Returns: its end, with the answer as the hooks leave it; `run.reply` says what
        people are told of it."""
        reply = run.reply = run.reply_to(end)
        if reply.text is not None:
            text = await self._asked(run.id, run.session, reply.text)
            if text != reply.text:
                run.reply, run.is_changed = Reply(text, text is None), True
                end = End(end.status, end.error, text if end.output is not None else None)
            if text is not None and not self._is_known(run.id, run.session, text):
                self._publish(run.id, run.session, run.session, text, is_answer=True)
                await self._told(run.id, run.session, text)
        self._said.pop(run.id, None)
        return end

    def answer_at_once(self, run: Run, end: End) -> None:
        """The same where there is no time to ask anybody: what hooks would have had to look at is told to nobody."""
        reply = run.reply_to(end)
        if reply.text is not None and self.is_guarded:
            run.reply, run.is_changed = Reply(), True
        elif reply.text is not None and not self._is_known(run.id, run.session, reply.text):
            self._publish(run.id, run.session, run.session, reply.text, is_answer=True)
        self._said.pop(run.id, None)

    def forget(self, run: Run) -> None:
        self._said.pop(run.id, None)

    async def _send(self, run_id: str, session: str, route: str, text: str) -> str | None:
        asked = await self._asked(run_id, session, text)
        if asked is None or self._is_known(run_id, route, asked):
            return None
        if self._agent.runs.is_open(run_id):  # what belongs to no run may be said again every day
            said = self._said.setdefault(run_id, [])
            if len(said) < _REMEMBERED:
                said.append((route, asked))
        self._publish(run_id, session, route, asked)
        await self._told(run_id, session, asked)
        return asked

    async def _asked(self, run_id: str, session: str, text: str) -> str | None:
        """The text as the hooks leave it; None when one of them is against it."""
        agent = self._agent
        if not agent.hooks.at("message_sending"):
            return text
        outcome = await agent.reports.asked(HookContext("message_sending", agent.name, text, session, run_id))
        return None if outcome.denied else str(outcome.value)

    async def _told(self, run_id: str, session: str, text: str) -> None:
        agent = self._agent
        if agent.hooks.at("message_sent"):
            await agent.reports.asked(HookContext("message_sent", agent.name, text, session, run_id))

    def _is_known(self, run_id: str, route: str, text: str) -> bool:
        return any(there == route and is_same(before, text) for there, before in self._said.get(run_id, ()))

    def _publish(self, run_id: str, session: str, route: str, text: str, *, is_answer: bool = False) -> None:
        events = self._agent.events
        if events.wanted[MessageSent]:
            events.publish(MessageSent(run_id=run_id, session=session, route=route, text=text, is_answer=is_answer))
