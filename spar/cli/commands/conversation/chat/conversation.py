"""Conversation with one session, however it is shown: its messages, its earlier ones, and the commands of a slash."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final

from spar.cli.blocks import Fields
from spar.cli.client import ending
from spar.cli.context import rendered
from spar.cli.printer import RunPrinter
from spar.cli.status import status_blocks
from spar.client.client import Client, NotRunningError, RefusedError, ServiceError
from spar.ids import new_id
from spar.operations import sessions
from spar.operations.agent import status
from spar.operations.runs import RunBody, RunId, abort, submit
from spar.records.run_options import THINKING
from spar.records.transcript import Entry
from spar.service import exit_codes as exits

#: Seconds for which messages and answers are sent again, and runs are followed, while no service answers.
BACK_WITHIN: Final = 120.0
#: Outcomes of a message that became part of another run, which gives the answer.
ABSORBED: Final = ("steered", "collected")


class Left(Exception):
    """Signal that the person leaves the conversation, with the exit code."""


class Conversation:
    """Conversation with one session. A subclass shows it.

    Attributes: printer: shows the events of runs; current: the run in hand, "" for none.
    """

    #: Seconds for which requests are repeated and runs are followed while no service answers.
    patience = BACK_WITHIN

    def __init__(self, client: Client, session: str, mode: str, run_options: dict[str, Any],
                 printer: RunPrinter) -> None:  # fmt: skip
        self.client, self.session, self.printer = client, session, printer
        self._mode, self._run_options = mode, run_options
        self.current = ""

    # -- how it is shown

    def note(self, text: str) -> None:
        """Show a sentence about the conversation."""
        raise NotImplementedError

    def tell(self, text: str) -> None:
        """Show the answer of a command."""
        raise NotImplementedError

    def tell_how(self, text: str) -> None:
        """Show how a call that waits for a decision is answered."""
        self.tell(text)

    def note_lost(self) -> None:
        """Say that requests are repeated."""
        self.note("the service does not answer; waiting for it")

    # -- messages and runs

    def send(self, text: str) -> str:
        """Send a message; return the id of its run. Raises: ServiceError."""
        body = RunBody(text, self.session, self._mode, new_id(), options=self._run_options or None)
        return self.client.call(submit, body, patience=self.patience, lost=self.note_lost).run_id

    def open_runs(self) -> list[str]:
        """Return the open runs of this session; none for a session without messages."""
        try:
            return list(self.client.call(sessions.show, sessions.SessionKey(self.session)).runs)
        except ServiceError:
            return []

    def waiting_runs(self) -> Iterable[str]:
        """Return the runs of messages that wait behind the run in hand."""
        return ()

    def abort(self) -> None:
        """Abort the run in hand and the waiting ones in a thread; their ends are shown as they come."""
        run_ids = [run_id for run_id in (self.current, *self.waiting_runs()) if run_id]

        def work() -> None:
            for run_id in run_ids:
                try:
                    self.client.answer(abort, RunId(run_id), patience=self.patience, lost=self.note_lost)
                except ServiceError as error:
                    self.note(str(error))

        threading.Thread(target=work, name="abort", daemon=True).start()

    # -- commands

    def is_command(self, line: str) -> bool:
        """Carry out a line that is a command; return False for any other line."""
        word, _, argument = line.strip().partition(" ")
        argument = argument.strip()
        if not line.startswith("/"):
            return False
        try:
            self._command(word, argument)
        except NotRunningError:
            self.note("no service runs there")
        except ServiceError as error:
            self.note(ending(self.client, error)[0])
        return True

    def _command(self, word: str, argument: str) -> None:
        if argument and word in WITHOUT_WORDS:
            self.note(f"the words behind {word} were not read")
        match word:
            case "/new" | "/reset":
                self._begin_anew()
            case "/stop" if self.current:
                self.abort()
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
