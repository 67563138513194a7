"""Retention by age, number and size, the oldest first; of events only those that no open cycle needs.

`due` is the pure decision; `trim` carries it out in one small transaction on the writer's connection, so that no
other work waits long. When the whole is too large, the tape and the experiences each keep half: neither can crowd the
other out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from memory import pieces
from memory.journal import counts, orphans, session_rows
from memory.sqlite import hash_chain
from memory.sqlite.hash_chain import integer
from spar.failpoints import crashpoint

if TYPE_CHECKING:
    from apsw import Connection

BATCH = 250  # rows deleted at once: some milliseconds
FACTS = 5_000  # of facts, which stand together, more than a group of work brings
_DAY = 86_400.0
#: Rows about which run wrote where, which are kept for as many days as entries; a run that was superseded is known
#: for as long.
_KEPT_WRITERS = 100_000
_TIMES = {"cycle": "started_at", "experience": "at"}
_MERGE_PAGES = 200  # pages of the text index merged at once in idle time; merged, a search costs a fifth
_VACUUM_PAGES = 500


class RetentionLimits(Struct, frozen=True):
    """The limits of what is kept; None means all. `bytes` is about what the rows take in the file, without facts and
    transcripts."""

    days: float | None
    cycles: int | None
    experiences: int | None
    bytes: int | None
    fact_days: float | None = 7
    facts: int | None = 1_000_000
    transcript_days: float | None = 90
    transcripts: int | None = 200_000
    transcript_bytes: int | None = 100 << 20

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


def trim(connection: Connection, limits: RetentionLimits, now: float) -> int:
    """Delete one batch of what is due; returns how many rows went. Writes nothing when nothing is due."""
    held = {kind: _held(connection, kind) for kind in _TIMES}
    sizes = {kind: size for kind, (_, size) in held.items()}
    sizes["cycle"] += pieces.held(connection)
    over = shares(sizes, limits.bytes)
    horizon = None if limits.days is None else now - limits.days * _DAY
    deleted = 0
    for kind, (count, _) in held.items():
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
        found = connection.execute(f"SELECT min(seq) FROM fact WHERE seq < ?1 AND {stays}", binding).get
        end = found if isinstance(found, int) else end
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


def tidy(connection: Connection) -> bool:
    """Merge some of the text index and give free pages back; returns whether there is more to do."""
    before = connection.total_changes()
    connection.execute("INSERT INTO experience_text (experience_text, rank) VALUES ('merge', ?)", (_MERGE_PAGES,))
    more = connection.total_changes() - before >= 2  # fewer: there was nothing to merge, says FTS5's manual
    free, pages = (integer(connection, f"PRAGMA {name}") for name in ("freelist_count", "page_count"))
    if free > max(_VACUUM_PAGES, pages // 4):  # some free pages are kept: they will be needed again
        connection.execute(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})").fetchall()  # reading it makes it run
        more = more or integer(connection, "PRAGMA freelist_count") < free
    return more


def _held(connection: Connection, kind: str) -> tuple[int, int]:
    [(count, size)] = connection.execute(f"SELECT count(*), total(bytes) FROM {kind}")
    return int(str(count)), int(float(str(size)))


def _oldest(connection: Connection, table: str, at: str, order: str) -> list[tuple[float, int]]:
    """Return time and bytes of the first rows of a table that may go at once."""
    found = connection.execute(f"SELECT {at}, bytes FROM {table} ORDER BY {order} LIMIT {BATCH}")
    return [(float(str(when)), int(str(size))) for when, size in found]


def _oldest_at(connection: Connection, seq: int) -> float:
    return float(str(connection.execute("SELECT at FROM fact WHERE seq = ?", (seq,)).get))
