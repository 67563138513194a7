"""Count the lines of the house: `python -m benchmarks.house` (`make house`).

A line of code is one that is not blank and not only a comment or a docstring. Printed are the lines of the areas that
are to become smaller, beside what is owed, then what all packages have together.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

from benchmarks.hops import HOME, PACKAGES

#: The folders and modules of an area, and at most so many lines of code.
OWED: Final = {
    "channels, notices": (("spar/channels",), 2_000),
    "cli": (("spar/cli",), 4_300),
    "config": (("spar/config",), 1_400),
    "server": (("spar/server",), 1_600),
    "logs": (tuple(f"spar/observe/{name}.py" for name in ("logs", "formatting", "sink", "writer")), 330),
}
#: Lines of code below which a module is small.
SMALL: Final = 60
#: Tokens without code.
_NO_CODE: Final = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


def modules(places: Iterable[str]) -> list[Path]:
    """Return the modules of folders, and modules that are named; one that is gone has no lines."""
    paths = [HOME / place for place in places]
    return [file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path] * path.exists())]


@cache
def lines_of_code(source: str) -> int:
    """Return the number of lines of a module that are code; a text that is a statement is a docstring."""
    texts = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Expr))
    docstrings = {number for text in texts if isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
                  for number in range(text.lineno, (text.end_lineno or 0) + 1)}  # fmt: skip
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    code = {number for token in tokens if token.type not in _NO_CODE
            for number in range(token.start[0], token.end[0] + 1)}  # fmt: skip
    return len(code - docstrings)


def main() -> int:
    """Print the table. Returns: 0, or 1 when an area has more lines than it is owed."""
    is_more = False
    print(f"{'area':20}{'modules':>9}{'code':>9}   owed")
    for name, (places, most) in OWED.items():
        sources = [file.read_text() for file in modules(places)]
        number = sum(map(lines_of_code, sources))
        is_more |= number > most
        print(f"{name:20}{len(sources):9,}{number:9,}   at most {most:,}{', not reached' if number > most else ''}")
    sources = [file.read_text() for file in modules(PACKAGES)]
    lines = sum(source.count("\n") for source in sources)
    counts = [lines_of_code(source) for source in sources]
    print(f"{'all packages':20}{len(sources):9,}{sum(counts):9,}   of {lines:,} lines")
    print(f"{'small modules':20}{sum(count < SMALL for count in counts):9,}            below {SMALL} lines of code")
    return int(is_more)


if __name__ == "__main__":
    sys.exit(main())
