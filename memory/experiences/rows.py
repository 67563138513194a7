"""Rows of experiences: inserted, merged with like ones, deleted, read in order.

The writer's thread calls the functions that write inside its transaction, and again if the transaction was undone. The
body is the best example. Values that change without a new example are in columns, which are valid where they differ
from the body.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from hashlib import blake2b
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import astuple

from memory.codec import AlteredError, decode, encode, moment, read, safe, sealed, seconds, unsealed
from memory.engine.transactions import Question
from memory.experiences import recall
from memory.inserts import where
from memory.sqlite import seals
from spar.checks import PLAIN, problem_of
from spar.data.learning.situations import wording
from spar.data.scrub import masked
from spar.errors import ContractError
from spar.failpoints import armed, crashpoint
from spar.types import Experience, replace

if TYPE_CHECKING:
    from memory.engine.connection import Connection

#: Most bytes of a body; a larger one is cut and marked.
MOST_BYTES = 32 << 20
INDEXED = ("situation", "task", "action", "outcome", "cause", "lesson")
#: Fields with the whole text of a line; it is indexed with the line.
_WHOLE = {"situation": "said", "outcome": "answer"}
#: Assumed bytes of columns and index entries beside the texts.
_ROW_OVERHEAD = 320
#: Most merged experiences of a row whose id, run and cycle are kept, apart from its first.
MOST_SOURCES = 64
#: Prefix of the cycle's id in the origin of an experience that came from recalled text.
_RECALLED = "memory:"
#: Mark that keeps experiences imported without trust from being merged with those of this agent.
IMPORTED = "imported"

_SOURCE = "INSERT INTO experience_source (id, experience, run, cycle, at) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_OLD_SOURCES = (
    "DELETE FROM experience_source WHERE id IN "
    "(SELECT id FROM experience_source WHERE experience = ? ORDER BY at DESC LIMIT 1000000 OFFSET ?)"
)
#: Whether an id is known, and columns of the row of the experiences with a digest if there is one.
_KNOWN = (
    "SELECT EXISTS (SELECT 1 FROM experience WHERE id = ?1) OR EXISTS (SELECT 1 FROM experience_source WHERE id = ?1), "
    "alike.* FROM (SELECT 1) AS one LEFT JOIN (SELECT seq, at, first_at, score, words, "
    "length(body) + coalesce(length(last), 0), bytes FROM experience WHERE digest = ?2) AS alike ON true"
)
#: Columns from which `shown` makes the present experience of a row.
SHOWN = "seq, id, body, at, first_at, count, helped, harmed, success, score"


class ExperienceRow(Struct, frozen=True):
    """Encoded experience, made when it is accepted, so that nothing can change it before it is written: its columns by
    their names, and the texts that are indexed."""

    id: str
    at: float
    bytes: int
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
    digest: builtins.bytes | None
    words: int
    texts: tuple[str, ...]

    @property
    def columns(self) -> tuple[Any, ...]:
        return astuple(self)[:-1]


_COLUMNS = ExperienceRow.__struct_fields__[:-1]
_INSERT = f"INSERT INTO experience ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"


class ExperienceFilter(Struct, frozen=True):
    """Filter of experiences: every field that is set must hold. Times are aware (naive ones are taken as UTC).

    `as_of` selects the experiences that were known at a time: those whose first example is not later; `lesson` those
    that have one.
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
    lesson: bool | None = None

    def sql(self) -> tuple[str, tuple[Any, ...]]:
        """Return the condition and its bindings; `true` when nothing is set."""
        return where((
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
            ("experience.lesson = ?", self.lesson),
        ))  # fmt: skip


def row(experience: Experience, apart: str = "") -> ExperienceRow:
    """Return an experience as it will be written.

    Args: apart: the origin of an imported experience, which keeps it apart from those of this agent; else "".
    Raises: ContractError when it is no experience, or a field has a wrong type.
    """
    if not isinstance(experience, Experience):
        raise ContractError(f"only an Experience can be stored, found {type(experience).__name__}")
    if not PLAIN[type(experience)](experience) and (problem := problem_of(experience)):
        raise ContractError(f"it cannot be stored as it is: {problem}")
    return encoded_row(experience, apart)


