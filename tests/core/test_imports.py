"""The house by its imports: nobody but the agent's own files names the agent, and no two modules know one another.

A type is a dependency: what is imported for type checkers only, or inside a function, counts as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

import spar

CORE = Path(spar.__file__).parent
ROOT = CORE.parent
PACKAGES = ("spar", "perception", "planning", "acting", "reflection", "memory")
#: The agent's own files: the class itself, and the public face that passes it on.
OWN = ("spar/agent/agent.py", "spar/__init__.py")


def named(source: str, name: str) -> Iterator[int]:
    """Each line that names something: as a name, an attribute, an import, or in an annotation that is a text."""
    for node in ast.walk(ast.parse(source)):
        if (isinstance(node, ast.Name) and node.id == name) or (isinstance(node, ast.Attribute) and node.attr == name):
            yield node.lineno
        elif isinstance(node, ast.ImportFrom | ast.Import):
            yield from (node.lineno for alias in node.names if name in (alias.name.rpartition(".")[2], alias.asname))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_type(node.value, name):
            yield node.lineno


def _is_type(text: str, name: str) -> bool:
    """Whether a text is a type that names it: `"Agent"`, `"list[Agent] | None"`; no sentence is one."""
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError):
        return False
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(tree))


def files() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text()


def test_nobody_outside_the_agents_own_files_names_the_class_agent() -> None:
    found = [f"{name}:{line}" for name, source in files() if name not in OWN for line in named(source, "Agent")]

    assert not found, "take spar.loop.core.Core, values, callbacks or a Protocol of a few methods instead"


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


def test_what_only_speaks_of_the_agent_does_not_name_it() -> None:
    source = '"""An Agent is made elsewhere."""\nraise E("make the agent by Agent.from_config")\nclass Agents: ...\n'

    assert list(named(source, "Agent")) == []


def imports(sources: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """For each module those of the same package that it imports, each with the line; modules by their dotted names."""
    graph: dict[str, dict[str, int]] = {}
    for module, source in sources.items():
        known = graph[module] = {}
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.module is not None, f"{module}:{node.lineno}: import it by its full name"
                assert not node.level, f"{module}:{node.lineno}: import it by its full name"
                inner = [f"{node.module}.{alias.name}" for alias in node.names]
                targets = [each if each in sources else node.module for each in inner]
            else:
                continue
            for target in targets:
                if target in sources and target != module:
                    known.setdefault(target, node.lineno)
    return graph


def circle(graph: Mapping[str, Mapping[str, int]]) -> list[str]:
    """One circle of imports as `module:line -> module`, empty when there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        known: list[str] = error.args[1][::-1]
        return [f"{one}:{graph[one][other]} -> {other}" for one, other in pairwise(known)]
    return []


def test_no_modules_of_the_core_know_one_another_not_even_in_types() -> None:
    sources = {}
    for path in sorted(CORE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        sources[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text()

    assert circle(imports(sources)) == []


def test_a_circle_is_found_with_its_lines() -> None:
    sources = {
        "a": "import z\nfrom b import B\n",
        "b": "if TYPE_CHECKING:\n    from c import C\n",
        "c": "def f():\n    pass\n\n\ndef g():\n    import a\n",
    }

    assert sorted(circle(imports(sources))) == ["a:2 -> b", "b:2 -> c", "c:6 -> a"]
