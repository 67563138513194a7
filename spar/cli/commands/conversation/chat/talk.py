"""Command `chat`: each line is a message to the running service, and its run is shown as it goes on."""

from __future__ import annotations

import json
import threading
from collections import deque
from http import HTTPStatus
from typing import Any, Final

import click

from spar.cli.blocks import Fields
from spar.cli.client import ending, service
from spar.cli.commands.conversation.chat.keyboard import Keyboard
from spar.cli.commands.conversation.chat.questions import Questions
from spar.cli.commands.conversation.follow import RunPrinter
from spar.cli.context import Options, fail, rendered, write
from spar.cli.status import status_blocks
from spar.client.client import Client, EventReader, NotRunningError, RefusedError, ServiceError
from spar.data.text import one_line, printable
from spar.ids import new_id
from spar.operations import sessions
from spar.operations.agent import StatusChoice, status
from spar.operations.runs import FollowRun, RunBody, RunId, abort, follow, is_end, submit
from spar.records.run_options import THINKING
from spar.records.transcript import Entry
from spar.service import exit_codes as exits

PROMPT: Final = "> "
#: Seconds for which messages and answers are sent again, and runs are followed, while no service answers.
BACK_WITHIN: Final = 120.0
#: Outcomes of a message that became part of another run, which gives the answer.
ABSORBED: Final = ("steered", "collected")


@click.command()
@click.argument("session", default="main")
@click.option("--history", type=click.IntRange(0, 1000), default=10, show_default=True,
              help="How many of the last messages are shown first (not in a pipe).")  # fmt: skip
@click.option("--mode", type=click.Choice(["steer", "followup", "collect", "interrupt"]), default="steer",
              show_default=True, help="The queue mode of a line that is typed during a run.")  # fmt: skip
@click.option("--model", help="A model that the configuration allows, for all messages.")
@click.option("--thinking", type=click.Choice(THINKING), help="How much the model thinks before it answers.")
@click.option("--verbose", "-v", is_flag=True, help="Print lines about calls.")
@click.option("--reasoning", is_flag=True, help="Show the model's reasoning (if runs.reasoning allows it).")
@click.pass_obj
def chat(options: Options, session: str, history: int, mode: str, model: str | None, thinking: str | None,
         verbose: bool, reasoning: bool) -> int:  # fmt: skip
    """Talk with the running service in a terminal or a pipe; /help lists the commands.

    A line that is typed during a run steers it. A call that waits for approval is shown, and you are asked to decide.
    Ctrl-C aborts the run, twice leaves. From a pipe each line is a message, answered before the next one is read; the
    exit code is 1 if the last one failed.

    \b
    Examples:
      spar chat
      spar chat alice --history 3 --verbose
      echo "what is the load?" | spar chat
    """
    run_options = {key: value for key, value in (("model", model), ("thinking", thinking)) if value is not None}
    with service(options) as client:
        client.answer(status, StatusChoice(lanes=False))  # without a service the command ends at once
        keyboard = Keyboard()
        talk = _Talk(options, client, keyboard, session, mode, run_options)
        talk.printer.is_verbose, talk.printer.shows_thoughts = verbose, reasoning
        try:
            if keyboard.is_terminal and not options.as_json:
                talk.begin(history)
            return talk.run()
        except NotRunningError as error:
            fail(f"the service does not come back: {error}", exits.UNAVAILABLE)
        except (_Left, KeyboardInterrupt) as left:
            return left.args[0] if isinstance(left, _Left) else exits.INTERRUPTED
        finally:
            keyboard.close()


class _Left(Exception):
    """Signal that the person leaves the conversation, with the exit code."""


