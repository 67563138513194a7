"""What the documents show is what happens: their Python runs, their TOML is accepted, their tables are the code's."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest

from acting import ToolContext
from perception import Pipeline
from planning import RulesPlanner
from spar.agent.lifecycle import LEGAL
from spar.cli.main import COMMANDS
from spar.config.load import from_mapping, load
from spar.config.load import leaves as leaves_of
from spar.config.registry import Registry
from spar.data.reducers import METHODS
from spar.events import CallEvent, ContractViolation, RepetitionNoticed, WriteConflict
from spar.hooks import POINTS
from spar.tool_terms import ToolTerms
from spar.types import CallStatus

ROOT = Path(__file__).parents[2]
ABOUT_CALLS = (WriteConflict, ContractViolation, RepetitionNoticed)
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", document.read_text(), re.M | re.S)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_python_of_a_document_runs_from_top_to_bottom(document: Path, tmp_path: Path) -> None:
    program = tmp_path / "example.py"
    program.write_text("\n".join(blocks(document, "python")))

    done = subprocess.run(
        [sys.executable, "-W", "error", program], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs_and_prints_what_came_of_it(example: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", example], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert f"`{example.name}`" in (ROOT / "examples" / "README.md").read_text()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_toml_of_a_document_is_accepted(document: Path) -> None:
    for text in blocks(document, "toml"):
        table = tomllib.loads(text)
        from_mapping(table)
        RulesPlanner(table.get("rules", []))
        Pipeline(table.get("perception"))


def test_every_command_a_document_shows_is_one() -> None:
    shown = {
        match
        for document in DOCUMENTS
        for match in re.findall(r"^\$ spar (?:--?\w+ \S+ )*(\w+)", document.read_text(), re.M)
    }

    assert shown
    assert shown <= set(COMMANDS)


def test_every_link_between_documents_leads_somewhere() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([\w./-]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_the_files_that_the_readme_names_are_there() -> None:
    named = re.findall(
        r"`((?:spar|perception|planning|acting|reflection|memory)/[\w/]+\.py)`", (ROOT / "README.md").read_text()
    )

    assert named
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_the_table_of_states_is_the_agents_own() -> None:
    rows = re.findall(r"^\| (\w+) \| ([\w ]+) \|$", (ROOT / "docs" / "agent.md").read_text(), re.M)

    assert {state: tuple(legal.split()) for state, legal in rows if state in LEGAL} == LEGAL


def test_the_table_of_hooks_names_every_point() -> None:
    text = (ROOT / "docs" / "events-and-hooks.md").read_text()

    assert [point for point in POINTS if f"`{point}`" not in text] == []


@pytest.mark.parametrize(
    ("document", "names"),
    [
        ("tools.md", ToolTerms.__struct_fields__),
        ("tools.md", ToolContext.__struct_fields__),
        ("tools.md", get_args(CallStatus)),
        ("tools.md", tuple(METHODS)),
        ("events-and-hooks.md", tuple(each.__name__ for each in [*CallEvent.__subclasses__(), *ABOUT_CALLS])),
    ],
    ids=["terms", "what a tool is told", "statuses", "output methods", "events of calls"],
)
def test_a_document_names_all_that_there_is(document: str, names: tuple[str, ...]) -> None:
    text = (ROOT / "docs" / document).read_text()
    named = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", text))))

    assert [name for name in names if name not in named] == []


def test_the_table_of_terms_says_their_defaults() -> None:
    text = (ROOT / "docs" / "tools.md").read_text()
    said = dict(re.findall(r"^\| `(\w+)` \| `?([^`|]+?)`? \|", text.partition("## References")[0], re.M))

    for name, default in zip(ToolTerms.__struct_fields__, ToolTerms.__struct_defaults__, strict=True):
        if name != "name":
            assert ast.literal_eval(said[name]) == default, name


def test_the_options_of_the_tools_in_the_box_are_theirs() -> None:
    text = (ROOT / "docs" / "tools.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `([\w ]+)` \| [^|]+ \| [^|]+ \|$", text, re.M)
    said = {name: options.split() for name, options in rows}
    built_in = Registry(allow_plugins=False)

    assert {"note", "files", "shell", "http", "notify"} <= said.keys()
    for name in ("note", "files", "shell", "http", "notify"):
        own = inspect.signature(built_in.resolve("spar.tools", name)).parameters.keys() - {"home"}
        assert set(said[name]) == own, name


def test_config_toml_says_the_defaults_aloud() -> None:
    said = tomllib.loads((ROOT / "config.toml").read_text())
    leaves = dict(leaves_of(from_mapping({}).model_dump()))
    defaults = {path: list(value) if isinstance(value, tuple) else value for path, value in leaves.items()}
    lists = ("sensors", "rules", "tools", "memory", "perception")

    differing: dict[Any, Any] = {
        path: (value, defaults.get(path))
        for path, value in leaves_of(said)
        if path[0] not in lists and defaults.get(path) != value
    }

    assert differing == {}


def test_config_toml_is_what_a_fresh_clone_runs_on() -> None:
    loaded = load(ROOT / "config.toml", environ={})

    assert {sensor.use for sensor in loaded.settings.sensors} == {"directory", "host", "messages", "schedule"}
    assert {tool.use for tool in loaded.settings.tools} == {"note", "files", "shell", "http", "notify"}


AS_PEOPLE_WRITE = """
from collections.abc import AsyncIterator, Sequence

