"""A group of commands that imports a command when it is called, so that help is quick."""

from __future__ import annotations

import importlib
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

#: One line of help for each command, so that `spar --help` imports none of them.
SUMMARIES = {
    "init": "Write a commented config.toml to begin with.",
    "new": "Write a package for your own sensor, tool or planner.",
    "run": "Run the service in the foreground.",
    "status": "Show what the running service is doing.",
    "logs": "Show the service's log file: follow it, choose lines.",
    "top": "Show live what it does, and answer what it asks.",
    "pause": "Let the running cycles finish and begin no other.",
    "resume": "Continue after a pause.",
    "stop": "Drain and stop the running service.",
    "reload": "Read the configuration again, between two cycles.",
    "send": "Send a message and print the answer.",
    "chat": "Talk with it in a terminal or a pipe.",
    "wait": "Wait for a run that was sent before.",
    "follow": "Follow a run to its end; print the answer as it is written.",
    "runs": "Look at runs.",
    "abort": "Abort a run.",
    "feedback": "Give feedback on a run.",
    "sensors": "Look at sensors, and restore one from quarantine.",
    "channels": "Look at channels on which people talk with it, and at undelivered messages.",
    "senders": "Manage who may talk with it on its channels.",
    "tokens": "Manage access tokens of programs that use the API over the network.",
    "learn": "Teach it the intents of texts by examples; list and forget examples.",
    "prompt": "Show the parts of the next request to the model.",
    "sessions": "Manage sessions: list, show, set, reset, forget.",
    "reset": "Reset a session: its next message begins a new conversation.",
    "transcript": "Print the messages and the actions of a session.",
    "step": "Run one phase and print its output.",
    "approvals": "Look at calls that wait for your decision, and decide.",
    "calls": "Look at calls that may have had their effect, and answer what became of them.",
    "dead": "Look at work that failed too often; try it again, or drop it.",
    "incidents": "Look at incidents: perceptions that belong to one problem.",
    "perceive": "Show what the pipeline makes of lines.",
    "cycles": "Look at past cycles.",
    "memory": "Search, show and manage experiences.",
    "audit": "List who changed what, and verify that list.",
    "backup": "Copy the memory, whether the service runs or not.",
    "restore": "Replace the memory by a copy; the service must be stopped.",
    "verify": "Check every page and every row of the memory.",
    "doctor": "Check the whole installation, and say what to do about problems.",
    "service": "Let systemd run it: install, show and remove its unit.",
    "notify": "Look at notifiers of alerts, and test them.",
    "observe": "Print alert rules, a dashboard, and the API as a document.",
    "config": "Check, show or describe the configuration.",
    "mcp": "Look at tools of MCP servers that changed, and accept them.",
    "parts": "List the parts that the configuration can name.",
    "completion": "Let your shell complete commands, sessions and runs.",
    "shell": "Open a Python prompt with the agent loaded; await works.",
}


class LazyGroup(click.Group):
    """Group of commands that are given as "module:attribute"."""

    def __init__(self, *args: Any, commands_at: dict[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._at = commands_at

    def list_commands(self, context: click.Context) -> list[str]:
        return list(self._at)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        target = self._at.get(name)
        if target is None:
            return None
        module, _, attribute = target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return completions of the commands with their summaries, without importing them."""
        from click.shell_completion import CompletionItem

        names = [name for name in self._at if name.startswith(incomplete)]
        items = [CompletionItem(name, help=SUMMARIES[name]) for name in names]
        return [*items, *click.Command.shell_complete(self, context, incomplete)]

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, SUMMARIES[name]) for name in self._at])

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and name not in self._at:
            near = get_close_matches(name, self._at, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"no command {name!r}; known: {', '.join(self._at)}{hint}", context)
        return super().resolve_command(context, args)
