"""Inspection of experiences: one in full with its sources, and counts of all by kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from memory.codec import AlteredError, decode, moment, safe
from memory.experiences.rows import SHOWN, shown
from memory.sqlite import seals
from spar.types import RETIRED_AFTER, Experience
from spar.types.cycle import ExperienceDetail, ExperienceSource

if TYPE_CHECKING:
    from memory.engine.connection import Connection

_SOURCES = "SELECT id, run, cycle, at FROM experience_source WHERE experience = ? ORDER BY at"
_FOUND = (
    f"SELECT {SHOWN}, last, run, cycle, trust FROM experience WHERE id = ?1 OR seq = (SELECT experience FROM "
    "experience_source WHERE id = ?1) LIMIT 2"
)
_BEGINNING = f"SELECT {SHOWN}, last, run, cycle, trust FROM experience WHERE id >= ? AND id < ? LIMIT 2"
_FIGURES = f"""
    SELECT count(*), coalesce(sum(count), 0), count(*) FILTER (WHERE count > 1),
    count(*) FILTER (WHERE helped + harmed > 0), count(*) FILTER (WHERE trust = 'untrusted'),
    count(*) FILTER (WHERE success IS NULL), count(*) FILTER (WHERE success = 0), count(*) FILTER (WHERE lesson = 1),
    count(*) FILTER (WHERE lesson = 1 AND harmed - helped >= {RETIRED_AFTER}), count(*) FILTER (WHERE key = ''),
    count(*) FILTER (WHERE helped + harmed = 0 AND lesson = 0 AND success IS NULL), coalesce(sum(bytes), 0)
    FROM experience
"""


def detail(connection: Connection, id: str) -> ExperienceDetail | None:
    """Return the experience with this id or unique beginning of an id; None if there is none.

    Raises: LookupError when several ids begin so; AlteredError for a row that was altered.
    """
    matches = list(connection.execute(_FOUND, (safe(id),))) or (
        list(connection.execute(_BEGINNING, (safe(id), f"{safe(id)}\U0010ffff"))) if id else []
    )
    if not matches:
        return None
    if len(matches) > 1:
        raise LookupError(f"several experiences begin with {id!r:.100}")
    *row, last, run, cycle, _ = matches[0]
    if not seals.fits(connection, "experience", int(row[0])):
        raise AlteredError(f"experience {row[1]}: its seal does not fit: it was altered")
    experience = shown(row)
    first = ExperienceSource(str(row[1]), str(run), str(cycle), experience.first_at or experience.at)
    others = [
        ExperienceSource(str(source_id), str(of), str(in_), moment(at))
        for source_id, of, in_, at in connection.execute(_SOURCES, row[:1])
    ]
    return ExperienceDetail(
        experience,
        None if last is None else decode(str(last), Experience),
        (first, *others),
        bool(experience.lesson) and experience.is_retired,
    )


def figures(connection: Connection) -> Mapping[str, Any]:
    """Return counts of all rows, and of those that were merged, used in decisions, seem useless, or are untrusted."""
    row: Any = connection.execute(_FIGURES).fetchone()
    names = ("rows", "made", "merged", "used", "untrusted", "unjudged", "failed", "lessons", "retired", "without_key",
             "idle", "bytes")  # fmt: skip
    totals = {name: int(value) for name, value in zip(names, row, strict=True)}
    return {**totals, "vectors": int(str(connection.execute("SELECT count(*) FROM experience_vector").get))}
