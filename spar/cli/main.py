"""The command `spar`: its table of commands, its own options and its exit codes.

Each error is one sentence on standard error and a code of `spar.service.exit_codes`. With `--json` the answer on
standard output is one JSON value, for scripts.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Mapping
from functools import cache, cached_property
from importlib import import_module
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from spar import __version__
from spar.cli.context import Options, fail
from spar.data.text import one_line, printable, unknown
from spar.service import exit_codes as exits

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

#: New objects after which the garbage collector runs, which takes half a millisecond then.
YOUNG: Final = 10_000


class Place(NamedTuple):
    """Place of a command, which is imported when it is called.

    `target` is its "module:attribute", "" for one that follows from the table of operations. `summary` describes it in
    one line. `commands` are the places of a noun's commands that do not follow from the table, or of functions that
    return the answer of one that does as blocks, from its input and its answer. `renamed` are the names of earlier
    builds with the present ones. `group` is the part of the help that lists the command of a package; the summary of
    a broken one says why it cannot be called.
    """

    target: str
    summary: str
    commands: Mapping[str, str] = {}
    renamed: Mapping[str, str] = {}
    group: str = "More"
    is_broken: bool = False


_IN: Final = "spar.cli.commands"
#: The commands in groups, in the order in which people meet them; those that packages bring follow in their group.
GROUPS: Final[dict[str, dict[str, Place]]] = {
    "Talk": {
        "send": Place(f"{_IN}.runs:send", "Send a message and print the answer."),
        "runs": Place("", "Runs: list, show, wait, follow, abort, give feedback.", {
            "wait": f"{_IN}.runs:wait_for", "follow": f"{_IN}.runs:follow",
        }),
        "sessions": Place("", "Sessions: list, show, set, fork, reset, forget; transcripts, prompts."),
    },
    "Watch": {
        "status": Place(f"{_IN}.status:status", "Show what the running service is doing."),
        "shadow": Place("", "The agreement of a second configuration: run --shadow."),
        "incidents": Place("", "Incidents: perceptions that belong to one problem.", {
            "show": "spar.cli.cycles:incident_blocks",
        }),
        "parts": Place("", "List the attachments of the agent: their states, and why one is not attached."),
        "nodes": Place("", "Machines that run the agent together: list them, drain one."),
        "sensors": Place("", "Sensors: list them, restore one from quarantine."),
        "rules": Place("", "Rules: how often each fired, and when last."),
        "channels": Place("", "Channels to people: list and test them; undelivered messages."),
        "notifiers": Place("", "Notifiers of alerts: list and test them.", {
            "test": f"{_IN}.observe:test_notifiers",
        }),
        "observe": Place(f"{_IN}.observe:observe", "Print alert rules, a dashboard, the API as a document."),
    },
    "Decide": {
        "approvals": Place("", "Calls that wait for your decision."),
        "calls": Place("", "Calls that may have had their effect: answer what came of it."),
        "dead": Place("", "Work that failed too often: try it again, or drop it."),
        "senders": Place("", "Senders of messages: list, pair, allow, deny, forget."),
        "tokens": Place("", "Access tokens of programs that use the API: list, create, revoke."),
        "examples": Place("", "Examples that teach it the intents of texts.", {}, {
            "intent": "examples teach", "kind": "examples teach --what kind",
        }),
    },
    "Look back": {
        "cycles": Place("", "Past cycles: list, show, replay; what the pipeline makes of lines.", {
            "show": "spar.cli.cycles:cycle_blocks", "perceive": f"{_IN}.perceive:perceive",
            "replay": f"{_IN}.replay:replay",
        }),
        "why": Place("", "Say why a past cycle went as it did.", {"why": "spar.cli.cycles:reason_blocks"}),
        "why-not": Place("", "Say why a rule did not decide in a past cycle.", {
            "why-not": "spar.cli.cycles:rule_blocks",
        }),
        "backtest": Place(f"{_IN}.replay:backtest", "Count what other rules would have decided in the past."),
        "memory": Place("", "Experiences: search, show, manage; backup, verify, move.", {
            "import": f"{_IN}.memory:import_",
            "export": f"{_IN}.memory:export",
            **{verb: f"{_IN}.memory:{verb}" for verb in ("backup", "restore", "verify", "move")},
        }, {"audit": "memory figures"}),
        "abilities": Place("", "Abilities of tools: how often each goes well at a kind of task."),
        "changes": Place("", "Changes of settings, tools, abilities; new lines and senders."),
        "cost": Place("", "Cost of requests to models: by model, session, rule or day."),
        "audit": Place("", "The audit log of changes: list, verify."),
    },
    "Set up": {
        "init": Place(f"{_IN}.config:init", "Write a commented config.toml to begin with."),
        "run": Place(f"{_IN}.run:run", "Run the service in the foreground."),
        "pause": Place("", "Let the running cycles finish and begin no other."),
        "resume": Place("", "Continue after a pause."),
        "reload": Place("", "Read the configuration again, between two cycles."),
        "stop": Place(f"{_IN}.run:stop", "Drain and stop the running service."),
        "step": Place(f"{_IN}.runs:step", "Run one phase and print its output."),
        "break": Place("", "Breakpoints on the running service: add, list, remove."),
        "attach": Place(f"{_IN}.attach:attach", "Look at a session at a breakpoint, change it, let it go on."),
        "doctor": Place("spar.cli.doctor.checks:doctor",
                        "Check the whole installation, and say what to do about problems."),
        "config": Place(f"{_IN}.config:config", "Check, show or describe the configuration; list its parts."),
        "service": Place(f"{_IN}.unit:service_unit", "Let systemd run it: install, status, uninstall; logs."),
        "new": Place(f"{_IN}.new:new", "Write a package for your own sensor, tool or planner."),
        "completion": Place("spar.cli.complete:completion",
                            "Let your shell complete commands, sessions and runs."),
        "shell": Place(f"{_IN}.shell:shell", "Open a Python prompt with the agent loaded; await works."),
    },
}  # fmt: skip
#: The place of each command that no package brings.
PLACES: Final = {name: place for group in GROUPS.values() for name, place in group.items()}
#: Commands of earlier builds, with the present ones.
RENAMED: Final = {
    "wait": "runs wait", "follow": "runs follow", "abort": "runs abort", "feedback": "runs feedback",
    "reset": "sessions reset", "transcript": "sessions transcript", "prompt": "sessions prompt",
    "perceive": "cycles perceive", "backup": "memory backup", "restore": "memory restore", "verify": "memory verify",
    "logs": "service logs", "notify": "notifiers", "learn": "examples",
    "memory search --transcripts": "memory transcripts WORDS",
}  # fmt: skip
#: Commands with an option `--config` of their own, behind their name.
OF_TWO_CONFIGURATIONS: Final = frozenset({"replay", "backtest", "why", "why-not"})


@cache
def attached() -> Mapping[str, Place]:
    """Return the places of the commands that packages bring, by name: the entry points `spar.commands`.

    The commands of features that can be deleted are among them. With `SPAR_PLUGINS=off` no other package is asked.
    """
    from importlib.metadata import entry_points  # takes 20 ms, which most commands do not need

    places: dict[str, Place] = {}
    for point in entry_points(group="spar.commands"):
        owner = point.dist.name if point.dist else "an unknown distribution"
        if owner != "spar-agent" and os.environ.get("SPAR_PLUGINS", "").lower() == "off":
            continue
        why = f"{owner} and another package bring it; uninstall one of them" if point.name in places else ""
        try:
            place = Place(*point.load())
        except Exception as error:  # of another package
            why = why or one_line(f"{owner} brings it, and it is broken: {type(error).__name__}: {error}")
        places[point.name] = Place("", f"cannot be called: {why}", is_broken=True) if why else place
    return dict(sorted(places.items()))


def grouped() -> Mapping[str, Mapping[str, Place]]:
    """Return the place of each command by its group and name; that of a package never takes the place of another."""
    groups = {title: dict(places) for title, places in GROUPS.items()}
    for name, place in attached().items():
        if name not in PLACES:
            groups.setdefault(place.group, {})[name] = place
    return groups


class ImportedCommands(click.Group):
    """Group of commands that are imported when they are called. `renamed` are earlier names with the present ones."""

    renamed: Mapping[str, str] = {}

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name in self.renamed:
            raise click.UsageError(f"{context.command_path} {name} is now: spar {self.renamed[name]}", context)
        if (command := self.get_command(context, name)) is None:
            raise click.UsageError(unknown("command", name, self.list_commands(context)), context)
        return name, command, args[1:]


class Spar(ImportedCommands):
    """Group of the commands of `GROUPS`."""

    renamed = RENAMED

    def list_commands(self, context: click.Context) -> list[str]:
        return [name for group in grouped().values() for name in group]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        place = PLACES.get(name) or attached().get(name)
        if place is None:
            return None
        if place.is_broken:
            fail(f"spar {name} {place.summary}", exits.UNAVAILABLE)
        if place.target:
            command: click.Command = _imported(place.target)
            return command
        noun = Noun(name, place)
        return noun.get_command(context, name) if name in noun.operations else noun

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return completions of the commands with their summaries, without importing them."""
        from click.shell_completion import CompletionItem

        items = [CompletionItem(name, help=place.summary) for group in grouped().values()
                 for name, place in group.items() if name.startswith(incomplete)]  # fmt: skip
        return [*items, *click.Command.shell_complete(self, context, incomplete)]

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        for title, group in grouped().items():
            with formatter.section(title):
                formatter.write_dl([(name, place.summary) for name, place in group.items()], col_max=10)


