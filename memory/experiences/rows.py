"""Experiences as rows: put in, merged with those that are like them, forgotten, read in order.

Functions of a connection; what writes is called by the writer's thread inside its transaction and may be called
again when that had to be undone. The body is the best example; what changes without a new example stands in columns,
which count where they differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from memory.codec.columns import AlteredError, safe, sealed, seconds, unsealed
from memory.codec.decoding import decode, read
from memory.codec.encoding import encode
from memory.experiences import recall
from memory.experiences.likeness import MOST_BYTES, digest_of
from memory.sqlite import seals
from spar.data.scrub import mask, masked
from spar.errors import ContractError
from spar.failpoints import crashpoint
from spar.types import Experience, TriedCall, replace

if TYPE_CHECKING:
    from apsw import Connection

INDEXED = ("situation", "task", "action", "outcome", "cause", "lesson")
#: What is indexed with a field: the whole of what the line is about.
_WHOLE = {"situation": "said", "outcome": "answer"}
#: Bytes of columns and index entries beside the texts.
_ROW_OVERHEAD = 320
#: Ids, runs and cycles of those merged into a row that are known, but for its first.
MOST_SOURCES = 64
#: What the id of a cycle follows in the origin of what came of recalled text.
_RECALLED = "memory:"
#: Keeps what was imported without the owner's trust from being merged with what was lived.
IMPORTED = "imported"

_COLUMNS = (
    "id", "at", "bytes", "session", "task", "success", "lesson", "body", "key", "trust", "run", "cycle", "first_at",
    "count", "helped", "harmed", "score", "digest", "words",
)  # fmt: skip
_INSERT = f"INSERT INTO experience ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
_INDEX = f"INSERT INTO experience_text (rowid, {', '.join(INDEXED)}) VALUES (?, ?, ?, ?, ?, ?, ?)"
_SOURCE = "INSERT OR IGNORE INTO experience_source (id, experience, run, cycle, at) VALUES (?, ?, ?, ?, ?)"
_OLD_SOURCES = (
    "DELETE FROM experience_source WHERE id IN "
    "(SELECT id FROM experience_source WHERE experience = ? ORDER BY at DESC LIMIT -1 OFFSET ?)"
)
_KNOWN = (
    "SELECT 1 FROM experience WHERE id = ?1 UNION ALL SELECT 1 FROM experience_source WHERE id = ?1 LIMIT 1"
)  # fmt: skip
#: What a row needs to be shown as the experience that it is now.
SHOWN = "seq, id, body, at, first_at, count, helped, harmed, success, score"


class ExperienceRow(Struct, frozen=True):
    """An experience, encoded: made where it is accepted, so that nothing can change it before it is written."""

    id: str
    at: float
    size: int
    session: str
    task: str
    success: int | None
    lesson: int
    body: str
    key: str
    trust: str
    run: str
    cycle: str
    first_at: float
    count: int
    helped: int
    harmed: int
    score: float | None
    digest: bytes | None
    words: int
    texts: tuple[str, ...]

    @property
    def columns(self) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in self.__struct_fields__[:-1]])


class ExperienceFilter(Struct, frozen=True):
    """Which experiences: every field that is set must hold. Times are aware (naive ones are taken as UTC).

    `as_of` leaves what was known at a time: those of which the first had been made.
    """

    id: str | None = None
    session: str | None = None
    task: str | None = None
    success: bool | None = None
    since: datetime | None = None
    before: datetime | None = None
    key: str | None = None
    trust: str | None = None
    as_of: datetime | None = None

    def sql(self) -> tuple[str, tuple[Any, ...]]:
        """Return the condition and its bindings; `1` when nothing is set."""
        conditions = (
            ("experience.id = ?", None if self.id is None else safe(self.id)),
            ("experience.session = ?", None if self.session is None else safe(self.session)),
            ("experience.task = ?", None if self.task is None else safe(self.task)),
            ("experience.success = ?", self.success),
            ("experience.at >= ?", None if self.since is None else seconds(self.since)),
            ("experience.at < ?", None if self.before is None else seconds(self.before)),
            # With the first half, which says nothing more, the index is used: it holds no rows without a key.
            (
                "experience.key <> '' AND experience.key = ?" if self.key else "experience.key = ?",
                None if self.key is None else safe(self.key),
            ),
            ("experience.trust = ?", self.trust),
            ("experience.first_at <= ?", None if self.as_of is None else seconds(self.as_of)),
        )
        chosen = [(text, value) for text, value in conditions if value is not None]
        return " AND ".join(text for text, _ in chosen) or "1", tuple(value for _, value in chosen)


def row(experience: Experience, apart: str = "") -> ExperienceRow:
    """Return the experience as it will be written.

    Args: apart: where it comes from, if that keeps it from being merged with what was lived.
    Raises: ContractError when it is none, or a field has a wrong type.
    """
    if not isinstance(experience, Experience):
        raise ContractError(f"only an Experience can be stored, found {type(experience).__name__}")
    wrong = [name for name, kinds in _KINDS if not isinstance(getattr(experience, name), kinds)]
    wrong += [] if all(isinstance(call, TriedCall) for call in experience.calls) else ["calls"]
    wrong += [name for name in ("count", "helped", "harmed") if not 0 <= getattr(experience, name) < _MOST_COUNTED]
    if wrong or experience.trust not in ("trusted", "untrusted"):
        name = wrong[0] if wrong else "trust"
        raise ContractError(f"experience.{name} cannot be {getattr(experience, name)!r:.200}")
    texts_of = (*INDEXED, *_WHOLE.values())
    calls = tuple([replace(call, params=masked(call.params)) for call in experience.calls])
    changes = {name: mask(getattr(experience, name)) for name in texts_of}
    experience = replace(experience, calls=calls, **changes)
    body = sealed(encode(experience, limit=MOST_BYTES))
    texts = tuple(_text(experience, name) for name in INDEXED)
    at = seconds(experience.at)
    return ExperienceRow(
        safe(experience.id),
        at,
        len(body) + sum(map(len, texts)) + _ROW_OVERHEAD,
        safe(experience.session),
        safe(experience.task),
        None if experience.success is None else int(experience.success),
        int(bool(experience.lesson.strip())),
        body,
        safe(experience.key),
        experience.trust,
        safe(experience.run_id),
        safe(experience.origin.removeprefix(_RECALLED)),
        at if experience.first_at is None else seconds(experience.first_at),
        max(1, experience.count),
        experience.helped,
        experience.harmed,
        experience.score,
        digest_of(experience, apart),
        int.from_bytes(blake2b("\0".join(texts).encode(), digest_size=8).digest(), "big", signed=True),
        texts,
    )


def _text(experience: Experience, name: str) -> str:
    whole = _WHOLE.get(name)
    texts = [getattr(experience, name), *([getattr(experience, whole)] if whole else ())]
    return safe("\n".join(filter(None, texts)), limit=MOST_BYTES)


_MOST_COUNTED = 1 << 53
_KINDS: tuple[tuple[str, type | tuple[type, ...]], ...] = (
    *((name, str) for name in (*INDEXED, *_WHOLE.values(), "id", "session", "origin", "key", "run_id")),
    ("at", datetime),
    ("success", (bool, type(None))),
    ("cost", (int, float)),
    ("calls", tuple),
    ("score", (int, float, type(None))),
    *((name, int) for name in ("count", "helped", "harmed")),
    ("first_at", (datetime, type(None))),
)


# -- writing


def insert(connection: Connection, rows: Sequence[ExperienceRow]) -> int:
    """Write them, index included; a like one that is there counts it. One whose id is known is left as it is.

    Returns: how many were new.
    """
    new = 0
    for item in rows:
        if connection.execute(_KNOWN, (item.id,)).get is not None:
            continue
        alike = None if item.digest is None else alike_of(connection, item.digest)
        if alike is None:
            connection.execute(_INSERT, item.columns)
            crashpoint("memory.index")
            index(connection, connection.last_insert_rowid(), item.texts)
        else:
            _merge(connection, alike, item)
        new += 1
    return new


def index(connection: Connection, seq: int, texts: Iterable[str]) -> None:
    """Have a row found by its words; in the writer's thread, as a text may be long."""
    connection.execute(_INDEX, (seq, *map(recall.words_of, texts)))


