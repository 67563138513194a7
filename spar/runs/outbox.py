"""Messages of an agent to people: the answers of its runs, and messages of tools. Each is sent once.

Hooks at `message_sending` may change or stop a message; hooks at `message_sent` are told of it. Subscribers of
`MessageSent`, such as channels, deliver it. A text is not sent twice on the same route within one run.

An attachment sends what runs say before their ends: blocks of their answers, lines about their calls, thoughts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from spar.data.json_safe import plain
from spar.data.reply import End, Reply
from spar.data.text import comparable, repeats
from spar.events import MessageSent
from spar.events.table import ANSWER
from spar.health.error_reporting import ErrorReporter
from spar.hooks import HookContext
from spar.loop.core import Core, Requests
from spar.runs.runs import Run, Runs

#: The most texts of one run that are remembered. Further texts may be repeated.
_REMEMBERED = 200


class RunMessages:
    """Messages of one agent to people.

    Args: attached: the attachments by name; installed: returns the part of one, attached now at the latest, None where
    it is not installed; grows: returns whether people see the answer of a run grow, by its id.
    """

    __slots__ = ("_attached", "_core", "_installed", "_reports", "_requests", "_runs", "grows")

    def __init__(self, core: Core, requests: Requests, reports: ErrorReporter, runs: Runs,
                 attached: Mapping[str, Any], installed: Callable[[str], Any],
                 grows: Callable[[str], bool]) -> None:  # fmt: skip
        self._core, self._reports, self._requests, self._runs = core, reports, requests, runs
        self._attached, self._installed, self.grows = attached, installed, grows

    def _interim_of(self, run: Run) -> Any:
        """Return what sends messages of a run before its end; None while neither settings nor runs ask for such
        messages."""
        if (known := self._attached.get("interim")) is not None:
            return known.part
        return self._installed("interim") if run.state.chosen.verbose else None

    @property
    def is_guarded(self) -> bool:
        """Return whether hooks must be asked about messages."""
        return not self._core.hooks.used.isdisjoint(("message_sending", "message_sent"))

    async def tell(self, run_id: str, session: str, route: str, text: str) -> bool:
        """Send a text during a run; return False if it is empty, was sent before, or is denied by a hook."""
        if not text.strip():
            return False
        text_after_hooks = await self.text_after_hooks(run_id, session, text, "note")
        run = self._runs.open_run(run_id)  # texts outside of runs may be repeated
        if text_after_hooks is None or (run is not None and _is_known(run, route, text_after_hooks)):
            return False
        if run is not None and len(run.sent) < _REMEMBERED:
            run.sent = (*run.sent, (route, comparable(text_after_hooks)))
        self.send(run, MessageSent(run_id=run_id, session=session, route=route, text=text_after_hooks))
        await self.was_sent(run_id, session, text_after_hooks)
        return True

    async def answer(self, run: Run, end: End) -> End:
        """Send the answer of a run that was finished; return its end, with the answer as the hooks leave it, as is then
        `run.reply`."""
        run.is_told = True
        reply = run.reply
        if reply.text is not None:
            interim = self._interim_of(run)
            text = await (self.send_whole if interim is None else interim.answer)(run, reply.text)
            if text != reply.text:
                run.change_reply(Reply(text, text is None))
                end = End(end.status, end.error, text if end.output is not None else None)
        return end

    async def send_whole(self, run: Run, answer: str) -> str | None:
        """Send an answer as one message; return it as the hooks leave it, None if one denies it."""
        is_guarded = self.is_guarded
        text = await self.text_after_hooks(run.id, run.session, answer, "answer") if is_guarded else answer
        if text is not None and self.send_answer(run, text) and is_guarded:
            await self.was_sent(run.id, run.session, text)
        return text

    def answer_at_once(self, run: Run, end: End) -> None:
        """Send the answer of a run if there is no time to ask hooks. With hooks it is not sent; a failure is sent later
        by `ended`."""
        is_guarded = self.is_guarded
        if is_guarded and run.is_to_tell and run.has_failed(end):
            return
        run.is_told = True
        text = run.reply.text
        if text is not None and is_guarded:
            run.change_reply(Reply())
        elif text is not None:
            interim = self._interim_of(run)
            (self.send_answer if interim is None else interim.answer_at_once)(run, text)

    def ended(self, run: Run, end: End) -> None:
        """Send the failure of a run if no answer was sent.

        With hooks this happens in the background, and the run's status has no reply.
        """
        run.is_told = True
        text = run.reply.text
        if text is None or end.status != "error" or run.state.into:
            return
        if not self.is_guarded:
            self.send_answer(run, text)
            return
        run.change_reply(Reply())
        if self._requests.loop is not None:
            self._requests.in_background(self._send_failure(run, text), "telling of the failure of")

    async def _send_failure(self, run: Run, text: str) -> None:
        text_after_hooks = await self.text_after_hooks(run.id, run.session, text, "answer")
        if text_after_hooks is not None:
            self.send(None, _answer(run, text_after_hooks))  # None: the log of the run has ended
            await self.was_sent(run.id, run.session, text_after_hooks)

    async def text_after_hooks(self, run_id: str, session: str, text: str, kind: str) -> str | None:
        """Return a text as the hooks at `message_sending` leave it; None if one denies it."""
        if "message_sending" not in self._core.hooks.used:
            return text
        ctx = HookContext("message_sending", self._core.name, text, session, run_id, reason=kind)
        outcome = await self._reports.run_hooks(ctx)
        return None if outcome.denied else str(outcome.value)

    async def was_sent(self, run_id: str, session: str, text: str) -> None:
        """Call the hooks at `message_sent`."""
        if "message_sent" in self._core.hooks.used:
            await self._reports.run_hooks(HookContext("message_sent", self._core.name, text, session, run_id))

    def forget(self, run: Run) -> None:
        """Send nothing more of a run that has ended."""
        if (interim := self._interim_of(run)) is not None:
            interim.forget(run)

    def send_answer(self, run: Run, text: str) -> bool:
        """Send the answer of a run; return False if the run has sent that text already."""
        if is_answered(run, text):
            return False
        self.send(run, _answer(run, text))
        return True

    def send(self, run: Run | None, message: MessageSent) -> None:
        """Publish a message. Args: run: the run whose log records it; None for no log."""
        message.at = self._core.clock.now()
        if run is not None and run.log is not None and message.kind != "verbose":  # such a line is in its log already
            text = plain(message.text, ANSWER)
            data = {"sent": text, "route": message.route, "is_answer": message.is_answer, "kind": message.kind,
                    "part": message.part}  # fmt: skip
            run.log.add("assistant", message.at, data, len(text))
        if self._core.events.wanted[MessageSent]:
            self._core.events.publish(message)


def _answer(run: Run, text: str) -> MessageSent:
    return MessageSent(run_id=run.id, session=run.session, route=run.session, text=text, is_answer=True,
                       kind="answer")  # fmt: skip


def is_answered(run: Run, text: str) -> bool:
    """Return whether a run has sent this answer already."""
    return bool(run.sent) and _is_known(run, run.session, text)


def _is_known(run: Run, route: str, text: str) -> bool:
    new = comparable(text)
    return any(sent_route == route and repeats(before, new) for sent_route, before in run.sent)
