"""The house by its imports: no two modules of the core know one another.

A type is a dependency: what is imported for type checkers only, or inside a function, counts as well.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import spar

CORE = Path(spar.__file__).parent
ROOT = CORE.parent


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
