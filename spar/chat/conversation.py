"""Conversation with one session, however it is shown: its messages and their runs, the commands of a slash, earlier
messages, and approvals.

Requests to the service run in threads, so that neither keys nor events ever wait for it.
"""

from __future__ import annotations

import asyncio
import signal
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from msgspec import Struct, field

from spar.cli.blocks import Fields
from spar.cli.client import ending
from spar.cli.commands.status import status_blocks
from spar.cli.context import rendered
from spar.cli.printer import RunPrinter
from spar.client.async_client import Paced
from spar.client.client import Client, EventReader, NotRunningError, RefusedError, ServiceError
from spar.clock import SystemClock
from spar.data.text import printable
from spar.ids import new_id
from spar.operations import review, sessions
from spar.operations.agent import status
from spar.operations.fields import changed_params
from spar.operations.runs import FollowRun, RunBody, RunId, abort, follow, is_end, submit
from spar.records.run_options import THINKING
from spar.records.transcript import Entry
from spar.service import exit_codes as exits
from spar.threads import Tasks, Threads

#: Seconds between two looks at what arrives.
EVERY: Final = 0.05
#: Outcomes of a message that became part of another run, which gives the answer.
ABSORBED: Final = ("steered", "collected")

#: How a call that waits is answered.
HOW: Final = "run it? y, n [WHY], e KEY=VALUE … or e {JSON} (other parameters)"


class Left(Exception):
    """Signal that the person leaves the conversation, with the exit code."""


class OpenMessage(Struct):
    """Message of this conversation and its run: `text` is "" for a run that went on before it."""

    text: str
    is_shown: bool
    run_id: str = ""
    is_absorbed: bool = False
    reader: EventReader | None = None
    events: deque[dict[str, Any]] = field(default_factory=deque)


