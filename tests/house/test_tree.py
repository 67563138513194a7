"""The house by its files: how long, how many in a folder, which names repeat, who names the agent, how texts begin.

Read off the syntax tree; each finding is told with its file and line.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

import spar

ROOT = Path(spar.__file__).parents[1]
PACKAGES = ("spar", "perception", "planning", "acting", "reflection", "memory")
MOST_MODULES = 12
MOST_LINES = 500
#: Files of a folder that are no modules of their own: its tour, and what `python -m` runs.
UNCOUNTED = ("__init__.py", "__main__.py")
#: The files that may name the class `Agent`: its folder, and the public face that passes it on.
OWN = ("spar/agent/", "spar/__init__.py", "spar/testing/contracts.py")  # the last one plays an agent
BEGINNINGS = ("What", "Who", "Whoever", "Whatever")


@cache
def sources() -> Mapping[str, str]:
    """Return the text of each module of the six packages, by its path from the root."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}


def crowded(names: Iterable[str], most: int = MOST_MODULES) -> list[str]:
    """Return the folders with more modules than allowed, each with their number."""
    folders: defaultdict[str, int] = defaultdict(int)
    for name in names:
        folder, _, file = name.rpartition("/")
        folders[folder] += file not in UNCOUNTED
    return [f"{folder}: {number} modules" for folder, number in folders.items() if number > most]


def long(files: Mapping[str, str], most: int = MOST_LINES) -> list[str]:
    """Return the modules with more lines than allowed, each with their number."""
    lines = {name: source.count("\n") for name, source in files.items()}
    return [f"{name}: {number} lines" for name, number in lines.items() if number > most]


def untoured(files: Mapping[str, str]) -> list[str]:
    """Return the modules and folders that the docstring of their folder does not name."""
    names: defaultdict[str, set[str]] = defaultdict(set)
    for name in files:
        folder, _, file = name.rpartition("/")
        if file not in UNCOUNTED:
            names[folder].add(file.removesuffix(".py"))
        elif file == "__init__.py" and "/" in folder:
            names[folder.rpartition("/")[0]].add(folder.rpartition("/")[2])
    tours = {folder: ast.get_docstring(ast.parse(files.get(f"{folder}/__init__.py", ""))) or "" for folder in names}
    return sorted(
        f"{folder}/{name}"
        for folder, inside in names.items()
        if f"{folder}/__init__.py" in files
        for name in inside
        if not re.search(rf"\b{name}\b", tours[folder])
    )


def repeated(files: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the places of each public class whose name stands in several files of a package, by package and name."""
    places: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for name, source in files.items():
        for match in re.finditer(r"^class ([A-Za-z]\w*)", source, re.M):
            line = source.count("\n", 0, match.start()) + 1
            places[f"{name.partition('/')[0]}: {match[1]}"].setdefault(name, f"{name}:{line}")
    return {key: list(found.values()) for key, found in places.items() if len(found) > 1}


def beginning(source: str) -> Iterator[int]:
    """Yield the line of each docstring that begins with one of `BEGINNINGS`."""
    if not any(f'"""{word}' in source for word in BEGINNINGS):
        return  # most files: reading their syntax is what takes time
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None and text.partition(" ")[0].rstrip(",:.") in BEGINNINGS:
                yield node.body[0].lineno


def named(source: str, name: str) -> Iterator[int]:
    """Yield each line that names something: as a name, attribute or import, or in an annotation that is a text."""
    if name not in source:
        return
    for node in ast.walk(ast.parse(source)):
        if (isinstance(node, ast.Name) and node.id == name) or (isinstance(node, ast.Attribute) and node.attr == name):
            yield node.lineno
        elif isinstance(node, ast.ImportFrom | ast.Import):
            yield from (node.lineno for alias in node.names if name in (alias.name.rpartition(".")[2], alias.asname))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_type(node.value, name):
            yield node.lineno


def _is_type(text: str, name: str) -> bool:
    """Return whether a text is a type that names it: `"Agent"`, `"list[Agent] | None"`; no sentence is one."""
    if name not in text:
        return False
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError):
        return False
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(tree))


