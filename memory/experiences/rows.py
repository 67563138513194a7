"""Experiences as rows: put in, found, forgotten, read in order.

Functions of a connection; what writes is called by the writer's thread inside its transaction and may be called
again when that had to be undone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from memory.codec import decode, encode, read, safe, sealed, seconds, unsealed
from memory.experiences import recall
from spar.data.scrub import mask
from spar.errors import ContractError
from spar.failpoints import crashpoint
from spar.types import Experience, replace

if TYPE_CHECKING:
    from apsw import Connection

_INDEXED = ("situation", "task", "action", "outcome", "cause", "lesson")
#: What is indexed with a field: the whole of what the line is about.
_WHOLE = {"situation": "said", "outcome": "answer"}
#: Bytes of a body; what is larger is cut, and marked.
MOST_BYTES = 32 << 20
_ROW_OVERHEAD = 200  # bytes of columns and index entries beside the texts
CANDIDATES = 50  # how many the index proposes before recency and usefulness have their say

_INSERT = (
    "INSERT INTO experience (id, at, bytes, session, task, success, lesson, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (id) DO NOTHING"
)
_INDEX = f"INSERT INTO experience_text (rowid, {', '.join(_INDEXED)}) VALUES (?, ?, ?, ?, ?, ?, ?)"


class ExperienceRow(Struct, frozen=True):
    """An experience, encoded: made where it is accepted, so that nothing can change it before it is written."""

    columns: tuple[Any, ...]
    texts: tuple[str, ...]
    size: int


class ExperienceFilter(Struct, frozen=True):
    """Which experiences: every field that is set must hold. Times are aware (naive ones are taken as UTC)."""

    id: str | None = None
    session: str | None = None
    task: str | None = None
    success: bool | None = None
    since: datetime | None = None
    before: datetime | None = None

    def sql(self) -> tuple[str, tuple[Any, ...]]:
        """Return the condition and its bindings; `1` when nothing is set."""
        conditions = (
            ("experience.id = ?", None if self.id is None else safe(self.id)),
            ("experience.session = ?", None if self.session is None else safe(self.session)),
            ("experience.task = ?", None if self.task is None else safe(self.task)),
            ("experience.success = ?", self.success),
            ("experience.at >= ?", None if self.since is None else seconds(self.since)),
            ("experience.at < ?", None if self.before is None else seconds(self.before)),
        )
        chosen = [(text, value) for text, value in conditions if value is not None]
        return " AND ".join(text for text, _ in chosen) or "1", tuple(value for _, value in chosen)


def row(experience: Experience) -> ExperienceRow:
    """Return the experience as it will be written. Raises: ContractError when it is none, or a field has a wrong
    type."""
    if not isinstance(experience, Experience):
        raise ContractError(f"only an Experience can be stored, found {type(experience).__name__}")
    wrong = [name for name, kinds in _KINDS if not isinstance(getattr(experience, name), kinds)]
    if wrong or experience.trust not in ("trusted", "untrusted"):
        name = wrong[0] if wrong else "trust"
        raise ContractError(f"experience.{name} cannot be {getattr(experience, name)!r:.200}")
    texts_of = (*_INDEXED, *_WHOLE.values())
    experience = replace(experience, **{name: mask(getattr(experience, name)) for name in texts_of})
    body = sealed(encode(experience, limit=MOST_BYTES))
    texts = tuple(_text(experience, name) for name in _INDEXED)
    size = len(body) + sum(map(len, texts)) + _ROW_OVERHEAD
    success = None if experience.success is None else int(experience.success)
    columns = (
        safe(experience.id),
        seconds(experience.at),
        size,
        safe(experience.session),
        safe(experience.task),
        success,
        int(bool(experience.lesson.strip())),
        body,
    )
    return ExperienceRow(columns, texts, size)


def _text(experience: Experience, name: str) -> str:
    whole = _WHOLE.get(name)
    texts = [getattr(experience, name), *([getattr(experience, whole)] if whole else ())]
    return safe("\n".join(filter(None, texts)), limit=MOST_BYTES)


_KINDS: tuple[tuple[str, type | tuple[type, ...]], ...] = (
    *((name, str) for name in (*_INDEXED, *_WHOLE.values(), "id", "session", "origin")),
    ("at", datetime),
    ("success", (bool, type(None))),
    ("cost", (int, float)),
)


def insert(connection: Connection, rows: Sequence[ExperienceRow]) -> int:
    """Write them, index included; one whose id is known is left as it is. Returns how many were new."""
    new = 0
    for item in rows:
        connection.execute(_INSERT, item.columns)
        crashpoint("memory.index")
        if connection.changes():
            words = map(recall.words_of, item.texts)  # in the writer's thread: a text may be long
            connection.execute(_INDEX, (connection.last_insert_rowid(), *words))
            new += 1
    return new


def delete(connection: Connection, where: ExperienceFilter) -> int:
    """Forget them; returns how many there were. The index follows by a trigger."""
    condition, bindings = where.sql()
    connection.execute(f"DELETE FROM experience WHERE {condition}", bindings)
    return connection.changes()


def search(connection: Connection, query: str, k: int, where: ExperienceFilter) -> tuple[list[Experience], int]:
    """Return the k best, and how many rows could not be read. A query without words asks for the most recent."""
    condition, bindings = where.sql()
    expression = recall.match(query)
    if not expression:
        sql = f"SELECT seq FROM experience WHERE {condition} ORDER BY at DESC, seq DESC LIMIT ?"
        return _bodies(connection, [_int(found[0]) for found in connection.execute(sql, (*bindings, k))])
    join = "" if condition == "1" else "JOIN experience ON experience.seq = experience_text.rowid"
    # The index ranks by itself; what the order needs beside the rank is fetched for the best only.
    sql = (
        "SELECT seq, score, at, success, lesson FROM experience JOIN ("
        f"  SELECT experience_text.rowid AS number, rank AS score FROM experience_text {join}"
        f"  WHERE experience_text MATCH ? AND {condition} ORDER BY rank, experience_text.rowid DESC LIMIT ?"
        ") ON seq = number"
    )
    scores: dict[int, float] = {}
    candidates: dict[int, recall.Candidate] = {}
    for seq, score, at, success, lesson in connection.execute(sql, (expression, *bindings, max(CANDIDATES, 4 * k))):
        # bm25 is lower for better; rounded, so that equal texts are equal whatever the sum's last digits.
        scores[_int(seq)] = -round(_float(score), 6)
        judged = None if success is None else bool(success)
        candidates[_int(seq)] = recall.Candidate(_float(at), judged, bool(lesson))
    return _bodies(connection, recall.order(candidates, [scores])[:k])


def after(connection: Connection, seq: int, limit: int) -> list[tuple[int, str]]:
    """Return the next rows in order of arrival, as `(seq, body)`."""
    found = connection.execute("SELECT seq, body FROM experience WHERE seq > ? ORDER BY seq LIMIT ?", (seq, limit))
    return [(_int(number), unsealed(str(body))) for number, body in found]


def _bodies(connection: Connection, chosen: list[int]) -> tuple[list[Experience], int]:
    experiences = list(_read(connection, chosen))
    return experiences, len(chosen) - len(experiences)


def _read(connection: Connection, chosen: list[int]) -> Iterator[Experience]:
    for seq in chosen:
        body = connection.execute("SELECT body FROM experience WHERE seq = ?", (seq,)).get
        try:
            yield decode(str(body), Experience)
        except (ValueError, RecursionError):
            continue


def of_line(plain: Any) -> Experience:
    """An experience from parsed JSON. Raises: ValueError saying what is wrong."""
    if not isinstance(plain, dict):
        raise ValueError(f"an experience must be an object, found {type(plain).__name__}")
    return read(plain, Experience)


def _int(value: Any) -> int:
    return int(value)


def _float(value: Any) -> float:
    return float(value) if value is not None else math.nan
