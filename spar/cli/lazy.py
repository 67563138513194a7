"""The command `spar` as a table: its commands in groups, each imported when it is called, so that help is quick."""

from __future__ import annotations

import importlib
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Place(NamedTuple):
    """Place of a command: "module:attribute", "" for a noun that follows from the table of operations alone; and its
    description in one line, so that `spar --help` imports no command."""

    target: str
    summary: str


_IN: Final = "spar.cli.commands"
#: The commands in groups, in the order in which people meet them.
GROUPS: Final[dict[str, dict[str, Place]]] = {
    "Talk": {
        "send": Place(f"{_IN}.conversation.runs:send", "Send a message and print the answer."),
        "chat": Place(f"{_IN}.conversation.chat.talk:chat", "Talk with it in a terminal or a pipe."),
        "runs": Place(f"{_IN}.conversation.runs:runs", "Runs: list, show, wait, follow, abort, give feedback."),
        "sessions": Place(f"{_IN}.conversation.sessions:sessions",
                          "Sessions: list, show, set, reset, forget; transcripts, prompts."),
    },
    "Watch": {
        "status": Place(f"{_IN}.operate.status:status", "Show what the running service is doing."),
        "top": Place(f"{_IN}.operate.top:top", "Show live what it does, and answer what it asks."),
        "incidents": Place(f"{_IN}.records.incidents:incidents", "Incidents: perceptions that belong to one problem."),
        "sensors": Place("", "Sensors: list them, restore one from quarantine."),
        "channels": Place("", "Channels on which people talk with it, and undelivered messages."),
        "notifiers": Place(f"{_IN}.operate.notifiers:notifiers", "Notifiers of alerts: list and test them."),
        "observe": Place(f"{_IN}.operate.observe:observe", "Print alert rules, a dashboard, the API as a document."),
    },
    "Decide": {
        "approvals": Place(f"{_IN}.review.approvals:approvals", "Calls that wait for your decision."),
        "calls": Place(f"{_IN}.review.in_doubt:calls", "Calls that may have had their effect: answer what came of it."),
        "dead": Place("", "Work that failed too often: try it again, or drop it."),
        "senders": Place("", "Senders of messages: list, pair, allow, deny, forget."),
        "tokens": Place("", "Access tokens of programs that use the API: list, create, revoke."),
        "examples": Place(f"{_IN}.review.examples:examples", "Examples that teach it the intents of texts."),
    },
    "Look back": {
        "cycles": Place(f"{_IN}.records.cycles:cycles", "Past cycles: list, show; what the pipeline makes of lines."),
        "memory": Place(f"{_IN}.records.experiences:memory", "Experiences: search, show, manage; backup, verify."),
        "audit": Place(f"{_IN}.records.audit:audit", "The audit log of changes: list, verify."),
    },
    "Set up": {
        "init": Place(f"{_IN}.setup.init:init", "Write a commented config.toml to begin with."),
        "run": Place(f"{_IN}.operate.run:run", "Run the service in the foreground."),
        "pause": Place("", "Let the running cycles finish and begin no other."),
        "resume": Place("", "Continue after a pause."),
        "reload": Place("", "Read the configuration again, between two cycles."),
        "stop": Place(f"{_IN}.operate.control:stop", "Drain and stop the running service."),
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
        target, summary = PLACES[name]
        module, _, attribute = (target or "spar.cli.nouns:command_of_noun").partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if not target:
            command = command(name, summary)
        assert isinstance(command, click.Command)
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
            near = get_close_matches(name, PLACES, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"no command {name!r}; known: {', '.join(PLACES)}{hint}", context)
        return super().resolve_command(context, args)


class NounGroup(click.Group):
    """Group of the commands of a noun. Args: renamed: commands of earlier builds, with the present ones."""

    def __init__(self, *args: Any, renamed: dict[str, str] | None = None, **more: Any) -> None:
        super().__init__(*args, **more)
        self._renamed = renamed or {}

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] in self._renamed:
            new = self._renamed[args[0]]
            raise click.UsageError(f"spar {context.info_name} {args[0]} is now: spar {new}", context)
        return super().resolve_command(context, args)