def unindex(connection: Connection, seq: int) -> None:
    """Have a row found no more by the words that it had."""
    connection.execute("DELETE FROM experience_text WHERE rowid = ?", (seq,))
    connection.execute("UPDATE experience_vector SET model = 0 WHERE experience = ?", (seq,))


def alike_of(connection: Connection, digest: bytes) -> int | None:
    """Return the row of the experiences with this digest."""
    found = connection.execute("SELECT seq FROM experience WHERE digest = ?", (digest,)).get
    return None if found is None else int(str(found))


def _merge(connection: Connection, seq: int, item: ExperienceRow) -> None:
    """Count an experience to the row of those like it. The best example is its body, the newest of equals; the last
    one is kept beside a better one."""
    at, score, words, length, size = connection.execute(
        "SELECT at, score, words, length(body) + coalesce(length(last), 0), bytes FROM experience WHERE seq = ?", (seq,)
    ).fetchone() or (0.0, None, 0, 0, 0)
    rest = int(str(size)) - int(str(length))
    is_last = item.at >= float(str(at))
    is_best = is_last and (score is None or (item.score is not None and item.score >= float(str(score))))
    changes: dict[str, Any] = {}
    if is_best:
        changes = {"body": item.body, "last": None, "lesson": item.lesson, "task": item.task, "words": item.words,
                   "bytes": item.size}  # fmt: skip
    elif is_last:
        body = connection.execute("SELECT length(body) FROM experience WHERE seq = ?", (seq,)).get
        changes = {"last": item.body, "bytes": rest + int(str(body)) + len(item.body)}
    if is_best and words != item.words:
        unindex(connection, seq)
        index(connection, seq, item.texts)
    crashpoint("memory.index")
    columns = "".join(f", {name} = ?" for name in changes)
    connection.execute(
        "UPDATE experience SET count = count + ?, at = max(at, ?), first_at = min(first_at, ?), helped = helped + ?, "
        "harmed = harmed + ?, score = CASE WHEN score IS NULL THEN ?6 ELSE max(score, coalesce(?6, score)) END"
        f"{columns} WHERE seq = ?",
        (item.count, item.at, item.first_at, item.helped, item.harmed, item.score, *changes.values(), seq),
    )
    connection.execute(_SOURCE, (item.id, seq, item.run, item.cycle, item.at))
    connection.execute(_OLD_SOURCES, (seq, MOST_SOURCES))


