"""Retention: deletes old rows by age, number and size, the oldest first. Facts that an open cycle needs stay.

Of the oldest experiences the least useful are deleted first: an experience that helped stays longer than one that
harmed, and a rare failure with a lesson stays longer than a usual success. Experiences that are too old are always
deleted. `due` only decides which rows are deleted; `trim` deletes them in one small transaction on the writer's
connection, so that other work does not wait long. If cycles and experiences are too large together, each may keep half
of the bytes, so that neither can displace the other.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict

from memory import counts, pieces, sessions
from memory.codec import safe
from memory.engine import hash_chain
from memory.engine.hash_chain import integer
from memory.journal import orphans
from spar.errors import ConfigError
from spar.failpoints import crashpoint
from spar.types import RETIRED_AFTER

if TYPE_CHECKING:
    from memory.engine.connection import Connection

BATCH = 250  # rows deleted at once: takes some milliseconds
FACTS = 5_000  # facts deleted at once: their rows lie together, and a group of work adds fewer
_DAY = 86_400.0
#: Number of the oldest experiences of which the least useful are deleted.
WINDOW = 4 * BATCH
#: A failure that occurred at most `RARE` times is rare. `FLOOR` is added to the value of a rare failure with a lesson,
#: and to the value of a trusted experience.
RARE, FLOOR = 3, 2.0
#: Number of the newest rows of each kind that stay, however large the file is.
NEWEST = 100
_ABOUT_A_FACT = 600  # bytes, estimated
#: Most rows that say which run wrote in which session. They are kept for as many days as transcript entries; for that
#: time a superseded run is refused.
_KEPT_WRITERS = 100_000


class Judged(Struct, frozen=True):
    """Experience that may be deleted: the number of its row, its bytes, its value."""

    seq: int
    bytes: int
    value: float


class RetentionLimits(Struct, frozen=True):
    """Limits of what is kept, by the names of the options of a memory; None means no limit.

    Raises: ConfigError for a limit that is not more than 0.
    """

    keep_days: float | None
    keep_cycles: int | None
    keep_experiences: int | None
    keep_bytes: int | None
    keep_fact_days: float | None = 7
    keep_facts: int | None = 1_000_000
    keep_transcript_days: float | None = 90
    keep_transcripts: int | None = 200_000
    keep_transcript_bytes: int | None = 100 << 20
    max_bytes: int | None = None
    keep_audit_days: float | None = None

    def __post_init__(self) -> None:
        for name, limit in asdict(self).items():
            if limit is not None and not limit > 0:
                raise ConfigError(f"{name} must be more than 0, or left out to keep all, found {limit!r}", path=(name,))


def due(oldest: Sequence[tuple[float, int]], *, count: int, keep: int | None, over: int, horizon: float | None) -> int:
    """Return how many of the oldest rows must be deleted now.

    Args: oldest: `(at, bytes)` of rows, the oldest first; count: the number of all rows; keep: how many may stay;
        over: bytes above the limit; horizon: rows from before this time (seconds since 1970) are deleted.
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
    """Return the bytes of each kind above its share: an equal part of the limit, and what the others leave unused."""
    if limit is None:
        return dict.fromkeys(held, 0)
    total, half = sum(held.values()), limit // len(held)
    return {kind: max(0, size - max(half, limit - (total - size))) for kind, size in held.items()}


def value(success: bool | None, count: int, helped: int, harmed: int, *, is_teaching: bool, is_trusted: bool) -> float:
    """Return the value of keeping an experience, without regard to its age.

    Untrusted sources can cause rare failures at will, so a rare failure counts no more than a trusted experience.
    """
    worth = math.log1p(helped) - math.log1p(harmed) + 0.1 * math.log1p(count)
    is_rare = success is False and count <= RARE and harmed - helped < RETIRED_AFTER
    return worth + FLOOR * (is_rare and is_teaching) + FLOOR * is_trusted


def least_useful(oldest: Sequence[Judged], *, count: int, keep: int | None, over: int) -> list[int]:
    """Return the rows of the experiences to delete because of their number or size, the least useful first.

    Args: oldest: the oldest experiences, the oldest first; count: the number of all experiences; keep: how many may
        stay; over: bytes above the limit.
    """
    gone, freed = list[int](), 0
    for row in sorted(oldest, key=lambda row: row.value):  # rows of equal value stay in the order of age
        if len(gone) >= BATCH or not ((keep is not None and count - len(gone) > keep) or over > freed):
            break
        gone.append(row.seq)
        freed += row.bytes
    return gone


def trim(connection: Connection, limits: RetentionLimits, now: float) -> int:
    """Delete one batch of due cycles and experiences. Return the number of deleted rows. Writes nothing otherwise."""
    cycles, size = _held(connection, "cycle")
    experiences, size_of_experiences = _held(connection, "experience")
    sizes = {"cycle": size + pieces.held(connection), "experience": size_of_experiences}
    over = shares(sizes, limits.keep_bytes)
    horizon = None if limits.keep_days is None else now - limits.keep_days * _DAY
    deleted = _trim_experiences(connection, limits, experiences, over["experience"], horizon)
    rows = _oldest(connection, "cycle", "started_at", "started_at")
    of_rows = math.ceil(over["cycle"] * size / max(sizes["cycle"], 1))  # the rest is freed with the pieces of the rows
    number = due(rows, count=cycles, keep=limits.keep_cycles, over=of_rows, horizon=horizon)
    return deleted + _drop_oldest(connection, "cycle", number)


