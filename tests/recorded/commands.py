"""The commands that are recorded, and what they are given."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from io import StringIO
from pathlib import Path

import click

from spar import __version__
from spar.cli.main import RENAMED, cli
from tests.recorded.world import Answer, World

#: Commands that only look, each asked for text and for JSON, with a running service and without one. Those of an
#: unknown name follow those of a known one.
LISTINGS = (
    "status", "parts", "shadow", "break list", "runs list",
    "runs show {said}", "runs show {missed}", "runs show {failed}", "runs show {asked}", "runs show none",
    "runs wait {said}", "runs wait {missed}", "runs wait {failed}", "runs wait {resting2} --timeout 0",
    "runs wait none",
    "runs follow {measured}", "runs follow {failed}", "runs follow none",
    "sessions list", "sessions list --limit 2", "sessions list --limit 0", "sessions list --after x",
    "sessions show hall", "sessions show nobody",
    "sessions transcripts", "sessions transcript hall", "sessions transcript", "sessions transcript nobody",
    "sessions prompt hall", "sessions prompt hall --full", "sessions prompt nobody",
    "approvals list", "approvals list --status all", "approvals list --status denied", "approvals show {pay1}",
    "approvals show {pay10}", "approvals show none", "approvals grants",
    "calls list", "calls show c1", "calls show none", "calls show ''",
    "dead list", "dead show letter1", "dead show none",
    "incidents list", "incidents list --state open", "incidents show I-1", "incidents show I-9",
    "cycles list", "cycles list --failed", "cycles list --session hall", "cycles show {cycle}", "cycles show none",
    "cycles replay {cycle}", "cycles replay none", "backtest --since 2026-01-01", "backtest --rule none",
    "why {cycle}", "why none", "why-not * {cycle}", "why-not none {cycle}",
    "memory search", "memory search disk", "memory search --failure", "memory search nowhere --session nobody",
    "memory transcripts hall", "memory show e1", "memory show none", "memory why {cycle}", "memory why none",
    "memory figures", "audit list", "audit list --action approval", "audit list --actor nobody", "audit verify",
    "sensors list", "rules list", "abilities list", "cost", "changes", "channels list", "channels failed",
    "senders list", "senders list --status waiting", "tokens list", "examples list", "examples try {words}",
    "notifiers list", "nodes list", "cycles perceive lines.txt",
    "config check", "config show", "mcp list", "mcp accept none", "mcp serve --scopes none", "memory verify",
    "eval", "eval play none.yaml", "eval add", "eval add {said}", "eval add none",
    "service logs --session hall", "config parts", "config parts --broken",
)  # fmt: skip
#: Commands that look at what the machine has, or print a whole file: their answers are summed up.
SUMMED_UP = ("doctor", "config schema", "observe dashboard", "observe openapi", "observe rules")  # fmt: skip
#: Commands that change something, in this order, while the service runs.
CHANGES = (
    "runs abort {resting2}", "runs abort {resting} --json", "runs abort none", "runs abort {said}",
    "runs feedback {said} good", "runs feedback {measured} bad {words} --json", "runs feedback none good",
    "approvals approve {pay1} --yes", "approvals approve {pay2} --yes --for 1h --json", "approvals approve none --yes",
    "approvals approve {pay1} --yes", "approvals approve {pay3} --yes --digest 0",
    "approvals deny {pay3} --yes --reason {words}", "approvals deny {pay4} --yes --json", "approvals deny none --yes",
    "approvals edit {pay5} --yes --param amount=3", "approvals edit {pay6} --yes --params {params} --json",
    "approvals edit none --yes --param amount=3", "approvals replace {pay7} {call} --yes",
    "approvals replace {pay8} {call} --yes --json", "approvals replace none {call} --yes",
    "approvals revoke {grant}", "approvals revoke {grant} --json", "approvals revoke none",
    "calls resolve c1 done --yes", "calls resolve c2 failed --yes --json", "calls resolve none done --yes",
    "calls resolve c1 again --yes", "calls resolve c1", "calls resolve c1 perhaps", "calls resolve '' done",
    "calls resolve c1 done --output {{", "calls resolve c1 failed --output 1", "dead retry", "dead drop ''",
    "dead drop letter1", "dead drop letter2 --json", "dead drop none",
    "dead retry letter3", "dead retry letter4 --json", "dead retry none",
    "sessions fork hall --as other", "sessions fork hall --json",
    "sessions fork hall --as other", "sessions fork hall --at none", "sessions fork nobody",
    "sessions set hall title=Hall", "sessions set hall verbose=false --json", "sessions set hall speed=3",
    "sessions set hall title", "sessions set hall timeout=soon", "sessions set hall model=huge",
    "sessions set new title=New", "sessions reset hall", "sessions reset main --json", "sessions reset nobody",
    "sessions forget broken --yes", "sessions forget pay10 --yes --json", "sessions forget nobody --yes",
    "senders allow mail:a@example.org", "senders allow mail:b@example.org --person Bob --json", "senders allow none",
    "senders deny mail:a@example.org", "senders deny mail:b@example.org --json", "senders deny none",
    "senders forget mail:a@example.org", "senders forget mail:b@example.org --json",
    "senders forget mail:none@example.org",
    "senders pair {code1}", "senders pair {code2} --json", "senders pair AAAA-BBBB",
    "tokens create ci --scopes read", "tokens create bot --scopes read,operate --days 9 --json",
    "tokens create ci --scopes read", "tokens create ci --scopes all", "tokens create ci --scopes ,",
    "tokens create ci", "tokens create CI --scopes read", "tokens create other --scopes read --days 0",
    "tokens revoke ci", "tokens revoke bot --json", "tokens revoke none",
    "examples teach {words} restart_service", "examples teach --what kind {words} log.alert --json",
    "examples teach {words} none", "examples try {words}", "examples try {words} --json",
    "examples forget {example}", "examples forget {example} --json", "examples forget none",
    "memory import more.jsonl", "memory import more.jsonl --json", "memory import wrong.jsonl",
    "memory import none.jsonl",
    "memory export out.jsonl", "memory export more/out.jsonl",
    "memory forget e1", "memory forget e2 --json", "memory forget none", "memory forget --session nobody",
    "channels retry {undelivered}", "channels retry none", "channels drop {undelivered}",
    "channels drop {undelivered2} --json", "channels drop none",
    "channels test folder --to bob", "channels test ops --json", "channels test folder", "channels test none",
    "channels test folder --to nobody",
    "notifiers test ops", "notifiers test ops --json", "notifiers test none", "sensors restore alerts",
    "sensors restore alerts --json", "sensors restore none",
    "send hello", "send hello --json", "send [miss] --session hall", "send [broken]", "send hello --no-wait --key k",
    "send [pay] --timeout 0 --session paid", "send hello --follow", "send hello --model none", "send hello --mode none",
    "chat", "top", "shell", "run", "reload", "reload --json",
    "break add plan --session hall --when 'tool==\"pay\"'", "break add call --name pays --json", "break add plann",
    "break add plan --session nobody", "break add plan --when tol==1", "break add plan --when len(tool)>1",
    "break remove pays", "break remove plan-1 --json", "break remove none", "attach hall", "attach hall --json",
    "attach nobody",
    "sessions reset paid", "sessions reset pay9", "pause", "pause --json", "step sense", "step plan []",
    "step act {call} --json", "step reflect", "step sense 1", "step dream",
    "incidents close I-1", "incidents close I-2 --json", "incidents close I-9",  # the next cycle would close them
    "resume", "resume --json",
    "memory backup copy.db", "memory backup copy2.db --json", "memory restore copy.db",
    "memory move --to postgresql://spar@127.0.0.1:1/agent", "nodes drain none",
    "new sensor night-watch", "new sensor Night --json", "new senser tide", "new tool ../tide", "new tool a--b",
    "new tool ''", "new tool note", "new planner rules",
    "new tool night-light --json", "init own.toml", "init own.toml", "init bare.toml --profile bare --json",
    "completion install --shell bash --print",
    "completion install --shell fish", "completion install --shell fish --json", "service install --as nobody --print",
    "service status --name nobodys", "service uninstall --name nobodys", "service uninstall --name nobodys --json",
    "audit list --limit 300", "audit verify",
)  # fmt: skip
#: Commands that change something, in this order, while no service runs.
ALONE = (
    *(f"{words} none" for words in ("runs abort", "dead drop", "dead retry", "sessions reset", "examples forget",
                                    "approvals revoke", "incidents close", "channels retry", "channels drop",
                                    "channels test", "notifiers test", "sensors restore", "senders allow",
                                    "senders deny", "senders forget", "senders pair", "mcp accept")),
    "runs feedback none good", "approvals approve none --yes", "approvals deny none --yes",
    "approvals edit none --yes --param a=1", "approvals replace none {call} --yes", "calls resolve none done --yes",
    "sessions fork hall --as other", "sessions fork hall --json",
    "sessions fork hall --as other", "sessions fork hall --at none", "sessions fork nobody",
    "sessions set hall title=Hall", "sessions forget hall --yes", "examples teach {words} none",
    "examples teach --what kind {words} none",
    "send hello", "chat", "top", "break add plan", "break remove none", "attach hall", "pause", "resume", "reload",
    "stop",
    "tokens create ci --scopes read", "tokens create bot --scopes read --json", "tokens create ci --scopes read",
    "tokens revoke ci", "tokens revoke bot --json", "tokens revoke none",
    "memory import ../more.jsonl", "memory import ../wrong.jsonl", "memory forget e1", "memory forget e2 --json",
    "memory forget none", "memory export out.jsonl", "audit list --limit 3",
    "memory backup copy.db", "memory backup copy2.db --json",
    "memory restore copy.db", "memory restore none.db", "memory verify --json",
    "memory move --to postgresql://spar@127.0.0.1:1/agent", "memory move --to other.db", "memory move --to mysql://x",
    "nodes drain none",
    "step sense", "step plan []", "step act {call} --json", "shell", "mcp serve --url http://127.0.0.1:1",
)  # fmt: skip
#: Commands that answer the same whether a service runs or not; `run` would begin one.
INDEPENDENT = {("init",), ("new",), ("completion", "install"), ("service", "install"), ("service", "status"),
               ("service", "uninstall"), ("run",), ("config", "schema"), ("observe", "dashboard"),
               ("observe", "openapi"), ("observe", "rules")}  # fmt: skip
#: Those among the commands that look, which are asked with a service alone: each takes longer than twenty others.
ASKED_ONCE = {"eval", *map(" ".join, INDEPENDENT)}
#: What some commands read from standard input.
STDIN = {"chat": "hello\n/help\n/unknown\n", "shell": "print(agent.core.name)\n"}


def leaves(command: click.Command = cli, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of each command that is no group."""
    if not isinstance(command, click.Group):
        yield words
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from leaves(inner, (*words, name))


