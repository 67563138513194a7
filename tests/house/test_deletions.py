"""Each built-in attachment can be deleted: without its code and its entry points the heart runs, and its tests pass.

A tree is made for each, of links to all but what is deleted, and one without all of them. In it a bare agent and the
agent of a configuration work; in the last one tests of the heart are run, too. The same for
commands that are features: without them the help, the completion and the other commands work. Without channels, budgets
or mail a service runs, answers a message, and each command says what it has or what is missing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: The code and the entry points that are deleted together.
ATTACHMENTS = {
    "channels": (("spar/channels",), ("channels", "notices", "senders")),
    "notices": (("spar/channels/notices.py",), ("notices",)),
    "budgets": (("spar/budgets",), ("budgets", "costs")),
    "costs": (("spar/budgets/costs.py",), ("costs",)),
    "forks": (("spar/forks",), ("forks",)),
    "interim": (("spar/interim",), ("interim",)),
    "learning": (("spar/learning",), ("learning",)),
    "nodes": (("spar/nodes",), ("nodes",)),
    "tracing": (("spar/tracing",), ("tracing",)),
    "breakpoints": (("spar/breakpoints",), ("breakpoints",)),
    "commands": (("spar/session_commands",), ("commands",)),
    "steps": (("spar/steps",), ("steps",)),
    "approvals of a program": (("spar/review",), ()),
}
#: The code that is deleted with commands, and the other groups that have an entry point of their names.
COMMANDS = {
    "chat": (("spar/chat",), ()),
    "eval": (("spar/evals",), ()),
    "mcp": (("spar/mcp", "acting/mcp"), ("spar.tools",)),
    "top": (("spar/top",), ()),
}
#: The code that is deleted with parts, and the groups that have an entry point of their names.
PARTS = {"mail": (("spar/mail",), ("spar.channels", "spar.notifiers"))}
COMMANDS["chat eval mcp top"] = (("spar/chat", "spar/evals", "spar/mcp", "acting/mcp", "spar/top"), ("spar.tools",))
ALL = "all of them"
ATTACHMENTS[ALL] = (
    ("spar/channels", "spar/budgets", "spar/forks", "spar/interim", "spar/learning", "spar/nodes",
     "spar/session_commands", "spar/steps", "spar/tracing", "spar/breakpoints"),
    ("budgets", "channels", "notices", "senders", "commands", "costs", "forks", "interim", "learning", "nodes", "steps",
     "tracing", "breakpoints"))  # fmt: skip
#: Tests that are run without all of them.
TESTS = {ALL: ("tests/session/test_session.py",),
         "chat eval mcp top": ("tests/cli/test_nouns.py", "-k", "the_answer_of_the_store")}  # fmt: skip
#: Attachments without which a service is run, too.
SERVICES = ("channels", "budgets", ALL)
WITHIN = 300.0
#: A bare agent and one of a configuration; the entry points that are left.
SCRIPT = """
import asyncio, importlib.metadata, importlib.util, sys
from spar import Agent, Perception
from spar.agent.agent import build_agent
from spar.config.load import load
from spar.ports.budgets import QUANTITIES, WINDOWS

async def plan(perceptions):
    return None

async def main():
    turns, over = 0, asyncio.Event()
    async def sense():
        nonlocal turns
        turns += 1
        over.set() if turns == 3 else None
        return [Perception("tick")]
    async with Agent(sense=sense, plan=plan, loop_interval=0):
        await over.wait()
    limits = {f"budgets.{window}.{quantity}": "off" for window in WINDOWS for quantity in QUANTITIES}
    agent = build_agent(load(None, environ={}, overrides={"memory.url": "sqlite:///memory.db", **limits}))
    async with agent:
        run = await agent.submit("hello")
        assert (await agent.wait(run.run_id)).status == "ok"
    for module in sys.argv[1].split():
        assert importlib.util.find_spec(module) is None, module
    print(sorted(agent.attachments.by_name))

asyncio.run(main())
"""
#: The help, the completion and each other command, without some commands.
TERMINAL = """
import importlib.util, sys
from click.testing import CliRunner
from spar.cli.main import cli

names, runner = sys.argv[2:], CliRunner()
context = cli.make_context("spar", [], resilient_parsing=True)
assert not {*names} & {*cli.list_commands(context), *(item.value for item in cli.shell_complete(context, ""))}
shown = runner.invoke(cli, ["--help"])
assert shown.exit_code == 0 and not [name for name in names if f"  {name} " in shown.output], shown.output
for name in names:
    shown = runner.invoke(cli, [name])
    assert shown.exit_code == 2 and f"{name!r}" in shown.output, shown.output
