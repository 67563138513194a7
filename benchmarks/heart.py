"""Measure the heart, which decides what an agent does when: `python -m benchmarks.heart` (`make heart`).

Each row is a figure of today beside what is owed. Rows with a circle are owed later: they are printed and not demanded.
Rows that take long name the command that measures them.

Files and changes are those of `benchmarks.hops`, lines of code those of `benchmarks.house`. An operation of the
journal's port counts if code of the heart names it. A Protocol has one implementation if one class of the packages has
all of its public members.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Final, Protocol

from benchmarks.footprint import WITHIN, imported
from benchmarks.hops import PACKAGES, WAYS, Way
from benchmarks.house import lines_of_code, modules
from spar.ports.store import Journal
from spar.state.apply import ADDITIONS
from tests.decisions.test_histories import HISTORIES

Figures = tuple[float, ...]

#: Folders of the heart. Those of its values and ports count with it.
DRIVING: Final = tuple(f"spar/{name}" for name in ("agent", "session", "runs", "journal", "loop"))
HEART: Final = (*DRIVING, "spar/facts.py", *(f"spar/{name}" for name in ("state", "decisions", "records", "ports")),
                "memory/journal")  # fmt: skip
CALLS: Final = ("acting/run", "acting/approvals")
#: Decisions and the histories that are drawn of them: the facts that these name are played.
PLAYED: Final = ("spar/decisions", "tests/decisions")

#: Two cycles of an agent without tools and settings. It prints the files of the packages that they loaded.
BARE: Final = f"""
import asyncio, sys
from spar import Agent, Perception

async def plan(perceptions):
    return None

async def main():
    turns, over = 0, asyncio.Event()
    async def sense():
        nonlocal turns
        turns += 1
        if turns == 3:
            over.set()
        return [Perception("tick")]
    async with Agent(sense=sense, plan=plan, loop_interval=0):
        await over.wait()

asyncio.run(main())
for name, module in list(sys.modules.items()):
    if name.partition(".")[0] in {PACKAGES} and getattr(module, "__file__", None):
        print(module.__file__)
"""


@dataclass(frozen=True)
class Row:
    """Row of the table. `owed` is the most of each figure that `measure` returns, or the least."""

    name: str
    measure: Callable[[], Figures]
    owed: Figures
    is_least: bool = False
    is_later: bool = False

    def is_reached(self, figures: Figures) -> bool:
        pairs = zip(figures, self.owed, strict=True)
        return all(figure >= owed if self.is_least else figure <= owed for figure, owed in pairs)


@dataclass(frozen=True)
class ByHand:
    """Row that takes long: the command that measures it, and what is owed, in words."""

    name: str
    command: str
    owed: str


@cache
def way(name: str) -> Way:
    return asyncio.run(_played(name))


async def _played(name: str) -> Way:
    return await WAYS[name].play()


def files(*names: str) -> Figures:
    return tuple(len(way(name).files) for name in names)


def changes(*names: str) -> Figures:
    return tuple(way(name).changes for name in names)


def code(places: Iterable[str]) -> Figures:
    """Return the number of lines of code of folders."""
    return (sum(lines_of_code(file.read_text()) for file in modules(places)),)


def bare() -> Figures:
    """Return what a bare agent costs: the lines of code that its cycle loads; the megabytes and seconds to make it."""
    done = subprocess.run([sys.executable, "-c", BARE], capture_output=True, text=True, timeout=WITHIN, check=True)
    lines = sum(lines_of_code(Path(file).read_text()) for file in done.stdout.splitlines())
    cost = imported("from spar import Agent; Agent(sense=lambda: [], plan=lambda perceptions: None)", 3)
    return lines, cost.megabytes, cost.seconds


def operations() -> Figures:
    """Return the number of operations of the journal's port."""
    ports = [port for port in Journal.__mro__ if getattr(port, "_is_protocol", False) and port is not Protocol]
    names = {name for port in ports for name, value in vars(port).items() if inspect.isfunction(value)}
    used = {node.attr for node in _nodes(DRIVING) if isinstance(node, ast.Attribute)}
    return (len({name for name in names & used if not name.startswith("_")}),)


def histories() -> Figures:
    """Return the number of drawn histories, and of the kinds of facts that occur in them."""
    nodes = list(_nodes(PLAYED))
    names = {node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "") for node in nodes}
    return HISTORIES, len(names & kinds())