def helps() -> Iterator[tuple[str, str]]:
    """Yield the help of each command of the top level, with that of all commands in it, by its file."""
    yield "help/spar", _help(cli, None, "spar")
    root = click.Context(cli, info_name="spar", **cli.context_settings)
    for name in cli.list_commands(root):
        command = cli.get_command(root, name)
        assert command is not None
        yield f"help/{name}", _help(command, root, name)


def _help(command: click.Command, parent: click.Context | None, name: str) -> str:
    context = click.Context(command, info_name=name, parent=parent, terminal_width=80, **command.context_settings)
    text = f"{command.get_help(context)}\n"
    if parent is not None and isinstance(command, click.Group):
        for inner in command.list_commands(context):
            leaf = command.get_command(context, inner)
            assert leaf is not None
            text += f"\n{_help(leaf, context, inner)}"
    return text


def running(world: World) -> Iterator[tuple[str, str]]:
    """Yield the answers of the commands that look, with a running service, by the file of each first word."""
    for name in RENAMED:
        yield "renamed", world.run(*name.split()).err.splitlines()[-1] + "\n"
    yield from _cases(world, "running", _twice(LISTINGS), world.folder)
    yield from _cases(world, "running", SUMMED_UP, world.folder, summed_up)


def changes(world: World) -> Iterator[tuple[str, str]]:
    """Yield the answers of the commands that change something, with a running service."""
    yield from _cases(world, "changes", CHANGES, world.folder)


