"""Commands of people to their session: recognized in their messages, carried out, answered.

A command is the first line of a message: a slash, a word, perhaps an argument. It is a run that is never planned. It is
accepted like any message, so that it is neither lost nor carried out twice, and its answer takes the way of all
answers. Commands are no part of the transcript.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from msgspec import Struct

from spar.attaching import Attaching, Services
from spar.clock import zone_named
from spar.data.reply import End
from spar.data.text import one_line
from spar.errors import SparError
from spar.facts import COMMAND
from spar.hooks import HookContext
from spar.ports.any_part import has
from spar.ports.planners import OptionalPlanner
from spar.records.audit import AuditDraft, auditing
from spar.records.session import Origin, SessionRecord
from spar.runs.runs import Run
from spar.session.parts import SessionParts
from spar.types import Perception, replace

#: The answer to further lines in the message of a command.
_REST: Final = "The other lines of the message were not read."
#: Built-in commands that take an argument.
_WITH_ARGUMENT: Final = ("model", "feedback")
#: Arguments of `/model` that undo the choice of a model.
_USUAL: Final = ("default", "usual")
#: Arguments of `/feedback`, and whether each is positive.
_VERDICTS: Final = {"good": True, "bad": False}

#: The most characters of a command's name, and of a line that may be a command.
_LONGEST_WORD: Final = 32
_LONGEST_LINE: Final = 1_000


class Command(Struct, frozen=True):
    """Command in a message: `/name argument`. `rest` is the text after its line."""

    name: str
    argument: str = ""
    rest: str = ""


def command_of(text: str) -> Command | None:
    """Return the command in a text; None if it is no command."""
    line, _, rest = text.partition("\n")
    line = line.strip()
    if not line.startswith("/") or len(line) > _LONGEST_LINE:
        return None
    word, _, argument = line[1:].partition(" ")
    if not word or len(word) > _LONGEST_WORD or not (word[0].isalpha() and word.replace("_", "a").isalnum()):
        return None
    return Command(word.lower(), argument.strip(), rest.strip())


class Commands:
    """The commands of one agent's sessions."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._answers: Mapping[str, Callable[[Run, Command], Awaitable[str]]] = {
            "new": self._begin_anew, "reset": self._begin_anew, "stop": self._stop, "status": self._status,
            "model": self._model, "feedback": self._judge,
        }  # fmt: skip

    @property
    def _parts(self) -> SessionParts:
        parts: SessionParts = self._services.conversations().parts
        return parts

    # -- recognizing

    async def marked(self, message: Perception, origin: Origin) -> Perception:
        """Return a message of a trusted sender, marked as a command if it is one.

        Args: origin: the sender and the interface it came through, recorded if the command creates the session.
        """
        core = self._services.core
        if (command := command_of(message.text)) is None:
            return message
        answer = None
        if "command" in core.hooks.used:
            context = HookContext("command", core.name, command, message.session)
            outcome = await self._parts.reports.run_hooks(context)
            if outcome.denied:
                answer = f"/{command.name} is refused: {outcome.reason or 'by a hook'}"
            elif isinstance(outcome.value, str):
                answer = outcome.value
        if answer is None and command.name not in self._answers:
            return message
        mark = {"name": command.name, "argument": command.argument, "rest": command.rest, "answer": answer,
                "origin": [origin.door, origin.channel, origin.sender, origin.person]}  # fmt: skip
        return replace(message, attributes={**message.attributes, COMMAND: mark})

    # -- carrying out

    def carry_out(self, run: Run) -> None:
        """Carry out a command in the background."""
        self._parts.requests.in_background(self._carry_out(run), "command of")

    async def _carry_out(self, run: Run) -> None:
        """Carry out a command, journal the end of its run, and send the answer."""
        mark = run.message.attributes[COMMAND]
        command = Command(str(mark.get("name")), str(mark.get("argument")), str(mark.get("rest")))
        try:
            answer = mark.get("answer")
            who, agent = _speaker(run), self._parts.core.name
            draft = AuditDraft(who, "message", f"session.{command.name}", run.session, agent=agent,
                               rows=("session", "session.reset"))  # fmt: skip
            with auditing(draft):
                text = str(answer) if answer is not None else await self._answers[command.name](run, command)
            if answer is None and command.argument and command.name not in _WITH_ARGUMENT:
                text = f"{text}\nThe words behind /{command.name} were not read."
            if command.rest:
                text = f"{text}\n{_REST}"
            end = End("ok", output=text)
        except (ValueError, LookupError, SparError) as error:
            reason = str(error.args[0]) if error.args else type(error).__name__
            end = End("error", reason, output=reason)
        if run.ended is None:
            self._parts.runs.finish(run, end)
            await self._parts.recovery.safe()
            self._parts.runs.end(run, await self._parts.conversations.outbox.answer(run, end))

    async def _begin_anew(self, run: Run, command: Command) -> str:
        before = await self._parts.conversations.records.find(run.session)
        if before is None:
            return "A new conversation begins."
        if before.began_at > run.accepted_at:  # this reset happened before a restart, or a later one did
            return f"A new conversation begins ({before.id})."
        record = await self._services.conversations().resets.reset(run.session, _speaker(run))
        has_begun = record.ordinal != before.ordinal
        return f"A new conversation begins ({record.id})." if has_begun else f"It has just begun ({record.id})."

    async def _stop(self, run: Run, command: Command) -> str:
        """Abort the open runs of the session, the newest first, so that no waiting run begins meanwhile.

        Messages after the command stay, because a process may carry out the command much later.
        """
        runs = [other for other in self._open_runs(run) if other.accepted_at <= run.accepted_at]
        begun = sum(other.started_at is not None for other in runs)
        for other in reversed(runs):
            await self._services.conversations().stops.abort(other)
        waiting = len(runs) - begun
        parts = [f"{number} {noun}{'' if number == 1 else 's'}"
                 for number, noun in ((begun, "run"), (waiting, "waiting message")) if number]  # fmt: skip
        return f"Stopped: {' and '.join(parts)}." if parts else "Nothing goes on."

    def _open_runs(self, command: Run) -> list[Run]:
        """Return the open runs of the session of a command, without commands."""
        return [run for run in self._parts.runs.open_in(command.session) if not run.state.is_command]

    async def _status(self, run: Run, command: Command) -> str:
        record = await self._parts.conversations.records.find(run.session)
        if record is None:
            return f"{run.session}: nothing was said here yet."
        runs, given = self._open_runs(run), record.defaults.given
        begun = "running" if any(other.started_at is not None for other in runs) else "waiting"
        state = f"{begun}, {len(runs)} open" if runs else "at rest"
        chosen = ", ".join(f"{name} {one_line(str(value))[:80]}" for name, value in given.items()) or "as usual"
        zone = zone_named(self._parts.core.settings.sessions.timezone)
        since = record.began_at.astimezone(zone).strftime("%Y-%m-%d %H:%M %Z")
        return f"{record.id}{_titled(record)}: {state}; since {since}; {chosen}"

    async def _judge(self, run: Run, command: Command) -> str:
        """Record feedback on the last answered run of the session."""
        verdict, _, why = command.argument.partition(" ")
        if verdict not in _VERDICTS:
            return f"Say /feedback {' or /feedback '.join(_VERDICTS)}, and why."
        last = next((other for other in self._parts.runs.newest if other.session == run.session and other.ended
                     and other.accepted_at < run.accepted_at and not other.state.is_command), None)  # fmt: skip
        if last is None:
            return "Nothing was answered here yet, as far as this process knows."
        await self._parts.attached("learning").give(last.id, _VERDICTS[verdict], why.strip())
        return f"It is kept: {verdict}."

    async def _model(self, run: Run, command: Command) -> str:
        """List the models of the session, or choose one for its next runs."""
        planner = self._services.setup.modules["plan"].part
        models = planner.allowed_models if has(planner, OptionalPlanner.allowed_models) else ()
        record = await self._parts.conversations.records.find(run.session)
        current = None if record is None else record.defaults.model
        if not command.argument:
            if not models:
                return "There is no model to choose."
            listed = "\n".join(f"- {name}{' (chosen)' if name == current else ''}" for name in models)
            return f"Models of this session:\n{listed}"
        name = None if command.argument in _USUAL else command.argument
        records = self._parts.conversations.records
        await records.set(run.session, defaults={"model": name}, origin=_origin(run))
        return (
            f"The next message is answered by {name}." if name else "The next message is answered by the usual model."
        )


def _speaker(run: Run) -> str:
    """Return who sent a command, as far as the interface knows the sender."""
    origin = _origin(run)
    return (origin.person or origin.sender or run.message.source)[:200]


def _origin(run: Run) -> Origin:
    """Return the origin of a command; an empty one for a command that an earlier release accepted."""
    fields = run.message.attributes[COMMAND].get("origin")
    return Origin(*map(str, fields)) if isinstance(fields, list) and len(fields) in (3, 4) else Origin()


def _titled(record: SessionRecord) -> str:
    return f" ({record.title})" if record.title else ""


def attach(agent: Attaching) -> Commands:
    """Attach the commands of people, and return them."""
    return Commands(agent.services)