from perception.sensors.messages import MessagesSensor
from spar import Action, ActionResult, Agent, Call, CallResult, Context, Perception, Reflection, SensorContext
from spar.protocols import SensorSpec


async def plan(perceptions: Sequence[Perception], context: Context) -> Action | None:
    return None


def lists(perceptions: Sequence[Perception]) -> list[Call]:
    return []


async def streams(perceptions: Sequence[Perception]) -> AsyncIterator[Call]:
    yield Call("note")


class Actor:
    async def act(self, action: Action) -> ActionResult:
        return ActionResult(action)


async def sense() -> list[Perception]:
    return []


class PlainSensor:
    every = 10

    def open(self, context: SensorContext) -> None: ...

    def poll(self) -> list[Perception]:
        return []

    def close(self) -> None: ...


class AsyncSensor:
    async def poll(self, context: Context) -> Perception | None:
        return None


class Pushes:
    async def open(self, ctx: SensorContext) -> None:
        ctx.push(Perception("x"))


specs = [SensorSpec(type(each).__name__, each) for each in (PlainSensor(), AsyncSensor(), Pushes(), MessagesSensor())]
agents = [Agent(sense=sense, plan=plan, act=Actor()), Agent(plan=lists), Agent(plan=streams)]
call = Call("note", {"text": "x"}, after=["a"])
action = Action(calls=[call], perceptions=[Perception("x", evidence=[Perception("y")])])
result = ActionResult(action, results=[CallResult(call, "ok")], messages=[], errors=[])
reflection = Reflection(result, successes=[call], failures=[], abilities=[], experiences=[])
"""


#: Where tests/servers/install.sh puts pyright.
PYRIGHT = ROOT / ".cache" / "servers" / "node_modules" / "pyright" / "index.js"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of all that people are shown: a file for each document, for each example, and `AS_PEOPLE_WRITE`."""
    folder = tmp_path_factory.mktemp("programs")
    (folder / "as_people_write.py").write_text(AS_PEOPLE_WRITE)
    for example in EXAMPLES:
        (folder / f"example_{example.name}").write_text(example.read_text())
    for document in DOCUMENTS:
        name = document.stem.lower().replace("-", "_")
        (folder / f"in_{name}.py").write_text("\n".join(blocks(document, "python")))
    return folder


def test_the_programs_that_people_are_shown_pass_mypy(programs: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *sorted(map(str, programs.glob("*.py")))],
        capture_output=True, text=True, timeout=300, cwd=ROOT,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(not PYRIGHT.exists(), reason="no pyright here: run tests/servers/install.sh")
def test_the_programs_that_people_are_shown_pass_pyright(programs: Path) -> None:
    terms = {"include": ["."], "typeCheckingMode": "strict", "pythonVersion": "3.11", "extraPaths": [str(ROOT)]}
    (programs / "pyrightconfig.json").write_text(json.dumps(terms))

    done = subprocess.run(
        ["node", str(PYRIGHT), "--project", str(programs), "--pythonpath", sys.executable],
        capture_output=True, text=True, timeout=300, cwd=programs,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