def _drop_oldest(connection: Connection, kind: str, number: int) -> int:
    """Delete so many of the oldest cycles or transcript entries. Return the number of deleted rows."""
    if not number:
        return 0
    if kind == "cycle":
        counts.fold(connection, is_all=True)
    crashpoint("retention.delete")
    order = "started_at" if kind == "cycle" else "seq"
    connection.execute(f"DELETE FROM {kind} WHERE seq IN (SELECT seq FROM {kind} ORDER BY {order} LIMIT ?)", (number,))
    return connection.changes()


def _trim_experiences(
    connection: Connection, limits: RetentionLimits, count: int, over: int, horizon: float | None
) -> int:
    old = connection.execute("SELECT seq FROM experience WHERE at < ? ORDER BY at LIMIT ?", (horizon or -1e18, BATCH))
    gone = [int(str(seq)) for (seq,) in old]
    if not gone and ((limits.keep_experiences is not None and count > limits.keep_experiences) or over > 0):
        gone = least_useful(_oldest_experiences(connection), count=count, keep=limits.keep_experiences, over=over)
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
    """Delete one batch if the file is larger than its limit. Return the number of deleted rows.

    Deleted are the oldest rows of the largest of cycles, experiences, transcript entries and facts. Facts of open
    cycles and the newest rows of each kind stay.
    """
    if limits.max_bytes is None or connection.bytes_used() <= limits.max_bytes:
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
    return _drop_oldest(connection, kind, most) + (pieces.trim(connection) if kind == "cycle" else 0)


def trim_facts(connection: Connection, limits: RetentionLimits, now: float, live: Collection[str] | None = None) -> int:
    """Delete one batch of the oldest facts that are due. Return the number of deleted facts. The newest always stays.

    Only the beginning of the chain can be deleted, so the first fact of an open cycle keeps all later facts. Open
    cycles of agents that are not `live` do not keep their facts: these are first copied into the rows of the cycles.
    `live` None means that all agents are live.
    """
    first, last = (integer(connection, f"SELECT {which}(seq) FROM fact") for which in ("min", "max"))
    horizon = now - limits.keep_fact_days * _DAY if limits.keep_fact_days is not None else -1e18
    surplus = last - limits.keep_facts if limits.keep_facts is not None else 0
    if not first or not (surplus >= first or _oldest_at(connection, first) < horizon):
        return 0
    end = min(first + FACTS, last)
    ours, agents = ("", ()) if live is None else (f" WHERE agent = '' OR agent IN {orphans.marks(live)}", live)
    for stays, bindings in (
        ("at >= ? AND seq > ?", (horizon, surplus)),
        (f"work IN (SELECT id FROM open_cycle{ours})", tuple(map(safe, sorted(agents)))),
    ):
        oldest = connection.execute(f"SELECT min(seq) FROM fact WHERE seq < ? AND {stays}", (end, *bindings)).get
        end = oldest if isinstance(oldest, int) else end
    if end <= first:
        return 0
    if live is not None:
        try:
            orphans.fold(connection, live, end)
        except ValueError:  # a cycle cannot be copied: its facts stay until the cycle is put aside
            return 0
    counts.fold(connection, is_all=True)
    crashpoint("retention.delete")
    hash_chain.move_anchor(connection, end - 1)
    connection.execute("DELETE FROM fact WHERE seq < ?", (end,))
    return connection.changes()


def trim_transcripts(connection: Connection, limits: RetentionLimits, now: float) -> int:
    """Delete one batch each of due transcript entries, writers and sessions. Return the number of deleted rows."""
    days = limits.keep_transcript_days
    horizon = None if days is None else now - days * _DAY
    count, size = _held(connection, "transcript")
    over = 0 if limits.keep_transcript_bytes is None else max(0, size - limits.keep_transcript_bytes)
    oldest = _oldest(connection, "transcript", "at", "seq")
    number = due(oldest, count=count, keep=limits.keep_transcripts, over=over, horizon=horizon)
    gone = _drop_oldest(connection, "transcript", number)
    connection.execute(
        "DELETE FROM writer WHERE seq IN (SELECT seq FROM writer "
        "WHERE at < ? OR seq <= (SELECT max(seq) FROM writer) - ? ORDER BY seq LIMIT ?)",
        (-1e18 if horizon is None else horizon, _KEPT_WRITERS, BATCH),
    )
    gone += connection.changes()
    return gone + sessions.trim(connection, -1e18 if horizon is None else horizon)


def tidy(connection: Connection, file_bytes: int | None = None) -> bool:
    """Merge a part of the text index and return free pages to the disk. Return whether more work is left.

    Args: file_bytes: the limit of the file; a larger file keeps no free pages.
    """
    has_more = connection.full_text.merge(connection)
    return connection.give_back(file_bytes) or has_more


def _held(connection: Connection, kind: str) -> tuple[int, int]:
    [(count, size)] = connection.execute(f"SELECT count(*), coalesce(sum(bytes), 0) FROM {kind}")
    return int(str(count)), int(str(size))


def _oldest(connection: Connection, table: str, at: str, order: str) -> list[tuple[float, int]]:
    """Return time and bytes of the oldest rows of a table, at most one batch."""
    oldest = connection.execute(f"SELECT {at}, bytes FROM {table} ORDER BY {order} LIMIT {BATCH}")
    return [(float(str(when)), int(str(size))) for when, size in oldest]


def _oldest_at(connection: Connection, seq: int) -> float:
    return float(str(connection.execute("SELECT at FROM fact WHERE seq = ?", (seq,)).get))
