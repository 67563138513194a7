"""Each built-in attachment can be deleted: without its code and its entry points the heart runs, and its tests pass.

A tree is made for each, of links to all but what is deleted, and one without all of them. In it a bare agent and the
agent of a configuration work; in the last one tests of the heart are run, too. All trees at once. The same for commands
that are features: without them the help, the completion and the other commands work.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
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
    "forks": (("spar/session/control/forks.py",), ("forks",)),
    "nodes": (("spar/session/control/nodes.py",), ("nodes",)),
    "tracing": (("spar/tracing",), ("tracing",)),
    "breakpoints": (("spar/breakpoints",), ("breakpoints",)),
    "single steps": (("spar/agent/steps.py",), ()),
    "approvals of a program": (("spar/agent/approvals.py", "spar/review"), ()),
}
#: The code that is deleted with commands, and the other groups that have an entry point of their names.
COMMANDS = {
    "chat": (("spar/chat",), ()),
    "eval": (("spar/evals",), ()),
    "mcp": (("spar/mcp", "acting/mcp"), ("spar.tools",)),
    "top": (("spar/top",), ()),
}
COMMANDS["chat eval mcp top"] = (("spar/chat", "spar/evals", "spar/mcp", "acting/mcp", "spar/top"), ("spar.tools",))
ALL = "all of them"
ATTACHMENTS[ALL] = (
    ("spar/channels", "spar/budgets", "spar/session/control/forks.py", "spar/session/control/nodes.py",
     "spar/tracing", "spar/breakpoints"),
    ("budgets", "channels", "notices", "senders", "costs", "forks", "nodes", "tracing", "breakpoints"))  # fmt: skip
#: Tests that are run without all of them.
TESTS = {ALL: "tests/session/test_session.py", "chat eval mcp top": "tests/cli/test_nouns.py"}
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
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[subprocess.Popen[str]]]]:
    processes = {}
    for name, (code, of_it) in {**ATTACHMENTS, **COMMANDS}.items():
        folder = tmp_path_factory.mktemp(name)
        modules = " ".join(path.removesuffix(".py").replace("/", ".") for path in code)
        if name in COMMANDS:
            names, groups, script = name.split(), ("spar.commands", *of_it), TERMINAL
        else:
            names, groups, script = [*of_it], ("spar.attachments",), SCRIPT
        tree_without(folder, code, {(group, entry) for group in groups for entry in names})
        commands = [["-c", script, modules, *names]]
        if name in TESTS:
            commands.append(["-m", "pytest", f"--rootdir={folder}", TESTS[name]])
        processes[name] = [
            subprocess.Popen([sys.executable, *command], cwd=folder, text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, env={**os.environ, "PYTHONPATH": str(folder)})
            for command in commands
        ]  # fmt: skip
    yield processes
    for process in (process for processes in processes.values() for process in processes):
        process.kill()
        process.communicate()


@pytest.mark.parametrize("name", [*ATTACHMENTS, *COMMANDS])
def test_an_attachment_or_a_command_can_be_deleted(runs: dict[str, list[subprocess.Popen[str]]], name: str) -> None:
    for process in runs[name]:
        output, _ = process.communicate(timeout=WITHIN)
        assert process.returncode == 0, output


def test_every_entry_point_of_an_attachment_and_of_a_command_is_deleted() -> None:
    names = {name for _, names in ATTACHMENTS.values() for name in names}
    points = distribution("spar-agent").entry_points
    assert sorted(names) == sorted(point.name for point in points.select(group="spar.attachments"))
    assert {*" ".join(COMMANDS).split()} == {point.name for point in points.select(group="spar.commands")}
