"""Retention by age, number and size, the oldest first; of events only those that no open cycle needs.

Of experiences the least useful of the oldest go first: what helped stays longer than what harmed, and a rare failure
that teaches something longer than what works all the time. What is too old goes in any case.
`due` is the pure decision; `trim` carries it out in one small transaction on the writer's connection, so that no
other work waits long. When the whole is too large, the tape and the experiences each keep half: neither can crowd the
other out.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from memory import pieces
from memory.journal import counts, orphans, session_rows
from memory.sqlite import hash_chain
from memory.sqlite.hash_chain import integer
from spar.failpoints import crashpoint
from spar.types import RETIRED_AFTER

if TYPE_CHECKING:
    from apsw import Connection

BATCH = 250  # rows deleted at once: some milliseconds
FACTS = 5_000  # of facts, which stand together, more than a group of work brings
_DAY = 86_400.0
#: The oldest experiences of which the least useful go.
WINDOW = 4 * BATCH
#: A failure that was made no more often than this is rare, and worth so much more if there is a lesson in it; so much
#: more is what is trusted worth, too.
RARE, FLOOR = 3, 2.0
#: Of each kind the newest rows, which stay whatever the file takes.
NEWEST = 100
_ABOUT_A_FACT = 600
#: Rows about which run wrote where, which are kept for as many days as entries; a run that was superseded is known
#: for as long.
_KEPT_WRITERS = 100_000
_TIMES = {"cycle": "started_at", "experience": "at"}
_MERGE_PAGES = 200  # pages of the text index merged at once in idle time; merged, a search costs a fifth
_VACUUM_PAGES = 500


class Judged(Struct, frozen=True):
    """An experience that may go: its row, its bytes, what it is worth."""

    seq: int
    bytes: int
    value: float


class RetentionLimits(Struct, frozen=True):
    """The limits of what is kept; None means all. `bytes` is about what the rows take in the file, without facts and
    transcripts; `file_bytes` is what the whole file may take."""

    days: float | None
    cycles: int | None
    experiences: int | None
    bytes: int | None
    fact_days: float | None = 7
    facts: int | None = 1_000_000
    transcript_days: float | None = 90
    transcripts: int | None = 200_000
    transcript_bytes: int | None = 100 << 20
    file_bytes: int | None = None

    def rows(self, kind: str) -> int | None:
        return self.cycles if kind == "cycle" else self.experiences


def due(oldest: Sequence[tuple[float, int]], *, count: int, keep: int | None, over: int, horizon: float | None) -> int:
    """Return how many of the oldest rows are to be deleted now.

    Args: oldest: `(at, bytes)` in order of age; count: how many rows there are in all; keep: how many may stay;
        over: bytes too many; horizon: rows from before this moment (seconds since 1970) go.
    """
    gone = freed = 0
    for at, size in oldest:
        is_old = horizon is not None and at < horizon
        is_many = keep is not None and count - gone > keep
        if not (is_old or is_many or over > freed):
            break
        gone, freed = gone + 1, freed + size
    return gone


def shares(held: dict[str, int], limit: int | None) -> dict[str, int]:
    """Return how many bytes each kind has too many: each may take half, and what the others leave free of theirs."""
    if limit is None:
        return dict.fromkeys(held, 0)
    total, half = sum(held.values()), limit // len(held)
    return {kind: max(0, size - max(half, limit - (total - size))) for kind, size in held.items()}


def value(success: bool | None, count: int, helped: int, harmed: int, *, is_teaching: bool, is_trusted: bool) -> float:
    """Return how much an experience is worth keeping, beside its age.

    Strangers can bring about rare failures at will: being rare counts no more than being trusted.
    """
    worth = math.log1p(helped) - math.log1p(harmed) + 0.1 * math.log1p(count)
    is_rare = success is False and count <= RARE and harmed - helped < RETIRED_AFTER
    return worth + FLOOR * (is_rare and is_teaching) + FLOOR * is_trusted


def least_useful(oldest: Sequence[Judged], *, count: int, keep: int | None, over: int) -> list[int]:
    """Return which of the oldest go because there are too many, or they are too large: the least useful first.

    Args: oldest: in order of age; count: how many there are in all; keep: how many may stay; over: bytes too many.
    """
    gone, freed = list[int](), 0
    for row in sorted(oldest, key=lambda row: row.value):  # the sort keeps the order of age among equals
        if len(gone) >= BATCH or not ((keep is not None and count - len(gone) > keep) or over > freed):
            break
        gone.append(row.seq)
        freed += row.bytes
    return gone


def trim(connection: Connection, limits: RetentionLimits, now: float) -> int:
    """Delete one batch of what is due; returns how many rows went. Writes nothing when nothing is due."""
    held = {kind: _held(connection, kind) for kind in _TIMES}
    sizes = {kind: size for kind, (_, size) in held.items()}
    sizes["cycle"] += pieces.held(connection)
    over = shares(sizes, limits.bytes)
    horizon = None if limits.days is None else now - limits.days * _DAY
    deleted = _trim_experiences(connection, limits, held["experience"][0], over["experience"], horizon)
    for kind, (count, _) in held.items():
        if kind == "experience":
            continue
        at = _TIMES[kind]
        rows = _oldest(connection, kind, at, at)
        number = due(rows, count=count, keep=limits.rows(kind), over=over[kind], horizon=horizon)
        if number:
            if kind == "cycle":
                counts.fold(connection, is_all=True)
            crashpoint("retention.delete")
            connection.execute(
                f"DELETE FROM {kind} WHERE seq IN (SELECT seq FROM {kind} ORDER BY {at} LIMIT ?)", (number,)
            )
            deleted += connection.changes()
    return deleted


def _trim_experiences(
    connection: Connection, limits: RetentionLimits, count: int, over: int, horizon: float | None
) -> int:
    old = connection.execute("SELECT seq FROM experience WHERE at < ? ORDER BY at LIMIT ?", (horizon or -1e18, BATCH))
    gone = [int(str(seq)) for (seq,) in old]
    if not gone and ((limits.experiences is not None and count > limits.experiences) or over > 0):
        gone = least_useful(_oldest_experiences(connection), count=count, keep=limits.experiences, over=over)
    return _drop_experiences(connection, gone)


def _oldest_experiences(connection: Connection) -> list[Judged]:
    cursor = connection.execute(
        f"SELECT seq, bytes, success, count, helped, harmed, lesson, trust = 'trusted' FROM experience "
        f"ORDER BY at LIMIT {WINDOW}"
    )
    return [
        Judged(seq, size, value(None if success is None else bool(success), count, helped, harmed,
                                is_teaching=bool(lesson), is_trusted=bool(trusted)))
        for seq, size, success, count, helped, harmed, lesson, trusted in _rows(cursor)
    ]  # fmt: skip


def _rows(cursor: Any) -> Iterable[tuple[Any, ...]]:
    rows: Iterable[tuple[Any, ...]] = cursor
    return rows


def _drop_experiences(connection: Connection, gone: Sequence[int]) -> int:
    if not gone:
        return 0
    crashpoint("retention.delete")
    connection.execute(f"DELETE FROM experience WHERE seq IN ({', '.join(map(str, gone))})")
    return connection.changes()


def fit(connection: Connection, limits: RetentionLimits, now: float, live: Collection[str] | None = None) -> int:
    """Delete one batch where the file takes more than it may: of what takes most, cycles, experiences, entries of
    transcripts or facts, the oldest; how many rows went. What is open, and the newest of each, stays."""
    if limits.file_bytes is None or used(connection) <= limits.file_bytes:
        return 0
    sizes = {kind: _held(connection, kind)[1] for kind in ("cycle", "experience", "transcript")}
    sizes["cycle"] += pieces.held(connection)
    facts = integer(connection, "SELECT count(*) FROM fact")
    sizes["fact"] = facts * _ABOUT_A_FACT
    for kind in sorted(sizes, key=sizes.__getitem__, reverse=True):
        if gone := _drop_some(connection, kind, limits, now, live, facts):
            return gone
    return 0


def _drop_some(
    connection: Connection, kind: str, limits: RetentionLimits, now: float, live: Collection[str] | None, facts: int
) -> int:
    count = facts if kind == "fact" else _held(connection, kind)[0]
    if count <= NEWEST:
        return 0
    most = min(BATCH, count - NEWEST)
    if kind == "experience":
        chosen = least_useful(_oldest_experiences(connection), count=count, keep=count - most, over=0)
        return _drop_experiences(connection, chosen)
    if kind == "fact":
        fewer = RetentionLimits(None, None, None, None, None, max(NEWEST, facts - FACTS))
        return trim_facts(connection, fewer, now, live)
    if kind == "cycle":
        counts.fold(connection, is_all=True)
    crashpoint("retention.delete")
    order = "started_at" if kind == "cycle" else "seq"
    connection.execute(f"DELETE FROM {kind} WHERE seq IN (SELECT seq FROM {kind} ORDER BY {order} LIMIT ?)", (most,))
    gone = connection.changes()
    return gone + (pieces.trim(connection) if kind == "cycle" else 0)


def used(connection: Connection) -> int:
    """Return the bytes of the file that hold something."""
    pages, free, size = (
        integer(connection, f"PRAGMA {name}") for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size


def trim_facts(connection: Connection, limits: RetentionLimits, now: float, live: Collection[str] | None = None) -> int:
    """Delete one batch of the oldest facts, as far as they are due; returns how many. The last one always stays.

    Only a beginning of the chain can go, so the first fact of a cycle that is still open keeps all after it too; not so
    of agents that are not `live` (None: all are), for whose cycles what the facts say is kept in another place.
    """
    first, last = (integer(connection, f"SELECT {which}(seq) FROM fact") for which in ("min", "max"))
    horizon = now - limits.fact_days * _DAY if limits.fact_days is not None else -1e18
    surplus = last - limits.facts if limits.facts is not None else 0
    if not first or not (surplus >= first or _oldest_at(connection, first) < horizon):
        return 0
    end = min(first + FACTS, last)
    is_of_ours = "?2 IS NULL OR agent = '' OR agent IN (SELECT value FROM json_each(?2))"
    for stays, binding in (
        ("at >= ?2 AND seq > ?3", (end, horizon, surplus)),
        (
            f"work IN (SELECT id FROM open_cycle WHERE {is_of_ours})",
            (end, None if live is None else orphans.names(live)),
        ),
    ):
        oldest = connection.execute(f"SELECT min(seq) FROM fact WHERE seq < ?1 AND {stays}", binding).get
        end = oldest if isinstance(oldest, int) else end
    if end <= first:
        return 0
    if live is not None:
        try:
            orphans.fold(connection, live, end)
        except ValueError:  # its facts stay, and it is put aside in time
            return 0
    counts.fold(connection, is_all=True)
    crashpoint("retention.delete")
    hash_chain.move_anchor(connection, end - 1)
    connection.execute("DELETE FROM fact WHERE seq < ?", (end,))
    return connection.changes()


def trim_transcripts(connection: Connection, limits: RetentionLimits, now: float) -> int:
    """Delete one batch of the oldest entries of transcripts, as far as they are due; how many rows went."""
    days = limits.transcript_days
    horizon = None if days is None else now - days * _DAY
    count, size = _held(connection, "transcript")
    over = 0 if limits.transcript_bytes is None else max(0, size - limits.transcript_bytes)
    oldest = _oldest(connection, "transcript", "at", "seq")
    number = due(oldest, count=count, keep=limits.transcripts, over=over, horizon=horizon)
    gone = 0
    if number:
        crashpoint("retention.delete")
        connection.execute("DELETE FROM transcript WHERE seq IN (SELECT seq FROM transcript ORDER BY seq LIMIT ?)",
                           (number,))  # fmt: skip
        gone += connection.changes()
    connection.execute(
        "DELETE FROM writer WHERE seq IN (SELECT seq FROM writer "
        "WHERE at < ? OR seq <= (SELECT max(seq) FROM writer) - ? ORDER BY seq LIMIT ?)",
        (-1e18 if horizon is None else horizon, _KEPT_WRITERS, BATCH),
    )
    gone += connection.changes()
    return gone + session_rows.trim(connection, -1e18 if horizon is None else horizon)


def tidy(connection: Connection, file_bytes: int | None = None) -> bool:
    """Merge some of the text index and give free pages back; returns whether there is more to do.

    Args: file_bytes: what the file may take; where it takes more, no free pages are kept.
    """
    before = connection.total_changes()
    connection.execute("INSERT INTO experience_text (experience_text, rank) VALUES ('merge', ?)", (_MERGE_PAGES,))
    more = connection.total_changes() - before >= 2  # fewer: there was nothing to merge, says FTS5's manual
    free, pages = (integer(connection, f"PRAGMA {name}") for name in ("freelist_count", "page_count"))
    is_over = file_bytes is not None and pages * integer(connection, "PRAGMA page_size") > file_bytes
    if free > (0 if is_over else max(_VACUUM_PAGES, pages // 4)):  # some are kept: they will be needed again
        connection.execute(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})").fetchall()  # reading it makes it run
        more = more or integer(connection, "PRAGMA freelist_count") < free
    return more


def _held(connection: Connection, kind: str) -> tuple[int, int]:
    [(count, size)] = connection.execute(f"SELECT count(*), total(bytes) FROM {kind}")
    return int(str(count)), int(float(str(size)))


def _oldest(connection: Connection, table: str, at: str, order: str) -> list[tuple[float, int]]:
    """Return time and bytes of the first rows of a table that may go at once."""
    oldest = connection.execute(f"SELECT {at}, bytes FROM {table} ORDER BY {order} LIMIT {BATCH}")
    return [(float(str(when)), int(str(size))) for when, size in oldest]


def _oldest_at(connection: Connection, seq: int) -> float:
    return float(str(connection.execute("SELECT at FROM fact WHERE seq = ?", (seq,)).get))
