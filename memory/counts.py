"""Counts of agents: a row with totals for each agent, and the ends of cycles that are not yet in the totals.

The end of a cycle contains what the cycle adds to the counts of its agent: in the fact of kind `closed`, or in the row
of the cycle log if there is no such fact. The totals are not updated at once, which would be one more row in each
transaction, but in idle time, and always before facts and rows of cycles are deleted. A query adds the ends that are
not in them. Each row of totals says up to which fact and cycle it counts (`upto`); `counted` in the table `state` says
the same for all agents. Facts and cycles that an old release without counts has written add nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from memory import own_rows
from memory.codec import encode, safe, sealed, unsealed
from memory.engine import hash_chain
from memory.engine.own_keys import COUNTED, SAVE
from spar.decoding import decode
from spar.records.journal import count_cycle, merge_counts

if TYPE_CHECKING:
    from memory.engine.connection import Connection

#: Owner, before the agent's name, and key of the small rows.
_OWNER, _KEY = "stats:", "account"
#: Number of facts and cycles that are added up at once, and that must wait before this is done.
BATCH: Final = 1_000


class Place(NamedTuple):
    """Place up to which the counts were added up: the number of a fact and of a row of the cycle log."""

    fact: int = 0
    cycle: int = 0


class ClosedFact(msgspec.Struct):
    """Fields of the fact of a cycle's end that concern counts.

    `took` are the durations of the cycle and its phases in seconds, by name; `besides` are all other counts but the
    outcome.
    """

    outcome: str
    agent: str = ""
    took: dict[str, float] | None = None
    besides: dict[str, Any] | None = None


class LoggedRecord(msgspec.Struct):
    """Fields of the record of a cycle in the cycle log that concern counts."""

    outcome: str
    agent: str
    duration: float
    phases: dict[str, float]


class LoggedEnd(msgspec.Struct):
    """Fields of the body of a row of the cycle log that concern counts.

    `is_end` says that no fact tells of the cycle's end, so that its counts are here.
    """

    record: LoggedRecord
    is_end: bool = False
    besides: dict[str, Any] | None = None


def put(connection: Connection, totals: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """Write the totals of agents. They replace the stored totals and include all ends of cycles written before."""
    upto = _newest(connection)
    for agent, total in totals:
        _write_totals(connection, agent, {**total, "upto": upto})


def of(connection: Connection, agent: str, missed: list[str]) -> dict[str, Any]:
    """Return the totals of an agent, with the ends of cycles that are not yet in its row. A row that cannot be read is
    described in `missed`."""
    total = _totals_of(connection, agent, missed)
    upto = _place(total.pop("upto", None))
    for place, end in _ends(connection, _counted(connection), _newest(connection)):
        if end.agent == agent and _is_after(place, upto):
            _add(total, end)
    return total


def fold(connection: Connection, *, is_all: bool = False) -> int:
    """Add one batch of ends of cycles to the totals of their agents. Return the number of facts and rows it covers.

    Nothing is done while fewer than `BATCH` wait. With `is_all` all that wait are added, however few or many.
    """
    before, newest = _counted(connection), _newest(connection)
    waiting = sum(newest) - sum(before)
    if waiting <= 0 or not (is_all or waiting >= BATCH):
        return 0
    last = newest if is_all else Place(*(min(new, done + BATCH) for new, done in zip(newest, before, strict=True)))
    totals: dict[str, dict[str, Any]] = {}
    for place, end in _ends(connection, before, last):
        if end.agent not in totals:
            totals[end.agent] = _totals_of(connection, end.agent, [])  # each start of the agent tells what is damaged
        if _is_after(place, _place(totals[end.agent].get("upto"))):
            _add(totals[end.agent], end)
    for agent, total in totals.items():
        upto = [max(pair) for pair in zip(last, _place(total.get("upto")), strict=True)]
        _write_totals(connection, agent, {**total, "upto": upto})
    connection.execute(SAVE, (COUNTED, json.dumps(last)))
    return sum(last) - sum(before)


def _ends(connection: Connection, after: Place, upto: Place) -> Iterator[tuple[Place, ClosedFact]]:
    """Return the ends of cycles that contain counts, with their places. A row that cannot be read is left out."""
    facts = "SELECT seq, body FROM fact WHERE seq > ? AND seq <= ? AND kind = 'closed' ORDER BY seq"
    cycles = "SELECT seq, body FROM cycle WHERE seq > ? AND seq <= ? ORDER BY seq"
    for seq, body in list(connection.execute(facts, (after.fact, upto.fact))):
        try:
            end = decode(str(body), ClosedFact)
        except ValueError:
            continue
        if end.took is not None:
            yield Place(fact=int(str(seq))), end
    for seq, body in list(connection.execute(cycles, (after.cycle, upto.cycle))):
        try:
            logged = decode(unsealed(str(body)), LoggedEnd)
        except ValueError:
            continue
        if logged.is_end:
            record = logged.record
            took = {"cycle": record.duration, **record.phases}
            yield Place(cycle=int(str(seq))), ClosedFact(record.outcome, record.agent, took, logged.besides)


def _is_after(place: Place, upto: Place) -> bool:
    return place.fact > upto.fact if place.fact else place.cycle > upto.cycle


def _add(total: dict[str, Any], end: ClosedFact) -> None:
    count_cycle(total, end.outcome, (end.took or {}).items())
    if end.besides is not None:
        merge_counts(total, end.besides)


def _totals_of(connection: Connection, agent: str, missed: list[str]) -> dict[str, Any]:
    total = own_rows.all_of(connection, _OWNER + agent, missed).get(_KEY)
    return total if isinstance(total, dict) else {}


def _write_totals(connection: Connection, agent: str, total: dict[str, Any]) -> None:
    connection.execute(own_rows.KEEP, (safe(_OWNER + agent), _KEY, sealed(encode(total))))


def _newest(connection: Connection) -> Place:
    return Place(hash_chain.newest(connection), hash_chain.integer(connection, "SELECT max(seq) FROM cycle"))


def _counted(connection: Connection) -> Place:
    text = connection.execute("SELECT value FROM state WHERE key = ?", (COUNTED,)).get
    try:
        return _place(json.loads(str(text)))
    except ValueError:
        return Place()


def _place(value: object) -> Place:
    match value:
        case [int(fact), int(cycle)]:
            return Place(fact, cycle)
        case _:
            return Place()