def test_no_folder_has_more_than_twelve_modules() -> None:
    assert crowded(sources()) == []


def test_the_tour_of_each_folder_names_all_that_is_in_it() -> None:
    assert untoured(sources()) == []


def test_what_a_tour_leaves_out_is_found() -> None:
    files = {"a/__init__.py": '"""A.\n\none  first\nin_it/  more\n"""', "a/one.py": "", "a/two.py": ""}
    files |= {"a/in_it/__init__.py": '"""Nothing."""', "a/in_it/three.py": "", "a/out/__init__.py": ""}

    assert untoured(files) == ["a/in_it/three", "a/out", "a/two"]


def test_no_module_has_more_than_500_lines() -> None:
    assert long(sources()) == [], "cut it where its second subject begins"


def test_no_public_class_has_the_name_of_another_one_in_its_package() -> None:
    found = repeated(sources())

    assert [f"{key} in {', '.join(places)}" for key, places in found.items()] == []


def test_nobody_outside_the_agents_folder_names_the_class_agent() -> None:
    found = [
        f"{name}:{line}"
        for name, source in sources().items()
        if not name.startswith(OWN)
        for line in named(source, "Agent")
    ]

    assert not found, "take spar.loop.core.Core, values, callbacks or a Protocol of a few methods instead"


def test_no_docstring_begins_with_a_question_word() -> None:
    wrong = [f"{name}:{line}" for name, source in sources().items() for line in beginning(source)]

    assert not wrong, "begin with a verb and its object (a function) or a noun (a class, a module)"


def test_a_folder_with_too_many_modules_is_found() -> None:
    names = ["a/__init__.py", "a/__main__.py", "a/one.py", "a/two.py", "a/b/three.py"]

    assert crowded(names, 2) == []
    assert crowded([*names, "a/four.py"], 2) == ["a: 3 modules"]


def test_a_module_with_too_many_lines_is_found() -> None:
    files = {"a/one.py": "x\n" * 3, "a/two.py": "x\n" * 4}

    assert long(files, 3) == ["a/two.py: 4 lines"]


def test_a_class_that_stands_twice_in_a_package_is_found() -> None:
    files = {
        "a/one.py": "class Row: ...\nclass _Own: ...\n",
        "a/b/two.py": "\n\nclass Row: ...\nclass _Own: ...\n",
        "c/three.py": "class Row: ...\n",
    }

    assert repeated(files) == {"a: Row": ["a/one.py:1", "a/b/two.py:3"]}


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('"""What is kept."""\n', [1]),
        ('class A:\n    """Who asks, and why."""\n', [2]),
        ('def f():\n    """Whatever: that."""\n\n    async def g():\n        """Whoever calls."""\n', [2, 5]),
        ('"""Return what is kept."""\n\n\ndef f():\n    """Whole values."""\n    return "What else"\n', []),
    ],
)
def test_a_docstring_that_begins_with_a_question_word_is_found(source: str, lines: list[int]) -> None:
    assert sorted(beginning(source)) == lines


@pytest.mark.parametrize(
    "source",
    [
        "from spar.agent.agent import Agent\n",
        "from spar import Agent as It\n",
        "if TYPE_CHECKING:\n    from spar.agent.agent import Agent\n",
        "def f() -> None:\n    from spar.agent.agent import Agent\n",
        "def look(agent: Agent) -> None: ...\n",
        "Read = Callable[['Agent'], Rows]\n",
        "agents: 'list[Agent] | None' = None\n",
        "made = spar.Agent()\n",
    ],
)
def test_a_place_that_names_the_agent_is_found(source: str) -> None:
    assert next(named(f"\n{source}", "Agent")) >= 2


def test_a_text_that_only_speaks_of_the_agent_does_not_name_it() -> None:
    source = '"""An Agent is made elsewhere."""\nraise E("make the agent by Agent.from_config")\nclass Agents: ...\n'

    assert list(named(source, "Agent")) == []
