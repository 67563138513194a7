"""What the documents show is what happens: their Python runs, their TOML is accepted, their tables are the code's."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from perception import Pipeline
from planning import RulesPlanner
from spar.cli.main import COMMANDS
from spar.hooks import POINTS
from spar.lifecycle import LEGAL
from spar.settings import from_mapping, load
from spar.settings import leaves as leaves_of

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


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


def test_config_toml_says_the_defaults_aloud() -> None:
    said = tomllib.loads((ROOT / "config.toml").read_text())
    defaults = dict(leaves_of(from_mapping({}).model_dump()))
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
