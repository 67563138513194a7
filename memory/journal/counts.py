"""Counts of agents: a row for each agent, and the facts behind it that tell of more.

The end of a cycle tells what it adds to the counts of its agent; to write that into the row at once would be a row more
in each transaction. It is added up when somebody asks, and in idle time before the facts go. Each row says up to which
fact its agent's counts are in it, and `counted` in the table `state` up to which those of all agents are. The facts of
an earlier release tell of none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from memory import events, own_rows
from memory.codec import encode, safe, sealed
from memory.sqlite import database, hash_chain
from spar.records import counts

if TYPE_CHECKING:
    from apsw import Connection

#: Owners and key of the rows.
_OWNER, _KEY = "stats:", "account"
#: Facts that are added up at once, and how many may wait for that.
BATCH: Final = 1_000


class ClosedFact(msgspec.Struct):
    """Fact of the end of a cycle, as far as counts go: seconds by name, and what was counted besides the cycle."""

    outcome: str
    agent: str = ""
    took: dict[str, float] | None = None
    besides: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(ClosedFact).decode


def put(connection: Connection, given: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """Write what the counts of agents come to, in place of all that was told before."""
    last = hash_chain.newest(connection)
    for agent, total in given:
        _put(connection, agent, {**total, "upto": last})


def of(connection: Connection, agent: str) -> dict[str, Any]:
    """Return what the counts of an agent come to."""
    total = _row(connection, agent)
    after = max(_number(total.pop("upto", 0)), _counted(connection))
    for _, told in _told(connection, after, hash_chain.newest(connection)):
        if told.agent == agent:
            _add(total, told)
    return total


def fold(connection: Connection, upto: int | None = None) -> int:
    """Add what facts tell to the rows of their agents; returns how many facts that were.

    Args: upto: number of the last of them; None: one batch, once that has gathered.
    """
    before = _counted(connection)
    end = before + BATCH if upto is None else upto
    if end <= before or end > hash_chain.newest(connection):
        return 0
    totals: dict[str, dict[str, Any]] = {}
    for seq, told in _told(connection, before, end):
        if told.agent not in totals:
            totals[told.agent] = _row(connection, told.agent)
        total = totals[told.agent]
        if seq > _number(total.get("upto", 0)):
            _add(total, told)
    for agent, total in totals.items():
        _put(connection, agent, {**total, "upto": max(end, _number(total.get("upto", 0)))})
    connection.execute(events.SAVE, (database.COUNTED, str(end)))
    return end - before


def _told(connection: Connection, after: int, upto: int) -> Iterator[tuple[int, ClosedFact]]:
    """Return the facts that tell of counts, with their numbers; what cannot be read tells of none."""
    query = "SELECT seq, CAST(body AS BLOB) FROM fact WHERE seq > ? AND seq <= ? AND kind = 'closed' ORDER BY seq"
    for seq, body in list(connection.execute(query, (after, upto))):
        try:
            told = _decode(body if isinstance(body, bytes) else b"")
        except ValueError:
            continue
        if told.took is not None:
            yield _number(seq), told


def _add(total: dict[str, Any], told: ClosedFact) -> None:
    counts.count(total, told.outcome, (told.took or {}).items())
    if told.besides is not None:
        counts.merge(total, told.besides)


def _row(connection: Connection, agent: str) -> dict[str, Any]:
    found = own_rows.all_of(connection, _OWNER + agent).get(_KEY)
    return found if isinstance(found, dict) else {}


def _put(connection: Connection, agent: str, total: dict[str, Any]) -> None:
    connection.execute(own_rows.KEEP, (safe(_OWNER + agent), _KEY, sealed(encode(total))))


def _counted(connection: Connection) -> int:
    return _number(connection.execute("SELECT value FROM state WHERE key = ?", (database.COUNTED,)).get)


def _number(value: object) -> int:
    return int(str(value)) if str(value).isdigit() else 0
