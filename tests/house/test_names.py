"""The names of the six packages: each says what it holds, not how that came about.

Read off the syntax tree; each finding has its file and line.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.house.test_tree import sources

#: Names that say how a value came about. A private name (`_kept`) counts as well.
UNCLEAR = frozenset({"found", "made", "told", "said", "kept", "each"})
#: All places where one may be defined, and few others: a word follows it in a sentence, in code only `in` and `if`.
DEFINED = re.compile(rf"\b_*(?:{'|'.join(UNCLEAR)})\b(?! +(?!in\b|if\b)[A-Za-z])")
#: Names that people script against, or that stand in files, by module.
PUBLIC: dict[str, frozenset[str]] = {
    "memory/transcripts.py": frozenset({"found"}),  # an attribute of FencedError
    "perception/incidents/register.py": frozenset({"told"}),  # rows
    "reflection/credit.py": frozenset({"said"}),  # rows
    "spar/cli/doctor/machine.py": frozenset({"found"}),  # the JSON of `spar doctor`
    "spar/errors.py": frozenset({"found"}),
    "spar/channels/notices.py": frozenset({"told"}),  # rows
    "spar/channels/outbox.py": frozenset({"told"}),  # rows
    "spar/ports/store.py": frozenset({"found"}),  # the JSON of `spar doctor`
    "spar/protocols/context.py": frozenset({"said"}),
    "spar/records/perceived.py": frozenset({"told"}),  # rows
    "spar/types/cycle.py": frozenset({"said"}),
}


def unclear(source: str, public: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield each unclear name that a module defines, with its line: "12 found"."""
    for node in ast.walk(ast.parse(source)) if DEFINED.search(source) else ():
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = node.name
        else:
            continue
        if name.lstrip("_") in UNCLEAR and name not in public:
            yield f"{node.lineno} {name}"


def test_each_name_says_what_it_holds() -> None:
    wrong = [
        f"{file}:{name}"
        for file, source in sources().items()
        for name in unclear(source, PUBLIC.get(file, frozenset()))
    ]

    assert not wrong, "name it by what it holds: row, match, session, sentence, entries"


def test_a_public_name_that_is_gone_is_not_excused_any_longer() -> None:
    files = sources()

    assert [
        f"{file}: {name}"
        for file, names in PUBLIC.items()
        for name in names
        if file not in files or not any(line.endswith(f" {name}") for line in unclear(files[file]))
    ] == []


def test_names_of_all_kinds_are_seen() -> None:
    source = "\n".join(
        [
            "found = 1",
            "for each in (): ...",
            "def told(said, *, kept=None): ...",
            "async def work(self): self._made, b = 1, found",
            "class _Each: ...",
            "rows = [kept for kept in rows]",
        ]
    )

    assert sorted(unclear(source)) == ["1 found", "2 each", "3 kept", "3 said", "3 told", "4 _made", "6 kept"]
    assert "1 found" not in unclear(source, frozenset({"found"}))