def encoded_row(experience: Experience, apart: str = "") -> ExperienceRow:
    """Return an experience that was valid when it was stored first, as `row` does."""
    texts_of = (*INDEXED, *_WHOLE.values())
    values = [*attrgetter(*texts_of)(experience), *[call.params for call in experience.calls]]
    if (clean := masked(values)) is not values:  # one search over all of it: most experiences have no secret
        params = clean[len(texts_of) :]
        calls = tuple([replace(call, params=one) for call, one in zip(experience.calls, params, strict=True)])
        experience = replace(experience, calls=calls, **dict(zip(texts_of, clean, strict=False)))
    wholes, digest = _texts(experience), digest_of(experience, apart)
    body = sealed(encode(experience, limit=MOST_BYTES))
    texts = tuple(map(partial(safe, limit=MOST_BYTES), wholes))
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
        digest,
        int.from_bytes(blake2b("\0".join(texts).encode(), digest_size=8).digest(), "big", signed=True),
        texts,
    )


def digest_of(experience: Experience, apart: str = "") -> bytes | None:
    """Return a digest by which like experiences are merged into one row with a count; None for one like no other.

    Experiences are alike if they have the same session, situation (`Experience.key`), calls with their parameters,
    success, texts apart from numbers, and words of people. Trusted and untrusted ones are never alike, nor imported
    ones and those of this agent. An experience without a key is like no other, since its situation is unknown.

    Args: apart: the origin of an imported experience, which keeps it apart from those of this agent; else "".
    """
    if not experience.key:
        return None
    words = blake2b(experience.said.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    calls = [(call.tool, sorted(call.params.items(), key=itemgetter(0))) for call in experience.calls]
    successes = [call.success for call in experience.calls]
    same = (experience.session, experience.key, experience.success, experience.trust, words,
            wording(experience.situation), calls, successes, apart)  # fmt: skip
    return blake2b(encode(same, limit=MOST_BYTES).encode(), digest_size=16).digest()


def _texts(experience: Experience) -> list[str]:
    """Return the text of each indexed field, with the whole text of its line."""
    wholes = [getattr(experience, _WHOLE[name]) if name in _WHOLE else "" for name in INDEXED]
    return ["\n".join(filter(None, (getattr(experience, name), whole)))
            for name, whole in zip(INDEXED, wholes, strict=True)]  # fmt: skip


# -- writing


def insert(connection: Connection, rows: Sequence[ExperienceRow]) -> int:
    """Write experiences and their index entries. A like row counts a new one; a known id is left as it is.

    Returns: the number of new rows.
    """
    new = 0
    for item in rows:
        is_known, *alike = connection.execute(_KNOWN, (item.id, item.digest)).fetchone()
        if is_known:
            continue
        if alike[0] is None:
            if armed:
                crashpoint("memory.index")
            connection.full_text.insert(connection, _INSERT, item.columns, _words(item.texts))
        else:
            _merge(connection, alike, item)
        new += 1
    return new


def question(item: ExperienceRow) -> Question:
    """Return what an insertion asks first."""
    return Question((item.digest or item.id,), (_KNOWN, (item.id, item.digest)))


def index(connection: Connection, seq: int, texts: Iterable[str]) -> None:
    """Add a row's words to the index."""
    connection.full_text.add(connection, seq, _words(texts))


def _words(texts: Iterable[str]) -> list[str]:
    """Return the words of texts as the index wants them; in the writer's thread, as a text may be long."""
    return [*map(recall.words_of, texts)]


def unindex(connection: Connection, seq: int) -> None:
    """Remove a row's former words from the index."""
    connection.full_text.remove(connection, seq)
    connection.execute("UPDATE experience_vector SET model = 0 WHERE experience = ?", (seq,))


def alike_of(connection: Connection, digest: bytes) -> int | None:
    """Return the number of the row of the experiences with this digest; None if there is none."""
    seq = connection.execute("SELECT seq FROM experience WHERE digest = ?", (digest,)).get
    return None if seq is None else int(str(seq))


def _merge(connection: Connection, alike: Sequence[Any], item: ExperienceRow) -> None:
    """Merge an experience into the row of those like it, whose columns are given.

    The body is the best example, the newest of equal ones; the last example is kept beside a better one.
    """
    seq, at, first_at, score, words, length, size = alike
    rest = int(size) - int(length)
    is_last = item.at >= float(at)
    is_best = is_last and (score is None or (item.score is not None and item.score >= float(score)))
    scores = [known for known in (score, item.score) if known is not None]
    changes: dict[str, Any] = {"at": max(at, item.at), "first_at": min(first_at, item.first_at),
                               "score": max(scores, default=None)}  # fmt: skip
    if is_best:
        changes |= {"body": item.body, "last": None, "lesson": item.lesson, "task": item.task, "words": item.words,
                    "bytes": item.bytes}  # fmt: skip
    elif is_last:
        body = connection.execute("SELECT length(body) FROM experience WHERE seq = ?", (seq,)).get
        changes |= {"last": item.body, "bytes": rest + int(str(body)) + len(item.body)}
    if is_best and words != item.words:
        unindex(connection, seq)
        index(connection, seq, item.texts)
    if armed:
        crashpoint("memory.index")
    columns = "".join(f", {name} = ?" for name in changes)
    connection.execute(
        f"UPDATE experience SET count = count + ?, helped = helped + ?, harmed = harmed + ?{columns} WHERE seq = ?",
        (item.count, item.helped, item.harmed, *changes.values(), seq),
    )
    connection.execute(_SOURCE, (item.id, seq, item.run, item.cycle, item.at))
    connection.execute(_OLD_SOURCES, (seq, MOST_SOURCES))


def rewrite(connection: Connection, seq: int, item: ExperienceRow) -> None:
    """Write a row again under its number. The index changes if the words have changed."""
    words = connection.execute("SELECT words FROM experience WHERE seq = ?", (seq,)).get
    changes = {name: value for name, value in zip(_COLUMNS, item.columns, strict=True) if name not in ("run", "cycle")}
    columns = ", ".join(f"{name} = ?" for name in changes)
    connection.execute(f"UPDATE experience SET {columns}, last = NULL WHERE seq = ?", (*changes.values(), seq))
    if words != item.words:
        unindex(connection, seq)
        index(connection, seq, item.texts)


def delete(connection: Connection, where: ExperienceFilter) -> int:
    """Delete experiences. Return their number. Triggers delete their index entries, vectors and sources."""
    condition, bindings = where.sql()
    connection.execute(f"DELETE FROM experience WHERE {condition}", bindings)
    return connection.changes()


# -- reading


def after(connection: Connection, seq: int, limit: int) -> list[tuple[int, str]]:
    """Return the next rows in order of arrival, as `(seq, body)`. Raises: AlteredError for an altered row."""
    query = f"SELECT {SHOWN} FROM experience WHERE seq > ? ORDER BY seq LIMIT ?"
    return [(int(str(line[0])), _line(connection, line)) for line in list(connection.execute(query, (seq, limit)))]


def _line(connection: Connection, columns: Sequence[Any]) -> str:
    if not seals.fits(connection, "experience", int(columns[0])):
        raise AlteredError(f"experience {columns[1]}: its seal does not fit: it was altered")
    body, plain = unsealed(str(columns[2])), decode(str(columns[2]), Experience)
    now = shown(columns)
    return body if now == plain else encode(now, limit=MOST_BYTES)


def shown(columns: Sequence[Any]) -> Experience:
    """Return the present experience of a row from its columns `SHOWN`. Raises: ValueError, RecursionError."""
    _, id, body, at, first_at, count, helped, harmed, success, score = columns
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


def read_rows(connection: Connection, chosen: Iterable[int]) -> Iterator[tuple[int, Experience]]:
    """Return the present experiences of these rows. Rows that cannot be read or were altered are left out."""
    for seq in chosen:
        if not seals.fits(connection, "experience", seq):
            continue
        columns = connection.execute(f"SELECT {SHOWN} FROM experience WHERE seq = ?", (seq,)).fetchone()
        if columns is None:
            continue
        try:
            yield seq, shown(columns)
        except (ValueError, RecursionError):
            continue


def of_line(plain: Any) -> Experience:
    """Return an experience from parsed JSON. Raises: ValueError saying what is wrong."""
    if not isinstance(plain, dict):
        raise ValueError(f"an experience must be an object, found {type(plain).__name__}")
    return read(plain, Experience)
