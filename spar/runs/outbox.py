"""The messages of an agent to people: the answers of its runs, and what tools say during them; each thing once.

`message_sending` may change or stop it, `message_sent` hears of it, and so does everybody who subscribes to
`MessageSent`, which is what a channel does. What a run has told people on a route it does not tell them there again.
What people are told before a run ends, and an answer in blocks, is `spar.runs.messages.interim`'s matter.
"""

from __future__ import annotations

from spar.data.json_safe import plain
from spar.data.reply import Reply, comparable, repeats
from spar.events import MessageSent
from spar.health.error_reporting import ErrorReporter
from spar.hooks import HookContext
from spar.loop.core import Core
from spar.loop.tasks import Requests
from spar.runs.messages.interim import HasModuleRows, Interim
from spar.runs.run import End, Run
from spar.runs.run_events import ANSWER
from spar.runs.runs import Runs

#: Texts of one run that are remembered; a run that says more than this repeats itself sooner or later.
_REMEMBERED = 200


class Outbox:
    """The messages of one agent."""

    __slots__ = ("_core", "_reports", "_requests", "_runs", "interim")

    def __init__(
        self, core: Core, requests: Requests, reports: ErrorReporter, runs: Runs, state: HasModuleRows
    ) -> None:
        self._core, self._reports, self._requests, self._runs = core, reports, requests, runs
        self.interim = Interim(core, requests, runs, state, self)

    @property
    def is_guarded(self) -> bool:
        """Return whether anybody has to be asked first."""
        return not self._core.hooks.used.isdisjoint(("message_sending", "message_sent"))

    async def tell(self, run_id: str, session: str, route: str, text: str) -> bool:
        """Tell people something during a run; False when they know it, or must not be told."""
        if not text.strip():
            return False
        asked = await self.asked(run_id, session, text, "note")
        run = self._runs.open_run(run_id)  # what belongs to none may be said again every day
        if asked is None or (run is not None and _is_known(run, route, asked)):
            return False
        if run is not None and len(run.sent) < _REMEMBERED:
            run.sent.append((route, comparable(asked)))
        self.send(run, MessageSent(run_id=run_id, session=session, route=route, text=asked))
        await self.was_sent(run_id, session, asked)
        return True

    async def answer(self, run: Run, end: End) -> End:
        """Tell people how a run ends. Returns: its end, with the answer as the hooks leave it; `run.reply` says what
        people are told of it."""
        run.is_told = True
        reply = run.reply = run.reply_to(end)
        if reply.text is not None:
            await self.interim.tell_thoughts(run)
            tell = self._tell_in_blocks if self.interim.cuts(run) else self._tell_whole
            text = await tell(run, reply.text)
            if text != reply.text:
                run.reply, run.is_changed = Reply(text, text is None), True
                end = End(end.status, end.error, text if end.output is not None else None)
        return end

    async def _tell_whole(self, run: Run, answer: str) -> str | None:
        """Tell people an answer; return it as the hooks leave it, None when one of them is against it."""
        is_guarded = self.is_guarded
        text = await self.asked(run.id, run.session, answer, "answer") if is_guarded else answer
        if text is not None and self._send_answer(run, text) and is_guarded:
            await self.was_sent(run.id, run.session, text)
        return text

    async def _tell_in_blocks(self, run: Run, answer: str) -> str | None:
        """Tell people an answer block by block, unless a tool has told them that already."""
        if run.sent and _is_known(run, run.session, answer):
            return answer
        return await self.interim.answer(run, answer)

    def answer_at_once(self, run: Run, end: End) -> None:
        """Send the answer of a run where there is no time to ask hooks. What hooks would have judged is not sent;
        a failure is told later (`ended`)."""
        is_guarded = self.is_guarded
        if is_guarded and run.tells_failure(end):
            return
        run.is_told = True
        text = run.reply_to(end).text
        if text is not None and is_guarded:
            run.reply, run.is_changed = Reply(), True
        elif text is not None and self.interim.cuts(run):
            self.interim.tell_thoughts_at_once(run)
            if not (run.sent and _is_known(run, run.session, text)):
                self.interim.answer_at_once(run, text)
        elif text is not None:
            self.interim.tell_thoughts_at_once(run)
            self._send_answer(run, text)

    def ended(self, run: Run, end: End) -> None:
        """Tell people of a run's failure that nobody has told them of yet.

        Where hooks have a say, they are asked in the background, and the run's status shows no reply.
        """
        run.is_told = True
        text = run.reply.text
        if text is None or end.status != "error" or run.into is not None:
            return
        if not self.is_guarded:
            self._send_answer(run, text)
            return
        run.reply, run.is_changed = Reply(), True
        if self._requests.loop is not None:
            self._requests.in_background(self._tell_failure(run, text), "telling of the failure of")

    async def _tell_failure(self, run: Run, text: str) -> None:
        asked = await self.asked(run.id, run.session, text, "answer")
        if asked is not None:
            self.send(None, _answer(run, asked))  # the run has ended, and so has its log
            await self.was_sent(run.id, run.session, asked)

    async def asked(self, run_id: str, session: str, text: str, kind: str) -> str | None:
        """The text as the hooks leave it; None when one of them is against it."""
        if "message_sending" not in self._core.hooks.used:
            return text
        ctx = HookContext("message_sending", self._core.name, text, session, run_id, reason=kind)
        outcome = await self._reports.asked(ctx)
        return None if outcome.denied else str(outcome.value)

    async def was_sent(self, run_id: str, session: str, text: str) -> None:
        """Tell the hooks at `message_sent`."""
        if "message_sent" in self._core.hooks.used:
            await self._reports.asked(HookContext("message_sent", self._core.name, text, session, run_id))

    def _send_answer(self, run: Run, text: str) -> bool:
        """Send the answer of a run; False where it has told people that already."""
        if run.sent and _is_known(run, run.session, text):
            return False
        self.send(run, _answer(run, text))
        return True

    def send(self, run: Run | None, message: MessageSent) -> None:
        """Have a text go out. Args: run: the one in whose log it stands."""
        message.at = self._core.clock.now()
        if run is not None and run.log is not None and message.kind != "verbose":  # its log has the line itself
            text = plain(message.text, ANSWER)
            data = {"sent": text, "route": message.route, "is_answer": message.is_answer, "kind": message.kind,
                    "part": message.part}  # fmt: skip
            run.log.add("assistant", message.at, data, len(text))
        if self._core.events.wanted[MessageSent]:
            self._core.events.publish(message)


def _answer(run: Run, text: str) -> MessageSent:
    return MessageSent(run_id=run.id, session=run.session, route=run.session, text=text, is_answer=True,
                       kind="answer")  # fmt: skip


def _is_known(run: Run, route: str, text: str) -> bool:
    new = comparable(text)
    return any(there == route and repeats(before, new) for there, before in run.sent)
