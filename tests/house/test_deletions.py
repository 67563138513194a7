"""Each built-in attachment can be deleted: without its code and its entry points the heart runs, and its tests pass.

A tree is made for each, of links to all but what is deleted, and one without all of them. In it a bare agent and the
agent of a configuration work; in the last one tests of the heart are run, too. All trees at once.
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
ALL = "all of them"
ATTACHMENTS[ALL] = (
    ("spar/channels", "spar/budgets", "spar/session/control/forks.py", "spar/session/control/nodes.py",
     "spar/tracing", "spar/breakpoints"),
    ("budgets", "channels", "notices", "senders", "costs", "forks", "nodes", "tracing", "breakpoints"))  # fmt: skip
TESTS = ("tests/session/test_session.py",)
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


def tree_without(folder: Path, code: tuple[str, ...], names: tuple[str, ...]) -> None:
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
    points = [point for point in own.entry_points if not (point.group == "spar.attachments" and point.name in names)]
    lines = [f"[{point.group}]\n{point.name} = {point.value}\n" for point in points]
    (metadata / "entry_points.txt").write_text("".join(lines))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[subprocess.Popen[str]]]]:
    processes = {}
    for name, (code, names) in ATTACHMENTS.items():
        folder = tmp_path_factory.mktemp(name)
        tree_without(folder, code, names)
        modules = " ".join(path.removesuffix(".py").replace("/", ".") for path in code)
        commands = [["-c", SCRIPT, modules]]
        if name == ALL:
            commands.append(["-m", "pytest", f"--rootdir={folder}", *TESTS])
        processes[name] = [
            subprocess.Popen([sys.executable, *command], cwd=folder, text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, env={**os.environ, "PYTHONPATH": str(folder)})
            for command in commands
        ]  # fmt: skip
    yield processes
    for process in (process for processes in processes.values() for process in processes):
        process.kill()
        process.communicate()


@pytest.mark.parametrize("name", ATTACHMENTS)
def test_an_attachment_can_be_deleted(runs: dict[str, list[subprocess.Popen[str]]], name: str) -> None:
    for process in runs[name]:
        output, _ = process.communicate(timeout=WITHIN)
        assert process.returncode == 0, output


def test_every_entry_point_of_an_attachment_is_deleted() -> None:
    names = {name for _, names in ATTACHMENTS.values() for name in names}
    points = distribution("spar-agent").entry_points.select(group="spar.attachments")
    assert sorted(names) == sorted(point.name for point in points)