class Conversation:
    """Conversation with one session. A subclass shows it, and reads what is typed.

    Attributes: messages: those whose runs have not ended, the first that of the run in hand; waiting: the approvals of
        that run, the oldest first; printer: shows the events of runs; current: the run in hand, "" for none;
        interrupts: how often it was interrupted since a key or a run.
    """

    #: Seconds for which requests are repeated and runs are followed while no service answers.
    patience = 120.0

    def __init__(self, client: Client, session: str, mode: str, run_options: dict[str, Any],
                 printer: RunPrinter) -> None:  # fmt: skip
        self.client, self.session, self.printer = client, session, printer
        self._mode, self._run_options = mode, run_options
        self.clock = SystemClock()
        self.threads = Threads("chat", self.clock, limit=32)
        self.messages: deque[OpenMessage] = deque()
        self.waiting: list[dict[str, Any]] = []
        self.current, self.since, self.interrupts, self.is_lost = "", 0.0, 0, False
        self._sending, self._answering = asyncio.Lock(), asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks = Tasks()

    # -- how it is shown

    def put_note(self, text: str) -> None:
        """Show a sentence about the conversation."""
        raise NotImplementedError

    def put_text(self, text: str) -> None:
        """Show the answer of a command."""
        raise NotImplementedError

    def put_message(self, text: str, *, is_earlier: bool = False) -> None:
        """Show a message of the person."""

    def tell_how(self, text: str) -> None:
        """Show how a call that waits for a decision is answered."""
        self.tell(text)

    def draw(self) -> None:
        """Show what has changed."""

    async def converse(self) -> int:
        """Read what is typed until the person leaves; return the exit code."""
        raise NotImplementedError

    def leave(self, code: int) -> None:
        """End the conversation with an exit code."""
        raise NotImplementedError

    def lose(self, error: ServiceError, message: OpenMessage | None = None) -> None:
        """Say that a request has no answer. Args: message: it was not sent, or its run cannot be followed any more."""
        self.note(ending(self.client, error)[0])

    def note(self, text: str) -> None:
        """Show a sentence about the conversation, from any thread."""
        self._in_loop(self.put_note, text)

    def tell(self, text: str) -> None:
        """Show the answer of a command, from any thread."""
        self._in_loop(self.put_text, text)

    def note_lost(self) -> None:
        """Say that requests are repeated."""
        self._in_loop(self._set_lost, True)

    def _set_lost(self, is_lost: bool) -> None:
        """Say once that the service is away."""
        if is_lost and not self.is_lost:
            self.note("the service does not answer; waiting for it")
        self.is_lost = is_lost

    # -- its course

    def begin(self, history: int) -> None:
        """Show earlier messages, and collect the open runs of the session."""
        for text, is_message in earlier(self.client, self.session, history):
            if is_message:
                self.put_message(text, is_earlier=True)
            else:
                self.printer.put(text)
        self.note(f"session {self.session}; /help says what can be said besides")
        with suppress(ServiceError):  # a session without messages
            open_runs = self.client.call(sessions.show, sessions.SessionKey(self.session)).runs
            self.messages.extend(OpenMessage("", True, run_id) for run_id in open_runs)
        if self.messages:
            self.note("a run goes on here:")

    def run(self) -> int:
        """Hold the conversation until the person leaves; return the exit code. Raises: ServiceError."""
        return asyncio.run(self._run())

    async def _run(self) -> int:
        self._loop, self._arrivals = asyncio.get_running_loop(), Paced(self._look, EVERY)
        self._loop.add_signal_handler(signal.SIGTERM, self.leave, exits.INTERRUPTED)
        for message in self.messages:
            self._follow(message)
        try:
            return await self.converse()
        finally:
            for message in self.messages:
                if message.reader is not None:
                    message.reader.close()

    def _in_loop(self, work: Callable[..., object], *given: Any) -> None:
        """Do something in the event loop, from any thread; before it runs, at once."""
        if self._loop is None:
            work(*given)
        else:
            with suppress(RuntimeError):  # the loop has ended, and with it the conversation
                self._loop.call_soon_threadsafe(work, *given)

    def in_background(self, work: Callable[..., Coroutine[Any, Any, None]], *given: Any) -> None:
        """Begin work that a key or an event asks for; an error of the service is said."""

        async def guarded() -> None:
            try:
                await work(*given)
            except ServiceError as error:
                self.lose(error)

        self._tasks.start(guarded())

    # -- messages and their runs

    async def say(self, typed: str, whole: str) -> None:
        """Send a message; what is typed during a run is listed until the run takes it in, or its own begins.

        Args: whole: the typed text with the pasted ones."""
        message = OpenMessage(typed, not self.messages)
        if message.is_shown:
            self.put_message(typed)
        self.messages.append(message)
        self.draw()
        body = RunBody(whole, self.session, self._mode, new_id(), options=self._run_options or None)
        try:
            async with self._sending:  # one after another, in the order in which they were typed
                receipt = await self.threads.run(self.asked, self.client.call, submit, body)
        except ServiceError as error:
            self.messages.remove(message)
            self.draw()
            self.lose(error, message)
            return
        message.run_id = receipt.run_id
        self._set_lost(False)
        self._follow(message)

    def asked(self, ask: Callable[..., Any], *given: Any) -> Any:
        """Return the answer of a request, which is repeated while no service answers."""
        return ask(*given, patience=self.patience, lost=self.note_lost)

    def _follow(self, message: OpenMessage) -> None:
        stream = self.client.events(follow, FollowRun(message.run_id), self.patience)
        message.reader = EventReader(stream, self._arrivals.ask)
        self._look()

    def _look(self) -> None:
        """Take the events that have come, and show those of the run in hand."""
        for message in self.messages:
            if message.reader is not None:
                message.events.extend(events := message.reader.take())
                if any(event["data"].get("outcome") in ABSORBED for event in events):
                    message.is_absorbed = True
                    self._show_message(message)
        while self.messages and self.messages[0].events:
            self._show_event(self.messages[0], self.messages[0].events.popleft())
        if self.messages and (reader := self.messages[0].reader) is not None:
            if reader.is_over and not self.messages[0].events:
                self.lose(NotRunningError(str(reader.error)), self._ended(self.messages[0]))
            self._set_lost(bool(reader.stream.why))
        self.draw()

    def _show_message(self, message: OpenMessage) -> None:
        if not message.is_shown:
            message.is_shown = True
            self.put_message(message.text)

    def _show_event(self, message: OpenMessage, event: dict[str, Any]) -> None:
        """Show an event of the run in hand."""
        self._show_message(message)
        if self.current != message.run_id:
            self.current, self.since, self.interrupts = message.run_id, self.clock.monotonic(), 0
        data, is_over = event["data"], is_end(event)
        self.show_event(event, is_silent=(is_over and message.is_absorbed) or data.get("phase") == "outcome")
        if is_over:
            self._ended(message)
        elif data.get("phase") == "approval" or event["stream"] == "gap":
            self.in_background(self.ask, message.run_id)

    def show_event(self, event: dict[str, Any], *, is_silent: bool) -> None:
        """Show an event, unless it is silent: another one tells the same."""
        if not is_silent:
            self.printer.show(event)

    def _ended(self, message: OpenMessage) -> OpenMessage:
        """Forget a run that is over; return its message."""
        if message.reader is not None:
            message.reader.close()
        self.messages.remove(message)
        self.printer.begin_anew()
        if self.waiting:
            self.in_background(self.ask, message.run_id)
        self.current, self.is_lost = "", False
        return message

    def abort(self) -> None:
        """Abort the run in hand and the waiting ones; their ends are shown as they come."""
        for run_id in [message.run_id for message in self.messages if message.run_id]:
            self.in_background(self.threads.run, self.asked, self.client.answer, abort, RunId(run_id))

    # -- approvals

    async def ask(self, run_id: str) -> None:
        """Ask for the approvals of a run, the oldest first. Those of a run that is over are named with the command that
        decides: an answer may come before the decision, and the call is then made in a later cycle."""
        async with self._answering:
            known = [row["id"] for row in self.waiting[:1]]
            with suppress(ServiceError):  # requested again once the service is back
                given = review.ApprovalsChoice("pending")
                rows = await self.threads.run(self.client.answer, review.list_approvals, given)
                self.waiting = [row for row in reversed(rows) if row.get("run_id") == run_id]
            if self.current != run_id:
                for row in self.waiting:
                    self.note(f"{row['call']['tool']} still waits: spar approvals approve {row['id']}, or deny")
                self.waiting = []
            elif [row["id"] for row in self.waiting[:1]] != known:
                await self._show_question()

    async def _show_question(self) -> None:
        """Show the first approval in full."""
        with suppress(ServiceError):
            for row in self.waiting[:1]:
                shown = await self.threads.run(self.client.answer, review.show_approval, review.RecordId(row["id"]))
                self.tell(printable(shown["text"]))
                self.tell_how(HOW)

    async def answer(self, line: str) -> None:
        """Send a line as the answer to the first approval, unless it is none."""
        async with self._answering:
            if not self.waiting or (decision := self._decision(self.waiting[0], line)) is None:
                return
            try:
                await self.threads.run(self.asked, self.client.answer, review.decide, decision)
            except NotRunningError:
                raise
            except ServiceError as error:  # somebody else has answered, or the parameters do not fit the tool
                self.note(str(error))
                return
            self.waiting = self.waiting[1:]
            await self._show_question()

    def _decision(self, row: dict[str, Any], line: str) -> review.DecisionBody | None:
        """Return the decision of a line, None if it is none."""
        word, _, rest = line.strip().partition(" ")
        body = partial(review.DecisionBody, row["id"], row["digest"])
        match word.lower():
            case "y" | "yes":
                return body("approve")
            case "n" | "no":
                return body("deny", rest.strip())
            case "e" | "edit" if rest:
                texts = [rest.strip()] if rest.lstrip().startswith("{") else rest.split()
                try:
                    return body("edit", params=changed_params(row["call"]["params"], texts))
                except ValueError as error:
                    self.note(f"{error}; {HOW}")
            case _:
                self.tell_how(HOW)
        return None

    # -- commands

    async def carry_out(self, line: str) -> None:
        """Carry out a command."""
        word, _, argument = line.strip().partition(" ")
        try:
            await self.threads.run(self._command, word, argument.strip())
        except NotRunningError:
            self.note("no service runs there")
        except ServiceError as error:
            self.note(ending(self.client, error)[0])
        except Left as left:
            self.leave(left.args[0])

    def _command(self, word: str, argument: str) -> None:
        if argument and word in WITHOUT_WORDS:
            self.note(f"the words behind {word} were not read")
        match word:
            case "/new" | "/reset":
                self._begin_anew()
            case "/stop" if self.current:
                self._in_loop(self.abort)
            case "/stop":
                self.note("nothing goes on")
            case "/status":
                self.tell(rendered(*status_blocks(self.client.answer(status))))
            case "/model":
                self._choose("model", argument)
            case "/think" if argument in ("", *USUAL, *THINKING):
                self._choose("thinking", argument)
            case "/think":
                self.note(f"/think {argument}: must be {', '.join(THINKING)}, or default")
            case "/verbose":
                self.printer.is_verbose = not self.printer.is_verbose
                self.note(f"calls are {'told' if self.printer.is_verbose else 'not told'}")
            case "/reasoning":
                self.printer.shows_thoughts = not self.printer.shows_thoughts
                self.note(f"thoughts are {'shown' if self.printer.shows_thoughts else 'not shown'}")
            case "/help":
                self.tell(rendered(Fields("", tuple(HELP.items()), max(map(len, HELP)) + 1, 0)))
            case "/quit" | "/exit":
                if self.current:
                    self.note(f"the run goes on; look with: spar runs follow {self.current}")
                raise Left(exits.OK)
            case _:
                self.note(f"no command {word}; /help lists them (a message that begins with a slash: a space first)")

    def _begin_anew(self) -> None:
        try:
            self.client.answer(sessions.reset, sessions.SessionKey(self.session))
        except RefusedError as error:
            if error.status != HTTPStatus.NOT_FOUND or error.is_of_route:  # else: a session without messages
                raise
        self.note("the conversation begins anew")

    def _choose(self, option: str, value: str) -> None:
        """Set an option for further messages, and print it; without a value only print it."""
        if value in USUAL:
            self._run_options.pop(option, None)
        elif value:
            self._run_options[option] = value
        self.note(f"{option}: {self._run_options.get(option, 'as configured')}")