def rewrite(connection: Connection, seq: int, item: ExperienceRow) -> None:
    """Write a row anew, under its number; the index follows if the words have changed."""
    words = connection.execute("SELECT words FROM experience WHERE seq = ?", (seq,)).get
    changes = {name: value for name, value in zip(_COLUMNS, item.columns, strict=True) if name not in ("run", "cycle")}
    columns = ", ".join(f"{name} = ?" for name in changes)
    connection.execute(f"UPDATE experience SET {columns}, last = NULL WHERE seq = ?", (*changes.values(), seq))
    if words != item.words:
        unindex(connection, seq)
        index(connection, seq, item.texts)


def delete(connection: Connection, where: ExperienceFilter) -> int:
    """Forget them; returns how many there were. Index, vectors and sources follow by triggers."""
    condition, bindings = where.sql()
    connection.execute(f"DELETE FROM experience WHERE {condition}", bindings)
    return connection.changes()


# -- reading


def after(connection: Connection, seq: int, limit: int) -> list[tuple[int, str]]:
    """Return the next rows in order of arrival, as `(seq, body)`. Raises: AlteredError for one that was altered."""
    query = f"SELECT {SHOWN} FROM experience WHERE seq > ? ORDER BY seq LIMIT ?"
    return [(int(str(found[0])), _line(connection, found)) for found in list(connection.execute(query, (seq, limit)))]


def _line(connection: Connection, found: Sequence[Any]) -> str:
    if not seals.fits(connection, "experience", int(found[0])):
        raise AlteredError(f"experience {found[1]}: its seal does not fit: it was altered")
    body, plain = unsealed(str(found[2])), decode(str(found[2]), Experience)
    now = shown(found)
    return body if now == plain else encode(now, limit=MOST_BYTES)


def shown(found: Sequence[Any]) -> Experience:
    """Return the experience of a row that was read as `SHOWN` says. Raises: ValueError, RecursionError."""
    _, id, body, at, first_at, count, helped, harmed, success, score = found
    experience = decode(str(body), Experience)
    changes: dict[str, Any] = {}
    if count != 1 or seconds(experience.at) != at:
        changes = {"at": moment(at), "first_at": moment(first_at)}
    if id != safe(experience.id):
        changes["id"] = id
    now = {"count": count, "helped": helped, "harmed": harmed, "score": score,
           "success": None if success is None else bool(success)}  # fmt: skip
    changes |= {name: value for name, value in now.items() if value != getattr(experience, name)}
    return replace(experience, **changes) if changes else experience


def moment(at: Any) -> datetime:
    return datetime.fromtimestamp(float(at), UTC)


def read_rows(connection: Connection, chosen: Iterable[int]) -> Iterator[tuple[int, Experience]]:
    """Return the experiences of these rows as they are now, but for those that cannot be read or were altered."""
    for seq in chosen:
        if not seals.fits(connection, "experience", seq):
            continue
        found = connection.execute(f"SELECT {SHOWN} FROM experience WHERE seq = ?", (seq,)).fetchone()
        if found is None:
            continue
        try:
            yield seq, shown(found)
        except (ValueError, RecursionError):
            continue


def of_line(plain: Any) -> Experience:
    """An experience from parsed JSON. Raises: ValueError saying what is wrong."""
    if not isinstance(plain, dict):
        raise ValueError(f"an experience must be an object, found {type(plain).__name__}")
    return read(plain, Experience)