for name in cli.list_commands(context):
    shown = runner.invoke(cli, [name, "--help"])
    assert shown.exit_code == 0, (name, shown.output, shown.exception)
for module in sys.argv[1].split():
    assert importlib.util.find_spec(module) is None, module
"""
#: A service and the commands that ask it, without some features.
SERVICE = """
import importlib.util, json, os, signal, sys, time
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from spar.cli.main import cli, main
from spar.ports.budgets import QUANTITIES, WINDOWS

def spar(*words):
    with redirect_stdout(StringIO()) as shown, redirect_stderr(shown):
        try:
            main(["-c", str(config), *words])
        except SystemExit as end:
            return end.code or 0, shown.getvalue()

has_channels, has_budgets = (importlib.util.find_spec(f"spar.{name}") is not None for name in ("channels", "budgets"))
config = Path("service", "config.toml")
config.parent.mkdir()
limits = [f"[budgets.{window}]\\n" + "".join(f'{quantity} = "off"\\n' for quantity in QUANTITIES) for window in WINDOWS]
channels = "[[channels]]\\nuse = 'spar.testing:MemoryChannel'\\nname = 'line'\\n" * has_channels
config.write_text("[service]\\nport = 0\\nstate_dir = 'state'\\n[[sensors]]\\nuse = 'messages'\\n"
                  "[[rules]]\\nname = 'answer'\\nwhen = {kind = 'message'}\\nanswer = 'heard: {content}'\\n"
                  + channels + "".join(limits))
service = os.fork()
if not service:
    main(["-c", str(config), "run"])
try:
    while os.waitpid(service, os.WNOHANG) == (0, 0):
        code, shown = spar("status", "--json")
        if code == 0 and json.loads(shown)["agent"]["state"] == "running":
            break
        time.sleep(0.2)
    code, shown = spar("send", "hello")
    assert (code, "heard: hello" in shown) == (0, True), shown
    code, shown = spar("status", "--json")
    assert sum(json.loads(shown)["agent"]["stats"]["outcomes"].values()) >= 1, shown
    answers = {words: spar(*words.split()) for words in ("channels list", "notifiers list", "senders list", "cost")}
finally:
    os.kill(service, signal.SIGTERM)
ended = os.waitpid(service, 0)
assert ended == (service, 0), ended
missing = [(setting, name) for setting, name, is_there in
           (("budgets.day.calls=9", "budgets", has_budgets), ('channels=[{"use": "mail"}]', "senders", has_channels))
           if not is_there]
for setting, name in missing:
    code, shown = spar("--set", setting, "config", "check")
    assert code == 78 and f"needs the attachment {name!r}, which is not installed" in shown, shown
for words, (code, shown) in answers.items():
    is_there = words == "cost" or has_channels  # costs of former requests can be read without budgets
    assert (code == 0) is is_there and (is_there or "spar parts" in shown), (words, code, shown)
assert not has_channels or "line" in answers["channels list"][1]
for name in cli.list_commands(cli.make_context("spar", [], resilient_parsing=True)):
    code, shown = spar(name, "--help")
    assert code == 0, (name, shown)
for module in sys.argv[1].split():
    assert importlib.util.find_spec(module) is None, module
"""


PYTEST = "import pytest, sys; sys.exit(pytest.main(['--assert=plain', *sys.argv[1:]]))"
#: Runs each job (name, folder, code, arguments) in a fork of a process that has imported the libraries and, from a tree
#: without all that is ever deleted, what is left of ours. A fork finds the rest in its own folder.
FORKS = """
import gc, importlib, json, os, sys, traceback
import anyio._backends._asyncio, apscheduler.triggers.interval, apsw, blinker, click, docstring_parser, httpx
import jsonschema_rs, loguru, msgspec, prometheus_client, psutil, pydantic_settings, re2, rich.table, starlette.routing
import uvicorn, watchfiles

least = sys.argv[1]
sys.path.insert(0, least)
import acting.executor, acting.notifiers, acting.tools.files, acting.tools.http, acting.tools.notify, acting.tools.shell
import memory.care.opening, memory.sqlite.full_text, memory.store, perception.sense, perception.sensors.directory
import perception.sensors.host, perception.sensors.messages, perception.sensors.schedule, planning.rules.planner
import reflection.reflect, spar.agent.agent, spar.agent.submission, spar.cli.main, spar.cli.nouns, spar.config.load
import spar.journal.cycle_log, spar.journal.failed_work, spar.journal.restart
import spar.runs.outbox, spar.bus.run_log, spar.session.session_hooks, spar.testing
from acting.process.detect import offered
from acting.process.program import environment, find_program
from perception.stages.intent import IntentSettings, recognise

