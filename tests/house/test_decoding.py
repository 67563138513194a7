"""The house by its use of msgspec: only `spar.decoding` lets it resolve types, since other threads see them unfinished.

Read off the syntax tree; each finding is told with its file and line.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.house.test_tree import sources

#: The module that holds the lock.
ALLOWED = "spar/decoding.py"
FORMATS = ("json", "msgpack", "toml", "yaml")
#: The names of msgspec that resolve a type whenever they are used.
RESOLVING = frozenset({"msgspec.convert", "msgspec.inspect", "msgspec._core"}) | {
    f"msgspec.{format_}.{name}" for format_ in FORMATS for name in ("Decoder", "schema", "schema_components")
}
#: Those that resolve one only if they are given a type.
DECODE = frozenset(f"msgspec.{format_}.decode" for format_ in FORMATS)
NAMES = re.compile("|".join(rf"\b{name.rpartition('.')[2]}\b" for name in sorted(RESOLVING | DECODE)))


def resolving(source: str) -> Iterator[int]:
    """Yield the line of each use of msgspec by which it may resolve a type."""
    if "msgspec" not in source or not NAMES.search(source):
        return  # most files: reading their syntax is what takes time
    tree = ast.parse(source)
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "msgspec":
                    names[alias.asname or "msgspec"] = alias.name if alias.asname else "msgspec"
                    yield from (node.lineno for _ in [0] if _resolves(alias.name))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "msgspec":
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                names[alias.asname or alias.name] = full
                yield from (node.lineno for _ in [0] if _resolves(full))
    untyped = {
        id(node.func)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and len(node.args) == 1 and {word.arg for word in node.keywords} <= {"strict"}
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            full = _full(node, names)
            if _resolves(full) or (full in DECODE and id(node) not in untyped):
                yield node.lineno


def _resolves(full: str) -> bool:
    return any(full == name or full.startswith(f"{name}.") for name in RESOLVING)


def _full(node: ast.expr, names: dict[str, str]) -> str:
    """Return the full name of what an expression names, "" where it is nothing of msgspec."""
    if isinstance(node, ast.Attribute):
        return f"{outer}.{node.attr}" if (outer := _full(node.value, names)) else ""
    return names.get(node.id, "") if isinstance(node, ast.Name) else ""


def test_one_module_lets_msgspec_resolve_types() -> None:
    findings = [f"{name}:{line}" for name, source in sources().items() if name != ALLOWED for line in resolving(source)]

    assert findings == [], "use convert, decode or json_schema of spar.decoding: they may be used in any thread"


@pytest.mark.parametrize(
    "source",
    [
        "import msgspec\nmsgspec.convert(1, int)",
        "from msgspec import Struct, convert",
        "from msgspec import convert as to_value",
        "import msgspec as m\nto_value = m.convert",
        "import msgspec\nmsgspec.json.decode(b'1', type=int)",
        "import msgspec\nmsgspec.json.decode(b'1', **options)",
        "import msgspec\nmap(msgspec.msgpack.decode, rows)",
        "from msgspec import json\njson.decode(b'1', type=int)",
        "from msgspec.json import decode\ndecode(b'1', type=int)",
        "import msgspec.json as j\nj.Decoder(int)",
        "from msgspec.msgpack import Decoder",
        "import msgspec\nmsgspec.yaml.decode(b'1', type=int)",
        "import msgspec\nmsgspec.json.schema(int)",
        "import msgspec.inspect",
        "from msgspec import inspect",
        "from msgspec._core import convert",
    ],
)
def test_each_way_to_let_msgspec_resolve_a_type_is_found(source: str) -> None:
    assert list(resolving(source))


@pytest.mark.parametrize(
    "source",
    [
        "import msgspec\nmsgspec.json.decode(b'1')\nmsgspec.json.encode(1)\nmsgspec.to_builtins(1)",
        "from msgspec import Struct, field\nfrom msgspec.structs import replace",
        "import json\njson.decoder, json.JSONDecoder()\nconvert(1, int)",
        "from msgspec.json import encode, decode\ndecode(b'1', strict=False)",
    ],
)
def test_what_resolves_no_type_is_allowed(source: str) -> None:
    assert not list(resolving(source))