def end(world: World) -> Iterator[tuple[str, str]]:
    """Yield the answer of the command that stops the service."""
    yield from _cases(world, "changes", ("stop",), world.folder)


def alone(world: World, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the answers of all commands without a service. Args: folder: has a copy of the store."""
    listings, summaries = ([words for words in each if words not in ASKED_ONCE] for each in (LISTINGS, SUMMED_UP))
    yield from _cases(world, "alone", _twice(listings), folder)
    yield from _cases(world, "alone", summaries, folder, summed_up)
    yield from _cases(world, "alone", ALONE, folder)


def _twice(commands: Iterable[str]) -> Iterator[str]:
    """Yield each command, and the same with `--json`."""
    for words in commands:
        yield words
        yield f"{words} --json"


def whole(answer: Answer) -> str:
    """Return an answer as it is recorded: JSON indented."""
    try:
        return json.dumps(json.loads(answer.out), indent=1, ensure_ascii=False)
    except ValueError:
        return answer.out.rstrip("\n")


def summed_up(answer: Answer) -> str:
    """Return how many lines an answer has, and a digest of it; for checks of the machine only their names."""
    if answer.out.startswith("      about"):
        return ", ".join(re.split(" {2,}", line)[1] for line in answer.out.splitlines()[1:])
    text = answer.out.replace(__version__, "")
    return f"{text.count(chr(10))} lines, digest {sha256(text.encode()).hexdigest()[:8]}"


def _cases(world: World, group: str, commands: Iterable[str], folder: Path,
           shown: Callable[[Answer], str] = whole) -> Iterator[tuple[str, str]]:  # fmt: skip
    """Yield the answers of commands in order, each under a line with its words and its exit code."""
    for words in commands:
        answer = world.run(*shlex.split(words), folder=folder, stdin=STDIN.get(words, ""))
        if group == "changes" and words != "stop":
            world.settle()
        text = StringIO()
        text.write(f"$ spar {words}  [{answer.code}]\n")
        if out := shown(answer):
            text.write(f"{out}\n")
        if answer.err:
            text.write("".join(f"! {line}\n" for line in answer.err.splitlines()))
        yield f"{group}/{words.split()[0]}", text.getvalue() + "\n"
