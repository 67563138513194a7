"""The examples that are folders, each copied to a fresh one and used as its first lines say."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.process.conftest import CONFIG, Service, Spar, until
from tests.process.conversation import PATIENCE, Talk
from tests.process.template import Forked
from tests.process.typed import Terminal, commands_of
from tests.servers.llm import served
from tests.servers.llm_replies import Reply, ToolCall, says
from tests.servers.llm_requests import Asked

pytestmark = pytest.mark.process
EXAMPLES = CONFIG.parent / "examples"
FRESHNESS = """
[[sensors]]
use = "freshness"
options = { path = "export.csv", limit = "1h", every = 0.2 }

[[rules]]
name = "note what is old"
when = { kind = "file.stale" }
[[rules.calls]]
tool = "note"
params = { text = "{content}" }

[[tools]]
use = "note"
"""


def copied(spar: Spar, name: str) -> None:
    """Put the files of an example where the service runs."""
    shutil.copytree(EXAMPLES / name, spar.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))


def questions(spar: Spar) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = spar("approvals", "list", "--json").json
    return found


def process_of(spar: Spar) -> int:
    return int((spar.folder / "worker.pid").read_text())


@contextmanager
def worker(spar: Spar) -> Iterator[subprocess.Popen[bytes]]:
    """Run the stand-in; whoever of its kind runs at the end is ended."""
    begun = subprocess.Popen([sys.executable, spar.folder / "worker.py"])
    try:
        until(lambda: process_of(spar) == begun.pid, "the worker")
        yield begun
    finally:
        for number in {begun.pid, process_of(spar)}:
            try:
                os.kill(number, signal.SIGKILL)
            except ProcessLookupError:
                pass
        begun.wait(10.0)


def test_a_process_that_dies_is_started_again_once_somebody_says_so(spar: Spar, start: Callable[..., Service]) -> None:
    copied(spar, "repair")
    with worker(spar) as first:
        start().ready()
        first.kill()
        first.wait(10.0)

        (question,) = until(lambda: questions(spar), "the question", PATIENCE)
        assert question["call"]["tool"] == "restart"
        assert process_of(spar) == first.pid  # nothing happens before the answer
        assert spar("approvals", "approve", question["id"], "--yes").code == 0

        until(lambda: process_of(spar) != first.pid, "another worker", PATIENCE)
        os.kill(process_of(spar), 0)
        until(lambda: "worker is up again" in spar("memory", "search", "worker").out, "the note", PATIENCE)


def shopkeeper(asked: Asked) -> Reply:
    results = [message["content"] for message in asked.messages if message["role"] == "tool"]
    if "ordered 2 of lamp" in results:
        return says("I ordered two lamps.")
    if "1" in results:
        return says("", ToolCall("order", {"article": "lamp", "number": 2}))
    return says("", ToolCall("stock", {"article": "lamp"}))


def test_an_assistant_looks_by_itself_and_asks_before_it_pays(spar: Spar, start: Callable[..., Service]) -> None:
    pytest.importorskip("pydantic_ai", reason="the library of models (spar-agent[llm]) is not installed")
    copied(spar, "assistant")
    with served(shopkeeper, key="a word") as model:
        spar.environ["ASSISTANT_KEY"] = "a word"
        spar.edit("http://127.0.0.1:8080/v1", model.url)
        talk = Talk(spar, start().ready())
        run = talk.submit("shop", "order two lamps")

        (question,) = until(lambda: questions(spar), "the question", PATIENCE)
        assert (question["call"]["tool"], (spar.folder / "orders.jsonl").exists()) == ("order", False)
        assert spar("approvals", "approve", question["id"], "--yes").code == 0

        assert talk.ended(run)["output"] == "I ordered two lamps."
        assert json.loads((spar.folder / "orders.jsonl").read_text()) == {"article": "lamp", "number": 2}


def test_a_trouble_is_handled_better_the_third_time_and_it_says_why(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "learning", tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    blocks = re.findall(r"^```console\n(.*?)^```", (EXAMPLES / "learning" / "README.md").read_text(), re.M | re.S)
    typed = [each for block in blocks for each in commands_of(block)]
    with closing(Terminal(tmp_path)) as terminal:
        for command, shown in typed:
            if command.endswith(" run"):
                terminal.start(command)
                continue
            if "CYCLE" in command:
                (newest,) = json.loads(terminal.says("spar --json cycles list --limit 1"))
                command = command.replace("CYCLE", newest["cycle_id"][:12])
            terminal.shows(command, shown)
    assert [command for command, _ in typed if command.endswith(" run")] == 2 * ["spar run"] + [
        "spar --set memory.learning=off run"
    ]


def test_a_sensor_of_a_package_is_found_by_its_name_and_keeps_its_contract(
    spar: Spar, start: Callable[..., Service], tmp_path_factory: pytest.TempPathFactory
) -> None:
    package = tmp_path_factory.mktemp("package")
    shutil.copytree(EXAMPLES / "sensor_package", package, dirs_exist_ok=True)
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    # What an installer writes beside the modules.
    about = package / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = project["entry-points"]
    lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in each.items()) for group, each in points.items()]
    (about / "entry_points.txt").write_text("\n".join(lines))
    spar.environ["PYTHONPATH"] = f"{package}{os.pathsep}{spar.environ['PYTHONPATH']}"

    own = [sys.executable, "-c", "import sys, pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', 'tests']))"]
    with Forked(own, cwd=package, env=spar.environ, stdout=subprocess.PIPE) as process:
        said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said
    (found,) = [each for each in spar("config", "parts", "--json").json if each["distribution"] == project["name"]]
    assert (found["name"], found["error"]) == ("freshness", None)
    spar.write(FRESHNESS)
    start().ready()
    words = "export.csv has not been written in time"
    until(lambda: words in spar("memory", "search", "export").out, "the note", PATIENCE)