class Noun(ImportedCommands):
    """Group of the commands of a noun: those of its place, and those that follow from the table of operations."""

    def __init__(self, noun: str, place: Place) -> None:
        super().__init__(noun, help=place.summary)
        self._noun, self._place, self.renamed = noun, place, place.renamed

    @cached_property
    def operations(self) -> Mapping[str, Any]:
        """Return the operations that have commands, by the verb of each."""
        from spar.operations.operation import commands_of

        return commands_of(self._noun)

    def list_commands(self, context: click.Context) -> list[str]:
        return list(dict.fromkeys([*self.operations, *self._place.commands]))

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        target = self._place.commands.get(name)
        part = None if target is None else _imported(target)
        if isinstance(part, click.Command):
            return part
        from spar.cli.nouns import command_of

        operation = self.operations.get(name)
        return command_of(operation, name, operation.commands[name], part) if operation is not None else None


def _imported(target: str) -> Any:
    """Return the value of a "module:attribute"."""
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


@click.group(cls=Spar, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-c", "--config", "config_path", type=click.Path(path_type=Path), help="The file (default: ./config.toml)."
)
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a setting: --set log.level=debug."
)
@click.option("--json", "as_json", is_flag=True, help="Answer with one JSON value.")
@click.version_option(__version__, message="spar %(version)s")
@click.pass_context
def cli(context: click.Context, config_path: Path | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """A continuous agent: it senses, plans, acts and reflects, forever.

    \b
    Examples:
      spar init                        a commented config.toml
      spar run                         the service, in the foreground
      spar status                      what it is doing
      spar send "how are you?"         a message, and its answer
      spar chat                        a conversation
      spar approvals list              what it asks you
      spar cycles list                 what it did
      spar memory search "disk"        what it remembers
      spar step sense                  one phase, for debugging
      spar config check                is the configuration right?

    The options below may be written before or after the command: spar status --json
    """
    context.obj = Options(config_path, overrides, as_json)


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit with its code.

    Args: arguments: the command line without the program; default: `sys.argv`.
    """
    _open_standard_streams()
    _collect_less_often()
    sys.exit(_code(arguments))


def _collect_less_often() -> None:
    """Let the garbage collector run less often while the command imports modules, and not at all at the exit.

    Imported modules stay in memory. With the default threshold of 700 new objects and the full collection at the exit,
    which frees nothing, the collector takes a third of the time of a command that loads every part.
    """
    gc.set_threshold(YOUNG)
    atexit.register(gc.freeze)


def _open_standard_streams() -> None:
    """Open standard streams that the parent process has closed, so that no other file gets one of their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def hoisted(arguments: list[str]) -> list[str]:
    """Move the options of `spar` itself to the front: people may write them behind the command."""
    front, others, words = [], [], iter(arguments)
    for word in words:
        if word == "--":
            others += [word, *words]
        elif word.startswith("--config") and not OF_TWO_CONFIGURATIONS.isdisjoint(others[:2]):
            others.append(word)
        elif word in ("-c", "--config", "--set"):
            front += [word, *islice(words, 1)]
        elif word == "--json" or word.startswith(("--config=", "--set=")):
            front.append(word)
        else:
            others.append(word)
    return [*front, *others]


def _code(arguments: list[str] | None) -> int:
    words = hoisted(sys.argv[1:] if arguments is None else arguments)
    try:
        code = cli.main(words, prog_name="spar", standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt):
        return exits.INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return exits.USAGE
    except click.UsageError as error:
        if isinstance(error, click.NoSuchOption) and error.ctx is not None:
            old = f"{error.ctx.command_path} {error.option_name}"
            if (now := RENAMED.get(old.removeprefix("spar "))) is not None:
                error = click.UsageError(f"{old} is now: spar {now}", error.ctx)
        message = StringIO()
        error.show(message)  # it quotes the arguments, which may contain control characters
        click.echo(printable(message.getvalue()), nl=False, err=True)
        return exits.USAGE
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return code if isinstance(code, int) else exits.OK