#: The help of each command.
HELP: Final = {
    "/new, /reset": "begin the conversation anew: what was said before is not read any more",
    "/stop": "call the run in hand off (Ctrl-C does the same)",
    "/status": "what the agent is doing",
    "/model [NAME]": "the model of this conversation's messages; without NAME: which, with default: as configured",
    "/think [off|low|medium|high]": "how much the model thinks before it answers; with default: as configured",
    "/verbose": "tell what calls do, or no more",
    "/reasoning": "show what the model thinks, or no more (runs.reasoning)",
    "/help": "this list",
    "/quit": "leave; a run that goes on is not stopped (Ctrl-D does the same)",
}
#: Commands without arguments.
WITHOUT_WORDS: Final = ("/new", "/reset", "/stop", "/status", "/verbose", "/reasoning", "/help", "/quit", "/exit")
#: Arguments that remove a choice.
USUAL: Final = ("default", "usual", "-")


# -- earlier messages


def earlier(client: Client, session: str, number: int) -> list[tuple[str, bool]]:
    """Return the last messages of a session since its reset, and their answers, oldest first.

    Args: number: the number of messages.
    Returns: each text, and whether it is a message.
    """
    if not number:
        return []
    try:
        choice = sessions.TranscriptChoice(session, min(number * 20, sessions.LONGEST_TRANSCRIPT))
        entries = client.call(sessions.transcript, choice)
    except RefusedError:  # it has no transcript
        return []
    resets = [place for place, entry in enumerate(entries) if entry.kind == "reset"]
    texts = [entry for entry in entries[resets[-1] + 1 if resets else 0 :] if entry.kind in _TEXTS and _text(entry)]
    users = [place for place, entry in enumerate(texts) if entry.kind == "user"]
    chosen = texts[users[-number] :] if len(users) >= number else texts
    return [(_text(entry), entry.kind == "user") for entry in chosen]


def _text(entry: Entry) -> str:
    return str(entry.body.get(_TEXTS[entry.kind]) or "")


#: The field of the text in each kind of entry that has one.
_TEXTS: Final = {"user": "text", "end": "reply"}
