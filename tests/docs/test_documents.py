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

import click
import pytest

from acting import ToolContext
from perception import Pipeline
from planning import RulesPlanner
from spar.agent.lifecycle import LEGAL
from spar.cli.main import cli
from spar.config.load import from_mapping, load
from spar.config.load import leaves as leaves_of
from spar.config.tables.section import as_table
from spar.data.reducers import METHODS
from spar.events import CallEvent, ContractViolation, RepetitionNoticed, WriteConflict
from spar.parts.registry import Registry
from spar.protocols.tools import ToolTerms
from spar.types import CallStatus
from tests.docs.programs import DOCUMENTS, EXAMPLES, ROOT, WITH_PROGRAMS, blocks, name_of, write_programs
from tests.process.template import Forked, clean_environ

ABOUT_CALLS = (WriteConflict, ContractViolation, RepetitionNoticed)


def run_program(program: Path, folder: Path) -> str:
    """Run a program in a folder, where each warning is an error, and return what it prints."""
    code = "import runpy, sys, warnings; warnings.simplefilter('error'); runpy.run_path(sys.argv[1], None, '__main__')"
    with Forked([sys.executable, "-c", code, str(program)], cwd=folder, env=clean_environ(), stdout=subprocess.PIPE,
                stderr=subprocess.PIPE) as process:  # fmt: skip
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err.decode()
    return out.decode()


@pytest.mark.parametrize("document", WITH_PROGRAMS, ids=name_of)
def test_the_python_of_a_document_runs_from_top_to_bottom(document: Path, tmp_path: Path) -> None:
    (program := tmp_path / "example.py").write_text("\n".join(blocks(document, "python")))

    run_program(program, tmp_path)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs_and_prints_what_came_of_it(example: Path, tmp_path: Path) -> None:
    assert run_program(example, tmp_path).strip()
    assert f"`{example.name}`" in (ROOT / "examples" / "README.md").read_text()


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
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
        for match in re.findall(r"(?:^\$ |`)spar (?:-c \S+ |--json )*(\w[\w-]*)(?: (\w+))?", document.read_text(), re.M)
    }
    root = click.Context(cli, info_name="spar", **cli.context_settings)

    assert shown
    for name, verb in shown:
        command = cli.get_command(root, name)
        assert command is not None, (name, verb)
        if verb and isinstance(command, click.Group):
            assert command.get_command(root, verb) is not None, (name, verb)


def anchors(document: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", document.read_text(), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def links(document: Path) -> list[tuple[Path, str]]:
    """Return the file and the anchor of each link to a page of this repository."""
    found = re.findall(r"\]\(([\w./-]*)(?:#([\w-]+))?\)", document.read_text())
    return [((document.parent / target).resolve() if target else document, anchor) for target, anchor in found]


@pytest.mark.parametrize("document", [*DOCUMENTS, ROOT / "CHANGELOG.md"], ids=name_of)
def test_every_link_leads_to_a_page_and_to_a_heading_of_it(document: Path) -> None:
    wrong = [f"{target}#{anchor}" for target, anchor in links(document)
             if not target.exists() or (anchor and anchor not in anchors(target))]  # fmt: skip

    assert wrong == []


def test_the_map_of_the_documents_names_every_page() -> None:
    named = {target for target, _ in links(ROOT / "docs" / "README.md")}

    assert sorted(name_of(page) for page in (ROOT / "docs").rglob("*/*.md") if page not in named) == []


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 95


def test_the_files_that_contributors_are_sent_to_are_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    folders = "spar|perception|planning|acting|reflection|memory|tests|benchmarks|docs|examples"
    named = re.findall(rf"`((?:{folders})/[\w./-]*)`", text)

    assert len(named) > 40
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_names_that_contributors_are_sent_to_stand_in_their_files() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    sent = re.findall(r"((?:`\w+`(?:, )?)+) (?:in|of) `([\w/]+\.py)`", text)
    named = [(name, file) for names, file in sent for name in re.findall(r"\w+", names)]

    assert len(named) > 12
    assert [(name, file) for name, file in named if not re.search(rf"\b{name}\b", (ROOT / file).read_text())] == []


def test_the_readme_names_the_versions_of_python_that_are_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))

    assert f"Python {', '.join(versions[:-1])} or {versions[-1]}" in (ROOT / "README.md").read_text()


