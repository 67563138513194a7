"""Counts of agents: a row for each agent, and the ends of cycles behind it that tell of more.

The end of a cycle tells what it adds to the counts of its agent, in its fact or, where it left none, on the tape; to
write that into the row at once would be a row more in each transaction. It is added up when somebody asks, and in idle
time before facts and cycles go. Each row says up to which fact and cycle its agent's counts are in it, and `counted` in
the table `state` up to which those of all agents are. What an earlier release wrote tells of none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from memory import own_rows
from memory.codec.columns import safe, sealed, unsealed
from memory.codec.encoding import encode
from memory.journal import statements
from memory.sqlite import hash_chain
from memory.sqlite.database import COUNTED
from spar.records import counts

if TYPE_CHECKING:
    from apsw import Connection

#: Owners and key of the rows.
_OWNER, _KEY = "stats:", "account"
#: Ends that are added up at once, and how many may wait for that.
BATCH: Final = 1_000


class Place(NamedTuple):
    """Place up to which counts were added up: the numbers of a fact and a cycle."""

    fact: int = 0
    cycle: int = 0


class ClosedFact(msgspec.Struct):
    """Fact of the end of a cycle, as far as counts go: seconds by name, and what was counted besides the cycle."""

    outcome: str
    agent: str = ""
    took: dict[str, float] | None = None
    besides: dict[str, Any] | None = None


class TapedRecord(msgspec.Struct):
    """Cycle on the tape, as far as counts go."""

    outcome: str
    agent: str
    duration: float
    phases: dict[str, float]


class TapedEnd(msgspec.Struct):
    """Body of a row of the tape, as far as counts go."""

    record: TapedRecord
    is_end: bool = False
    besides: dict[str, Any] | None = None


_fact = msgspec.json.Decoder(ClosedFact).decode
_tape = msgspec.json.Decoder(TapedEnd).decode


def put(connection: Connection, given: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """Write what the counts of agents come to, in place of all that was told before."""
    upto = _newest(connection)
    for agent, total in given:
        _put(connection, agent, {**total, "upto": upto})


def of(connection: Connection, agent: str) -> dict[str, Any]:
    """Return what the counts of an agent come to."""
    total = _row(connection, agent)
    known = _place(total.pop("upto", None))
    for place, told in _told(connection, _counted(connection), _newest(connection)):
        if told.agent == agent and _is_behind(place, known):
            _add(total, told)
    return total


def fold(connection: Connection, *, is_all: bool = False) -> int:
    """Add one batch of what was told to the rows of the agents, once it has gathered, or all; returns how much that
    was."""
    before, newest = _counted(connection), _newest(connection)
    waiting = sum(newest) - sum(before)
    if waiting <= 0 or not (is_all or waiting >= BATCH):
        return 0
    end = newest if is_all else Place(*(min(last, done + BATCH) for last, done in zip(newest, before, strict=True)))
    totals: dict[str, dict[str, Any]] = {}
    for place, told in _told(connection, before, end):
        if told.agent not in totals:
            totals[told.agent] = _row(connection, told.agent)
        if _is_behind(place, _place(totals[told.agent].get("upto"))):
            _add(totals[told.agent], told)
    for agent, total in totals.items():
        upto = [max(pair) for pair in zip(end, _place(total.get("upto")), strict=True)]
        _put(connection, agent, {**total, "upto": upto})
    connection.execute(statements.SAVE, (COUNTED, json.dumps(end)))
    return sum(end) - sum(before)


def _told(connection: Connection, after: Place, upto: Place) -> Iterator[tuple[Place, ClosedFact]]:
    """Return what tells of counts, each with the number that it has in its table; what cannot be read tells of none."""
    facts = "SELECT seq, body FROM fact WHERE seq > ? AND seq <= ? AND kind = 'closed' ORDER BY seq"
    cycles = "SELECT seq, body FROM cycle WHERE seq > ? AND seq <= ? ORDER BY seq"
    for seq, body in list(connection.execute(facts, (after.fact, upto.fact))):
        try:
            told = _fact(str(body))
        except ValueError:
            continue
        if told.took is not None:
            yield Place(fact=int(str(seq))), told
    for seq, body in list(connection.execute(cycles, (after.cycle, upto.cycle))):
        try:
            taped = _tape(unsealed(str(body)))
        except ValueError:
            continue
        if taped.is_end:
            record = taped.record
            took = {"cycle": record.duration, **record.phases}
            yield Place(cycle=int(str(seq))), ClosedFact(record.outcome, record.agent, took, taped.besides)


def _is_behind(place: Place, known: Place) -> bool:
    return place.fact > known.fact if place.fact else place.cycle > known.cycle


def _add(total: dict[str, Any], told: ClosedFact) -> None:
    counts.count(total, told.outcome, (told.took or {}).items())
    if told.besides is not None:
        counts.merge(total, told.besides)


def _row(connection: Connection, agent: str) -> dict[str, Any]:
    found = own_rows.all_of(connection, _OWNER + agent).get(_KEY)
    return found if isinstance(found, dict) else {}


def _put(connection: Connection, agent: str, total: dict[str, Any]) -> None:
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