def kinds() -> set[str]:
    """Return the names of all kinds of facts that change a state."""
    return {kind.__name__ for kind in ADDITIONS}


def protocols() -> Figures:
    """Return the number of Protocol classes, and of those that one class implements."""
    by_name = defaultdict[str, list[ast.ClassDef]](list)
    for node in _nodes(PACKAGES):
        if isinstance(node, ast.ClassDef):
            by_name[node.name].append(node)
    classes = [node for nodes in by_name.values() for node in nodes]
    ports = [node for node in classes if "Protocol" in _bases(node)]
    others = [_members(node, by_name) for node in classes if "Protocol" not in _bases(node)]
    numbers = [sum(members <= other for other in others) for members in (_members(port, by_name) for port in ports)]
    return len(ports), numbers.count(1)


def _nodes(places: Iterable[str]) -> Iterable[ast.AST]:
    return (node for file in modules(places) for node in ast.walk(ast.parse(file.read_text())))


def _bases(node: ast.ClassDef) -> list[str]:
    bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    return [base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in bases]


def _members(node: ast.ClassDef, by_name: dict[str, list[ast.ClassDef]]) -> set[str]:
    """Return the public names that a class or one of its bases defines, or that its methods set on `self`."""
    names = set[str]()
    for statement in node.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names.add(statement.name)
        for part in ast.walk(statement):
            if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
                names |= {part.attr} if isinstance(part.value, ast.Name) and part.value.id == "self" else set()
            elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                names |= {part.id} if isinstance(statement, (ast.Assign, ast.AnnAssign)) else set()
    public = {name for name in names if not name.startswith("_") or name.startswith("__")}
    bases = [by_name[base][0] for base in _bases(node) if base != node.name and by_name.get(base)]
    return public.union(*(_members(base, by_name) for base in bases))


def _owed(what: str, *names: str) -> Figures:
    """Return what `make hops` demands of these ways."""
    return tuple(getattr(WAYS[name], what) for name in names)


_MAIN: Final = ("cycle", "journalled", "message")
#: The table, in the order in which it is printed.
ROWS: Final = (
    Row("files on the way: cycle / journalled / message", partial(files, *_MAIN), _owed("files", *_MAIN)),
    Row("changes of file: cycle / journalled / message", partial(changes, *_MAIN), _owed("changes", *_MAIN)),
    Row("streamed call: files; bare call: files, changes",
        lambda: (*files("streamed", "call"), *changes("call")),
        (*_owed("files", "streamed", "call"), *_owed("changes", "call")), is_later=True),
    Row("code lines of the heart", partial(code, HEART), (7_500,)),
    Row("code lines of `acting/run` and `acting/approvals`", partial(code, CALLS), (2_600,), is_later=True),
    Row("a bare agent: code lines, MB, seconds", bare, (9_000, 17, 0.125), is_later=True),
    Row("operations of the journal's port", operations, (6,)),
    Row("Protocol classes, those with one implementation", protocols, (100, 20), is_later=True),
    Row("drawn histories in the gate, kinds of facts in them", histories, (5_000, len(kinds())), is_least=True),
    ByHand("rows 1–5, 9–12 of the bench beside a commit",
           'make bench ARGS="--only 1,2,3,4,5,9,10,11,12 --beside COMMIT"',
           "none more than 2 % worse; 3 and 4 at most 0.7"),
    ByHand("kills from outside", "make accept", "0 lost, 0 doubled, recovery's p95 no slower"),
    ByHand("behaviour", "make test", "passes, with the tests of faces and processes unchanged"),
)  # fmt: skip


def shown(figures: Figures) -> str:
    """Return figures as a text: whole ones without a point, others with three digits."""
    return " / ".join(f"{figure:,}" if isinstance(figure, int) else f"{figure:.3g}" for figure in figures)


def main() -> int:
    """Print the table. Returns: 0, or 1 when a row that is demanded is missed."""
    is_missed = False
    for row in ROWS:
        if isinstance(row, ByHand):
            print(f"  {row.name:53}{row.command}\n{'':55}owed: {row.owed}")
            continue
        figures = row.measure()
        is_reached = row.is_reached(figures)
        is_missed |= not (is_reached or row.is_later)
        verdict = "reached" if is_reached else "owed later" if row.is_later else "missed"
        print(f"{'◦' if row.is_later else ' '} {row.name:53}{shown(figures):>24}{shown(row.owed):>24}   {verdict}")
    return int(is_missed)


if __name__ == "__main__":
    sys.exit(main())