#: Sentences that begin so leave open what they are about; these words are this program's own, or mean something else.
UNCLEAR = re.compile(r"(?:^|[.!?:] |\| |- )\**(?:What|Who|Whoever|Whatever)\b(?![^.|\n]*\?)", re.M)
PRIVATE = re.compile(r"\b(?:lanes?|strands?|councils?|keepers?|desks?|tape|the box)\b", re.I)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_a_document_is_written_in_plain_words(document: Path) -> None:
    text = re.sub(r"^```.*?^```|`[^`\n]+`", "", document.read_text(), flags=re.M | re.S)

    assert [match[0] for match in (*UNCLEAR.finditer(text), *PRIVATE.finditer(text))] == []


def test_the_table_of_states_is_the_agents_own() -> None:
    rows = re.findall(r"^\| (\w+) \| ([\w ]+) \|$", (ROOT / "docs" / "reference" / "agent.md").read_text(), re.M)

    assert {state: tuple(legal.split()) for state, legal in rows if state in LEGAL} == LEGAL


@pytest.mark.parametrize(
    ("document", "names"),
    [
        ("how-to/tools.md", ToolTerms.__struct_fields__),
        ("how-to/tools.md", ("is_cancelled", *(name for name in ToolContext.__struct_fields__ if name[0] != "_"))),
        ("reference/plans.md", get_args(CallStatus)),
        ("reference/plans.md", tuple(METHODS)),
        ("how-to/events-and-hooks.md", tuple(each.__name__ for each in [*CallEvent.__subclasses__(), *ABOUT_CALLS])),
    ],
    ids=["terms", "what a tool is told", "statuses", "output methods", "events of calls"],
)
def test_a_document_names_all_that_there_is(document: str, names: tuple[str, ...]) -> None:
    text = (ROOT / "docs" / document).read_text()
    named = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", text))))

    assert [name for name in names if name not in named] == []


def test_the_table_of_terms_says_their_defaults() -> None:
    text = (ROOT / "docs" / "how-to" / "tools.md").read_text()
    said = dict(re.findall(r"^\| `(\w+)` \| `?([^`|]+?)`? \|", text.partition("## Errors")[0], re.M))

    for name, default in zip(ToolTerms.__struct_fields__, ToolTerms.__struct_defaults__, strict=True):
        if name != "name":
            assert ast.literal_eval(said[name]) == default, name


def test_the_options_of_the_tools_in_the_box_are_theirs() -> None:
    text = (ROOT / "docs" / "how-to" / "tools.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `([\w ]+)` \| [^|]+ \| [^|]+ \|$", text, re.M)
    said = {name: options.split() for name, options in rows}
    built_in = Registry(allow_plugins=False)

    assert {"note", "files", "shell", "http", "notify"} <= said.keys()
    for name in ("note", "files", "shell", "http", "notify"):
        own = inspect.signature(built_in.resolve("spar.tools", name)).parameters.keys() - {"home"}
        assert set(said[name]) == own, name


def test_config_toml_says_the_defaults_aloud() -> None:
    said = tomllib.loads((ROOT / "config.toml").read_text())
    leaves = dict(leaves_of(as_table(from_mapping({}))))
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


#: Where tests/servers/install.sh puts pyright.
PYRIGHT = ROOT / ".cache" / "servers" / "node_modules" / "pyright" / "index.js"


@pytest.mark.skipif(not PYRIGHT.exists(), reason="no pyright here: run tests/servers/install.sh")
def test_the_programs_that_people_are_shown_pass_pyright(tmp_path: Path) -> None:
    write_programs(tmp_path)
    terms = {"include": ["."], "typeCheckingMode": "strict", "pythonVersion": "3.11", "extraPaths": [str(ROOT)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(terms))

    done = subprocess.run(
        ["node", str(PYRIGHT), "--project", str(tmp_path), "--pythonpath", sys.executable],
        capture_output=True, text=True, timeout=300, cwd=tmp_path,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr


def test_all_pages_together_are_short_enough_to_be_read() -> None:
    """A page says one thing, and each thing stands once. What has a letter or a digit is a word."""
    words = {name_of(page): sum(any(map(str.isalnum, word)) for word in page.read_text().split()) for page in DOCUMENTS}

    longest = sorted(words, key=lambda name: -words[name])[:10]
    assert sum(words.values()) <= 50_000, {name: words[name] for name in longest}
