"""The messages of an agent to people: the answers of its runs, and what tools say during them; each thing once.

`message_sending` may change or stop it, `message_sent` hears of it, and so does everybody who subscribes to
`MessageSent`, which is what a channel does. What a run has told people on a route it does not tell them there again.
"""

from __future__ import annotations

from collections.abc import Callable

from spar.data.reply import Reply, comparable, repeats
from spar.events import MessageSent
from spar.health.error_reporting import Reports
from spar.hooks import HookContext
from spar.loop.core import Core
from spar.loop.tasks import Requests
from spar.runs.run import End, Run

#: Texts of one run that are remembered; a run that says more than this repeats itself sooner or later.
_REMEMBERED = 200


class Outbox:
    """The messages of one agent. Its runs' sayings are forgotten with the runs.

    Args: is_open: whether a run (by its id) goes on.
    """

    __slots__ = ("_core", "_is_open", "_reports", "_requests", "_said")

    def __init__(self, core: Core, requests: Requests, reports: Reports, is_open: Callable[[str], bool]) -> None:
        self._core, self._requests, self._reports, self._is_open = core, requests, reports, is_open
        #: By run, where and what it has told people; texts as they are compared.
        self._said: dict[str, list[tuple[str, str]]] = {}

    @property
    def is_guarded(self) -> bool:
        """Return whether anybody has to be asked first."""
        return not self._core.hooks.used.isdisjoint(("message_sending", "message_sent"))

    async def tell(self, run_id: str, session: str, route: str, text: str) -> bool:
        """Tell people something during a run; False when they know it, or must not be told."""
        return text.strip() != "" and await self._send(run_id, session, route, text) is not None

    async def answer(self, run: Run, end: End) -> End:
        """Tell people how a run ends. Returns: its end, with the answer as the hooks leave it; `run.reply` says what
        people are told of it."""
        run.is_told = True
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
        """Send the answer of a run where there is no time to ask hooks. What hooks would have judged is not sent;
        a failure is told later (`failed`)."""
        reply = run.reply_to(end)
        if run.tells_failure(end) and self.is_guarded:
            return
        run.is_told = True
        if reply.text is not None and self.is_guarded:
            run.reply, run.is_changed = Reply(), True
        elif reply.text is not None and not self._is_known(run.id, run.session, reply.text):
            self._publish(run.id, run.session, run.session, reply.text, is_answer=True)
        self._said.pop(run.id, None)

    def ended(self, run: Run) -> None:
        """Tell people of a run's failure that nobody has told them of yet, and forget what the run has said.

        Where hooks have a say, they are asked in the background, and the run's status shows no reply.
        """
        text, is_to_tell = run.reply.text, run.status == "error" and not run.is_told and run.into is None
        run.is_told = True
        if text is not None and is_to_tell:
            if not self.is_guarded:
                if not self._is_known(run.id, run.session, text):
                    self._publish(run.id, run.session, run.session, text, is_answer=True)
            else:
                run.reply, run.is_changed = Reply(), True
                if self._requests.loop is not None:
                    self._requests.in_background(self._tell_failure(run, text), "telling of the failure of")
        self._said.pop(run.id, None)

    async def _tell_failure(self, run: Run, text: str) -> None:
        asked = await self._asked(run.id, run.session, text)
        if asked is not None:
            self._publish(run.id, run.session, run.session, asked, is_answer=True)
            await self._told(run.id, run.session, asked)

    async def _send(self, run_id: str, session: str, route: str, text: str) -> str | None:
        asked = await self._asked(run_id, session, text)
        if asked is None or self._is_known(run_id, route, asked):
            return None
        if self._is_open(run_id):  # what belongs to no run may be said again every day
            said = self._said.setdefault(run_id, [])
            if len(said) < _REMEMBERED:
                said.append((route, comparable(asked)))
        self._publish(run_id, session, route, asked)
        await self._told(run_id, session, asked)
        return asked

    async def _asked(self, run_id: str, session: str, text: str) -> str | None:
        """The text as the hooks leave it; None when one of them is against it."""
        if "message_sending" not in self._core.hooks.used:
            return text
        outcome = await self._reports.asked(HookContext("message_sending", self._core.name, text, session, run_id))
        return None if outcome.denied else str(outcome.value)

    async def _told(self, run_id: str, session: str, text: str) -> None:
        if "message_sent" in self._core.hooks.used:
            await self._reports.asked(HookContext("message_sent", self._core.name, text, session, run_id))

    def _is_known(self, run_id: str, route: str, text: str) -> bool:
        said = self._said.get(run_id)
        if not said:
            return False
        new = comparable(text)
        return any(there == route and repeats(before, new) for there, before in said)

    def _publish(self, run_id: str, session: str, route: str, text: str, *, is_answer: bool = False) -> None:
        events = self._core.events
        if events.wanted[MessageSent]:
            events.publish(MessageSent(run_id=run_id, session=session, route=route, text=text, is_answer=is_answer))