class _Talk:
    """One conversation. `printer` prints the events of runs."""

    def __init__(self, options: Options, client: Client, keyboard: Keyboard, session: str, mode: str,
                 run_options: dict[str, Any]) -> None:  # fmt: skip
        self._options, self._client, self._keyboard = options, client, keyboard
        self._session, self._mode, self._run_options = session, mode, run_options
        self._questions = Questions(client, BACK_WITHIN, self._tell_lost)
        self._pending: deque[str] = deque()  # runs of lines that were typed during another run
        self.printer = RunPrinter(is_verbose=False)
        self._current, self._has_failed, self._interrupts = "", False, 0

    def begin(self, history: int) -> None:
        """Show earlier messages, and collect the open runs of the session."""
        entries = _earlier(self._client, self._session, history) if history else []
        for entry in entries:
            text = printable(_text(entry))
            write(f"> {one_line(text, 500)}" if entry.kind == "user" else text)
        self._keyboard.remember(one_line(_text(entry), 500) for entry in entries if entry.kind == "user")
        self._note(f"session {self._session}; /help says what can be said besides")
        self._pending.extend(self._open_runs())
        if self._pending:
            self._note("a run goes on here:")

    def _open_runs(self) -> list[str]:
        """Return the open runs of this session; none for a session without messages."""
        try:
            return list(self._client.call(sessions.show, sessions.SessionKey(self._session)).runs)
        except ServiceError:
            return []

    def run(self) -> int:
        """Read and handle lines until the end of the conversation; return the exit code."""
        while self._pending:
            self._follow(self._pending.popleft())
        while True:
            try:
                line = self._keyboard.ask(PROMPT)
                self._tell_cut()
            except KeyboardInterrupt:
                self._interrupts += 1
                write("")
                if self._interrupts > 1:
                    return exits.INTERRUPTED
                self._note("Ctrl-C again leaves")
                continue
            self._interrupts = 0
            if line is None:
                return exits.FAILED if self._has_failed and not self._keyboard.is_terminal else exits.OK
            if line.strip() and not self._is_command(line):
                self._say(line)
                while self._pending:
                    self._follow(self._pending.popleft())

    def _tell_cut(self) -> None:
        """Print a note if the last line was cut."""
        if self._keyboard.is_cut:
            self._keyboard.is_cut = False
            self._note("the line was too long: a message has at most 1 MiB, the rest was left out")

    # -- messages and their runs

    def _say(self, text: str) -> None:
        """Send a message, and note its run as pending."""
        body = RunBody(text, self._session, self._mode, new_id(), options=self._run_options or None)
        try:
            receipt = self._client.call(submit, body, patience=BACK_WITHIN, lost=self._tell_lost)
            self._pending.append(receipt.run_id)
        except NotRunningError:
            raise
        except ServiceError as error:
            self._has_failed = True
            self._note(ending(self._client, error)[0])
        except KeyboardInterrupt:
            self._note("given up; whether it was taken is not known")

    def _follow(self, run_id: str) -> None:
        """Show a run to its end, and handle the lines that are typed meanwhile."""
        self._current, self._interrupts = run_id, 0
        reader = EventReader(self._client.events(follow, FollowRun(run_id), BACK_WITHIN), self._keyboard.wake)
        is_loss_noted, is_absorbed, is_over = False, False, False
        try:
            while not is_over:
                try:
                    line = self._keyboard.wait(reads=self._keyboard.is_terminal)
                    if line is not None:
                        self._handle_line(line, run_id)
                    while not is_over and (events := reader.take(1)):
                        is_absorbed = is_absorbed or events[0]["data"].get("outcome") in ABSORBED
                        is_over = self._show_event(events[0], is_absorbed=is_absorbed)
                    if reader.is_over and not is_over:
                        raise NotRunningError(str(reader.error))
                    if reader.stream.why and not is_loss_noted:
                        self._tell_lost()
                    is_loss_noted = bool(reader.stream.why)
                except KeyboardInterrupt:
                    self._on_interrupt()
        finally:
            reader.close()
            self._current, self._interrupts = "", 0
            self._questions.forget()

    def _show_event(self, event: dict[str, Any], *, is_absorbed: bool) -> bool:
        """Show an event; return whether it is the last one."""
        data, stream = event["data"], event["stream"]
        is_over = is_end(event)
        if self._options.as_json:
            write(json.dumps(event))
        elif not (is_over and is_absorbed) and data.get("phase") != "outcome":
            self.printer.show(event)
        if is_over:
            self.printer.begin_anew()
            if not is_absorbed:
                self._has_failed = data["phase"] == "error"
        elif (stream == "tool" and data["phase"] == "approval") or stream == "gap":
            self._ask_approvals(event["run_id"])
        return is_over

    def _ask_approvals(self, run_id: str) -> None:
        """Show the approvals of a run: as questions in a terminal, else as notes."""
        if self._keyboard.is_terminal and not self._options.as_json:
            self.printer.end_line()
            self._questions.look(run_id)
        elif not self._options.as_json:
            for tool in self._questions.find_new(run_id):
                self._note(f"{tool} waits for approval: spar approvals list")

    def _handle_line(self, line: str, run_id: str) -> None:
        """Handle a line that was typed during a run: a command, an answer to an approval, or a message."""
        self._tell_cut()
        if not line.strip() or self._is_command(line):
            return
        if self._questions.is_open:
            self._questions.answer(line)
        else:
            self._say(line)

    def _on_interrupt(self) -> None:
        """Abort the current run at the first Ctrl-C, leave at the second."""
        self._interrupts += 1
        if self._interrupts > 1:
            raise _Left(exits.INTERRUPTED)
        self.printer.end_line()
        self._note("calling it off; Ctrl-C again leaves")
        self._abort()

    def _abort(self) -> None:
        """Abort the current and the pending runs in a thread; their ends are shown as they come."""
        run_ids = [run_id for run_id in (self._current, *self._pending) if run_id]

        def work() -> None:
            for run_id in run_ids:
                try:
                    self._client.answer(abort, RunId(run_id), patience=BACK_WITHIN, lost=self._tell_lost)
                except ServiceError as error:
                    self._note(str(error))

        threading.Thread(target=work, name="abort", daemon=True).start()

    # -- commands

    def _is_command(self, line: str) -> bool:
        """Carry out a line that is a command; return False for any other line."""
        word, _, argument = line.strip().partition(" ")
        argument = argument.strip()
        if not line.startswith("/"):
            return False
        try:
            self._command(word, argument)
        except NotRunningError:
            self._note("no service runs there")
        except ServiceError as error:
            self._note(ending(self._client, error)[0])
        return True

    def _command(self, word: str, argument: str) -> None:
        if argument and word in WITHOUT_WORDS:
            self._note(f"the words behind {word} were not read")
        match word:
            case "/new" | "/reset":
                self._begin_anew()
            case "/stop" if self._current:
                self._abort()
            case "/stop":
                self._note("nothing goes on")
            case "/status":
                write(rendered(*status_blocks(self._client.answer(status))))
            case "/model":
                self._choose("model", argument)
            case "/think" if argument in ("", *USUAL, *THINKING):
                self._choose("thinking", argument)
            case "/think":
                self._note(f"/think {argument}: must be {', '.join(THINKING)}, or default")
            case "/verbose":
                self.printer.is_verbose = not self.printer.is_verbose
                self._note(f"calls are {'told' if self.printer.is_verbose else 'not told'}")
            case "/reasoning":
                self.printer.shows_thoughts = not self.printer.shows_thoughts
                self._note(f"thoughts are {'shown' if self.printer.shows_thoughts else 'not shown'}")
            case "/help":
                write(rendered(Fields("", tuple(HELP.items()), max(map(len, HELP)) + 1, 0)))
            case "/quit" | "/exit":
                if self._current:
                    self._note(f"the run goes on; look with: spar runs follow {self._current}")
                raise _Left(exits.OK)
            case _:
                self._note(f"no command {word}; /help lists them (a message that begins with a slash: a space first)")

    def _begin_anew(self) -> None:
        try:
            self._client.answer(sessions.reset, sessions.SessionKey(self._session))
        except RefusedError as error:
            if error.status != HTTPStatus.NOT_FOUND or error.is_of_route:  # else: a session without messages
                raise
        self._note("the conversation begins anew")

    def _choose(self, option: str, value: str) -> None:
        """Set an option for further messages, and print it; without a value only print it."""
        if value in USUAL:
            self._run_options.pop(option, None)
        elif value:
            self._run_options[option] = value
        self._note(f"{option}: {self._run_options.get(option, 'as configured')}")

    def _tell_lost(self) -> None:
        self._note("the service does not answer; waiting for it")

    def _note(self, text: str) -> None:
        self.printer.end_line()
        click.echo(printable(text), err=True)


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


def _earlier(client: Client, session: str, number: int) -> list[Entry]:
    """Return the entries of the last messages of a session since its reset, and of their answers, oldest first.

    Args: number: the number of messages.
    """
    try:
        choice = sessions.TranscriptChoice(session, min(number * 20, sessions.LONGEST_TRANSCRIPT))
        entries = client.call(sessions.transcript, choice)
    except RefusedError:  # it has no transcript
        return []
    resets = [place for place, entry in enumerate(entries) if entry.kind == "reset"]
    texts = [entry for entry in entries[resets[-1] + 1 if resets else 0 :] if entry.kind in _TEXTS and _text(entry)]
    users = [place for place, entry in enumerate(texts) if entry.kind == "user"]
    return texts[users[-number] :] if len(users) >= number else texts


def _text(entry: Entry) -> str:
    return str(entry.body.get(_TEXTS[entry.kind]) or "")


#: The field of the text in each kind of entry that has one.
_TEXTS: Final = {"user": "text", "end": "reply"}
