"""The picture of `docs/explanation/how-it-works.md`; `make docs` writes it into the page, a test compares it.

The decisions are the modules in the tour of `spar.decisions`, each with the facts that it makes. All other facts are
told by the driver while it carries out cycles and commands.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from functools import cache
from pathlib import Path
from typing import Final

from spar import decisions, facts
from spar.facts import Fact, LocalFact
from spar.state.apply import ADDITIONS

PAGE: Final = Path(__file__).parents[2] / "docs" / "explanation" / "how-it-works.md"
BEGIN, END = "<!-- picture: python -m tests.docs.overview -->\n", "<!-- end of the picture -->\n"
#: Names of all facts.
KINDS: Final = sorted(
    name
    for name, kind in vars(facts).items()
    if isinstance(kind, type) and issubclass(kind, Fact) and kind not in (Fact, LocalFact)
)
#: Facts in one line of a box.
_IN_LINE: Final = 3


@cache
def decided() -> dict[str, list[str]]:
    """Return the facts that each decision makes, in the order of its source."""
    tour = [line.split()[0] for line in (decisions.__doc__ or "").splitlines() if "  " in line and line[0] != " "]
    return {name: _kinds_in(importlib.import_module(f"spar.decisions.{name}")) for name in tour}


def _kinds_in(module: object) -> list[str]:
    nodes = ast.walk(ast.parse(inspect.getsource(module)))  # type: ignore[arg-type]
    made = [node.func for node in nodes if isinstance(node, ast.Call)]
    places = [(node.lineno, node.attr if isinstance(node, ast.Attribute) else node.id)
              for node in made if isinstance(node, (ast.Attribute, ast.Name))]  # fmt: skip
    return list(dict.fromkeys(name for _, name in sorted(places) if name in KINDS))


def picture() -> str:
    """Return the picture in Mermaid."""
    by_decision = decided()
    known = {kind for kinds in by_decision.values() for kind in kinds}
    changing = {kind.__name__ for kind in ADDITIONS}
    others = sorted(changing - known)
    written = [kind for kind in KINDS if kind not in changing and kind not in known]
    boxes = "\n".join(f'        {name}["{_box(name, kinds)}"]' for name, kinds in by_decision.items())
    return f"""```mermaid
flowchart TD
    outside(["people, programs, sensors"]) -- command --> decisions
    state[("state of the session")] --> decisions
    subgraph decisions["decisions: pure functions"]
{boxes}
    end
    decisions -- facts --> apply["apply: the only code that changes state"]
    apply --> state
    decisions -- what to do --> driver["driver: sense, plan, act, reflect; wait; rest"]
    driver -- "{_box("facts", others)}" --> apply
    driver -- "{_box("facts of the journal alone", written)}" --> journal[("journal on disk")]
    journal --> views["views: runs, cycles, transcripts, calls in doubt, dead letters"]
    driver -- answers and events --> outside
    journal -. after a restart .-> state
```
"""


def _box(title: str, kinds: list[str]) -> str:
    """Return the text of a box: a title, and facts in lines."""
    lines = [", ".join(kinds[first : first + _IN_LINE]) for first in range(0, len(kinds), _IN_LINE)]
    return "<br/>".join([f"<b>{title}</b>", *([",<br/>".join(lines)] if lines else [])])


def text(page: str) -> str:
    """Return the page with the picture of now."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}{picture()}{END}{rest.partition(END)[2]}"


def main() -> None:
    """Write the picture into the page."""
    PAGE.write_text(text(PAGE.read_text()))


if __name__ == "__main__":
    main()
    sys.stdout.write("written: the picture of docs/explanation/how-it-works.md\n")
