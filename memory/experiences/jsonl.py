"""Experiences as JSON lines: one ASCII object a line, to copy them from one memory to another.

All lines are checked before anything is stored: a file with a bad line is refused as a whole, and the error names the
lines. An exported experience is equal when it is read back, lone surrogates included.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from memory.experiences.rows import IMPORTED, ExperienceRow, of_line, row
from spar.errors import BadDataError, SparError
from spar.types import replace

#: Fields that an untrusted line must not set.
_UNPROVEN: dict[str, Any] = {"trust": "untrusted", "count": 1, "helped": 0, "harmed": 0}
_EXPECTED = "expected a JSON object a line, as spar memory export writes them"
_MAX_NAMED = 10  # most bad lines that the error names


def write_lines(target: str | os.PathLike[str] | IO[str], bodies: Iterable[str]) -> int:
    """Write the lines; a file appears complete or not at all. Return their number. Raises: OSError."""
    if not isinstance(target, (str, os.PathLike)):
        return _write(target, bodies)
    path = Path(target)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            count = _write(file, bodies)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return count


def read_lines(source: str | os.PathLike[str] | IO[Any], *, trust: bool = False) -> list[ExperienceRow]:
    """Return the rows of a file; empty lines are skipped.

    Args: trust: accept the trust, the number of examples and the credits that the lines claim.
    Raises: BadDataError naming the bad lines and what is wrong with each; OSError.
    """
    if isinstance(source, (str, os.PathLike)):
        with Path(source).open("rb") as file:
            return _rows(file, str(source), trust)
    return _rows(source, str(getattr(source, "name", "the file")), trust)


def _write(file: IO[str], bodies: Iterable[str]) -> int:
    count = 0
    for body in bodies:
        file.write(body + "\n")
        count += 1
    return count


def _rows(lines: Iterable[str | bytes], name: str, trust: bool) -> list[ExperienceRow]:
    bad: list[str] = []
    rows = list(_readable(lines, bad, trust))
    if bad:
        more = f"; and {len(bad) - _MAX_NAMED} more" if len(bad) > _MAX_NAMED else ""
        raise BadDataError(f"nothing was imported from {name}: {'; '.join(bad[:_MAX_NAMED])}{more}; {_EXPECTED}")
    return rows


def _readable(lines: Iterable[str | bytes], bad: list[str], trust: bool) -> Iterator[ExperienceRow]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            experience = of_line(json.loads(line))
            yield row(experience) if trust else row(replace(experience, **_UNPROVEN), IMPORTED)
        except json.JSONDecodeError as error:
            bad.append(f"line {number}: no JSON, {error.msg} at character {error.pos + 1}")
        except (ValueError, TypeError, SparError, RecursionError) as error:
            bad.append(f"line {number}: {error}")
