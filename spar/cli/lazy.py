"""The command `spar` as a table: its commands in groups, each imported when it is called, so that help is quick."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Place(NamedTuple):
    """Place of a command, which is imported when it is called.

    `target` is its "module:attribute", "" for one that follows from the table of operations. `summary` describes it in
    one line. `commands` are the places of a noun's commands that do not follow from the table, or of functions that
    return the answer of one that does as blocks, from its input and its answer. `renamed` are the names of earlier
    builds with the present ones.
    """

    target: str
    summary: str
    commands: Mapping[str, str] = {}
    renamed: Mapping[str, str] = {}


_IN: Final = "spar.cli.commands"
#: The commands in groups, in the order in which people meet them.
GROUPS: Final[dict[str, dict[str, Place]]] = {
    "Talk": {
        "send": Place(f"{_IN}.conversation.runs:send", "Send a message and print the answer."),
        "chat": Place(f"{_IN}.conversation.chat.talk:chat", "Talk with it in a terminal or a pipe."),
        "runs": Place("", "Runs: list, show, wait, follow, abort, give feedback.", {
            "show": f"{_IN}.conversation.runs:run_blocks", "wait": f"{_IN}.conversation.runs:wait_for",
            "follow": f"{_IN}.conversation.follow:follow", "feedback": f"{_IN}.conversation.runs:give_feedback",
        }),
        "sessions": Place("", "Sessions: list, show, set, reset, forget; transcripts, prompts.", {
            "show": f"{_IN}.conversation.sessions:session_blocks",
            "set": f"{_IN}.conversation.sessions:set_session", "prompt": f"{_IN}.conversation.sessions:prompt",
            "transcript": f"{_IN}.conversation.transcript:transcript",
        }),
    },
    "Watch": {
        "status": Place(f"{_IN}.operate.status:status", "Show what the running service is doing."),
        "top": Place(f"{_IN}.operate.status:top", "Show live what it does, and answer what it asks."),
        "incidents": Place("", "Incidents: perceptions that belong to one problem.", {
            "show": f"{_IN}.records.incidents:show_incident",
        }),
        "sensors": Place("", "Sensors: list them, restore one from quarantine."),
        "rules": Place("", "Rules: how often each fired, and when last."),
        "channels": Place("", "Channels on which people talk with it, and undelivered messages."),
        "notifiers": Place("", "Notifiers of alerts: list and test them.", {
            "test": f"{_IN}.operate.observe:test_notifiers",
        }),
        "observe": Place(f"{_IN}.operate.observe:observe", "Print alert rules, a dashboard, the API as a document."),
    },
    "Decide": {
        "approvals": Place("", "Calls that wait for your decision.", {
            verb: f"{_IN}.review.decisions:{verb}" for verb in ("approve", "deny", "edit", "replace")
        }),
        "calls": Place("", "Calls that may have had their effect: answer what came of it.", {
            "resolve": f"{_IN}.review.decisions:resolve_doubt",
        }),
        "dead": Place("", "Work that failed too often: try it again, or drop it."),
        "senders": Place("", "Senders of messages: list, pair, allow, deny, forget."),
        "tokens": Place("", "Access tokens of programs that use the API: list, create, revoke."),
        "examples": Place("", "Examples that teach it the intents of texts.", {
            "list": f"{_IN}.review.examples:examples_blocks", "teach": f"{_IN}.review.examples:taught_blocks",
            "try": f"{_IN}.review.examples:reading_blocks",
        }, {"intent": "examples teach", "kind": "examples teach --what kind"}),
    },
    "Look back": {
        "cycles": Place("", "Past cycles: list, show; what the pipeline makes of lines.", {
            "show": f"{_IN}.records.cycles:show_cycle", "perceive": f"{_IN}.records.perceive:perceive",
        }),
        "memory": Place("", "Experiences: search, show, manage; backup, verify.", {
            "search": f"{_IN}.records.experiences:search", "show": f"{_IN}.records.experiences:show_one",
            **{verb: f"{_IN}.records.experiences:{verb}" for verb in ("why", "figures", "export", "forget")},
            "import": f"{_IN}.records.experiences:import_",
            **{verb: f"{_IN}.operate.maintenance:{verb}" for verb in ("backup", "restore", "verify")},
        }, {"audit": "memory figures"}),
        "audit": Place("", "The audit log of changes: list, verify.", {
            "verify": f"{_IN}.operate.maintenance:verify_log",
        }),
    },
    "Set up": {
        "init": Place(f"{_IN}.setup.profiles:init", "Write a commented config.toml to begin with."),
        "run": Place(f"{_IN}.operate.run:run", "Run the service in the foreground."),
        "pause": Place("", "Let the running cycles finish and begin no other."),
        "resume": Place("", "Continue after a pause."),
        "reload": Place("", "Read the configuration again, between two cycles."),
        "stop": Place(f"{_IN}.operate.run:stop", "Drain and stop the running service."),
        "step": Place(f"{_IN}.conversation.runs:step", "Run one phase and print its output."),
        "doctor": Place(f"{_IN}.operate.maintenance:doctor",
                        "Check the whole installation, and say what to do about problems."),
        "config": Place(f"{_IN}.setup.config:config", "Check, show or describe the configuration; list its parts."),
        "service": Place(f"{_IN}.operate.unit:service_unit", "Let systemd run it: install, status, uninstall; logs."),
        "mcp": Place(f"{_IN}.setup.mcp:mcp", "Look at tools of MCP servers that changed, and accept them."),
        "new": Place(f"{_IN}.setup.new:new", "Write a package for your own sensor, tool or planner."),
        "completion": Place(f"{_IN}.setup.completion:completion",
                            "Let your shell complete commands, sessions and runs."),
        "shell": Place("spar.cli.shell:shell", "Open a Python prompt with the agent loaded; await works."),
    },
}  # fmt: skip
#: The place of each command.
PLACES: Final = {name: place for group in GROUPS.values() for name, place in group.items()}
#: Commands of earlier builds, with the present ones.
RENAMED: Final = {
    "wait": "runs wait", "follow": "runs follow", "abort": "runs abort", "feedback": "runs feedback",
    "reset": "sessions reset", "transcript": "sessions transcript", "prompt": "sessions prompt",
    "perceive": "cycles perceive", "backup": "memory backup", "restore": "memory restore", "verify": "memory verify",
    "logs": "service logs", "notify": "notifiers", "learn": "examples", "parts": "config parts",
}  # fmt: skip


class LazyGroup(click.Group):
    """Group of the commands of `GROUPS`."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(PLACES)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in PLACES:
            return None
        place = PLACES[name]
        command: click.Command = _imported(place.target) if place.target else command_of_noun(name, place)
        return command

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return completions of the commands with their summaries, without importing them."""
        from click.shell_completion import CompletionItem

        items = [CompletionItem(name, help=place.summary) for name, place in PLACES.items()
                 if name.startswith(incomplete)]  # fmt: skip
        return [*items, *click.Command.shell_complete(self, context, incomplete)]

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        for title, places in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, place.summary) for name, place in places.items()], col_max=10)

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name in RENAMED:
            raise click.UsageError(f"spar {name} is now: spar {RENAMED[name]}", context)
        if name and name not in PLACES:
            raise _unknown(name, PLACES, context)
        return super().resolve_command(context, args)


class NounGroup(click.Group):
    """Group of the commands of a noun: those of its place, and those that follow from the table of operations."""

    def __init__(self, noun: str, place: Place) -> None:
        super().__init__(noun, help=place.summary)
        self._noun, self._place = noun, place

    def list_commands(self, context: click.Context) -> list[str]:
        return list(dict.fromkeys([*self._from_table(), *self._place.commands]))

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        target = self._place.commands.get(name)
        part = None if target is None else _imported(target)
        if isinstance(part, click.Command):
            return part
        if (operation := self._from_table().get(name)) is None:
            return None
        from spar.cli.nouns import command_of

        return command_of(operation, part)

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] in self._place.renamed:
            new = self._place.renamed[args[0]]
            raise click.UsageError(f"spar {self._noun} {args[0]} is now: spar {new}", context)
        if args and self.get_command(context, args[0]) is None:
            raise _unknown(args[0], self.list_commands(context), context)
        return super().resolve_command(context, args)

    def _from_table(self) -> dict[str, Any]:
        """Return the operations that have a command, by their verb."""
        from spar.operations.table import operations_of

        return {operation.name.split()[-1]: operation for operation in operations_of(self._noun)
                if operation.command is not None}  # fmt: skip


def _unknown(name: str, known: Iterable[str], context: click.Context) -> click.UsageError:
    """Return the error of a word that is no command, with those that are."""
    names = list(known)
    near = get_close_matches(name, names, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return click.UsageError(f"no command {name!r}; known: {', '.join(names)}{hint}", context)


def command_of_noun(name: str, place: Place) -> click.Command:
    """Return the command of a name that follows from the table: a group, or an operation of one word."""
    if place.commands:
        return NounGroup(name, place)
    from spar.operations.table import operations_of

    operations = operations_of(name)
    if operations[0].name != name:
        return NounGroup(name, place)
    from spar.cli.nouns import command_of

    return command_of(operations[0])


def _imported(target: str) -> Any:
    """Return the value of a "module:attribute"."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)