recognise(IntentSettings(), [spar.Perception("?")])
offered(find_program("bwrap", environment((), workspace="")))

def run(folder, code, arguments):
    sys.path[0] = folder
    for package in [module for module in sys.modules.values() if hasattr(module, "__path__")]:
        package.__path__ = [path.replace(least, folder) for path in package.__path__]
    importlib.invalidate_caches()
    sys.argv[1:] = arguments
    try:
        exec(code, vars(sys.modules["__main__"]))
    except SystemExit as end:
        return end.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0

def fork(number, folder, code, arguments):
    if (child := os.fork()) == 0:
        os.chdir(folder)
        output = os.open(f"{number}.out", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1), os.dup2(output, 2)
        code = run(folder, code, arguments)
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)
    return child

gc.collect(), gc.freeze()
children = [fork(number, *job) for number, (_, *job) in enumerate(json.load(sys.stdin))]
print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
"""


def tree_without(folder: Path, code: tuple[str, ...], entries: set[tuple[str, str]]) -> None:
    """Make a tree of links to everything but some code, and a distribution without some entry points."""
    for path in code:
        for parent in reversed(Path(path).parents[:-1]):
            (folder / parent).mkdir(parents=True, exist_ok=True)
    deleted = {Path(path) for path in code}
    for place in (Path(), *{parent for path in deleted for parent in path.parents[:-1]}):
        for entry in (ROOT / place).iterdir():
            path = place / entry.name
            if path not in deleted and not (folder / path).exists():
                (folder / path).symlink_to(entry)
    own = distribution("spar-agent")
    metadata = folder / "spar_agent-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: spar-agent\nVersion: {own.version}\n")
    points = [point for point in own.entry_points if (point.group, point.name) not in entries]
    lines = [f"[{point.group}]\n{point.name} = {point.value}\n" for point in points]
    (metadata / "entry_points.txt").write_text("".join(lines))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[int, Path]]]:
    """Run all, and return the exit codes and the outputs of each deletion."""
    jobs = []
    for name, (code, of_it) in {**ATTACHMENTS, **COMMANDS, **PARTS}.items():
        folder = tmp_path_factory.mktemp(name)
        modules = " ".join(path.removesuffix(".py").replace("/", ".") for path in code)
        if name in COMMANDS:
            names, groups, script = name.split(), ("spar.commands", *of_it), TERMINAL
        elif name in PARTS:
            names, groups, script = [name], of_it, SERVICE
        else:
            names, groups, script = [*of_it], ("spar.attachments",), SCRIPT
        tree_without(folder, code, {(group, entry) for group in groups for entry in names})
        jobs.append((name, str(folder), script, [modules, *names]))
        if name in SERVICES:
            jobs.append((name, str(folder), SERVICE, [modules]))
        if name in TESTS:
            jobs.append((name, str(folder), PYTEST, [f"--rootdir={folder}", *TESTS[name]]))
    least = tmp_path_factory.mktemp("least")
    every = {path for code, _ in (*ATTACHMENTS.values(), *COMMANDS.values(), *PARTS.values()) for path in code}
    tree_without(least, tuple(path for path in every if every.isdisjoint(map(str, Path(path).parents))), set())
    done = subprocess.run([sys.executable, "-c", FORKS, str(least)], input=json.dumps(jobs), text=True,
                          stdout=subprocess.PIPE, check=True, timeout=WITHIN)  # fmt: skip
    codes = json.loads(done.stdout)
    ends: dict[str, list[tuple[int, Path]]] = {}
    for number, ((name, folder, *_), code) in enumerate(zip(jobs, codes, strict=True)):
        ends.setdefault(name, []).append((code, Path(f"{folder}/{number}.out")))
    return ends


@pytest.mark.parametrize("name", [*ATTACHMENTS, *COMMANDS, *PARTS])
def test_an_attachment_a_command_or_a_part_can_be_deleted(runs: dict[str, list[tuple[int, Path]]], name: str) -> None:
    for code, output in runs[name]:
        assert code == 0, output.read_text()


def test_every_entry_point_of_an_attachment_and_of_a_command_is_deleted() -> None:
    names = {name for _, names in ATTACHMENTS.values() for name in names}
    points = distribution("spar-agent").entry_points
    assert sorted(names) == sorted(point.name for point in points.select(group="spar.attachments"))
    assert {*" ".join(COMMANDS).split()} == {point.name for point in points.select(group="spar.commands")}
