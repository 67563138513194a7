"""Open cycles of agents that no longer exist: they were renamed, or removed from the configuration.

No agent continues these cycles, and their facts must not be kept for ever. When the facts are old enough to be deleted,
`fold` first copies their content into the row of the open cycle, so that the agent can still continue if it comes back.
If it stays away, `bury` puts the cycle and its items aside as dead letters of an agent that exists.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from memory import events
from memory.codec import decode, encode, safe, sealed, seconds
from memory.journal import queries, statements
from spar.records.journal import DeadLetter, Item, Unfinished
from spar.types import Perception

if TYPE_CHECKING:
    from memory.engine.connection import Connection

#: Seconds after the opening of the file; an agent that has not used the journal by then counts as gone.
AFTER = 3_600.0
#: Most bytes of a row that `fold` or `bury` writes.
MOST_BYTES = 64 << 20
_PUT_LETTER = (
    "INSERT INTO item (id, agent, session, kind, at, attempts, state, body) VALUES (?, ?, ?, ?, ?, ?, 'dead', ?) "
    "ON CONFLICT (id) DO UPDATE SET agent = excluded.agent, state = excluded.state, body = excluded.body "
    "WHERE item.state = 'waiting'"
)


def marks(live: Collection[str]) -> str:
    """Return the list in a statement that holds the agents' names; no agent has the name ""."""
    return f"({', '.join('?' * len(live))})" if live else "('')"


def _of_others(connection: Connection, live: Collection[str], where: str = "true", *bindings: Any) -> list[Any]:
    """Return id, agent and body of the open cycles of other agents."""
    others = f"agent NOT IN {marks(live)} AND agent <> '' AND {where}"
    sql = f"SELECT id, agent, body FROM open_cycle WHERE {others} ORDER BY id"
    return statements.rows(connection, sql, *map(safe, sorted(live)), *bindings)


def fold(connection: Connection, live: Collection[str], end: int) -> None:
    """Copy the facts before number `end` of cycles of other agents into the rows of these cycles.

    The facts may then be deleted. `live` are the names of the agents that exist.
    Raises: ValueError for a cycle that cannot be read or is too large; its facts must then not be deleted.
    """
    has_facts = "EXISTS (SELECT 1 FROM fact WHERE work = open_cycle.id AND seq < ?)"
    for id, _, body in _of_others(connection, live, has_facts, end):
        cycle = queries.with_calls(connection, decode(str(body), Unfinished))
        text = sealed(encode(cycle, exact=True, limit=MOST_BYTES))
        connection.execute("UPDATE open_cycle SET body = ? WHERE id = ?", (text, id))


def bury(connection: Connection, live: Collection[str], now: float) -> list[str]:
    """Put the open cycles of other agents aside as dead letters of one of the `live` agents.

    `now` is in seconds since 1970. Return a sentence for people about each of these cycles.
    """
    messages, heir, at = list[str](), safe(sorted(live)[0]), datetime.fromtimestamp(now, UTC)
    for id, agent, body in _of_others(connection, live):
        reason = f"its agent {str(agent)!r:.100} is gone: it was not started again"
        cycle = Unfinished(str(id), "main")
        try:
            cycle = queries.with_calls(connection, decode(str(body), Unfinished))
        except (ValueError, TypeError, KeyError) as error:
            reason += f"; what it did cannot be read ({error})"
        reason += _state_of(cycle)
        ids = [item_id for item_id in (*cycle.items, cycle.run_id) if item_id]
        perception = cycle.perceptions[0] if cycle.perceptions else Perception(f"cycle {id} of agent {agent}")
        alone = Item(str(id), perception, session=cycle.session, at=at, attempts=cycle.attempts)
        for item in (ids and queries.items(connection, str(agent), [], ids)) or [alone]:
            letter = sealed(encode(DeadLetter(item.id, item, at, reason), limit=MOST_BYTES))
            row = (safe(item.id), heir, safe(item.session), item.kind, seconds(item.at), item.attempts, letter)
            connection.execute(_PUT_LETTER, row)
        connection.execute(statements.CLOSE, (id,))
        events.append(connection, [(now, str(id), "", "dead", encode({"reason": reason, "attempts": cycle.attempts}))])
        messages.append(f"cycle {id} is put aside as a dead letter of {heir!r}: {reason}")
    return messages


def _state_of(cycle: Unfinished) -> str:
    """Return the end of a sentence: which calls of a cycle ended, and how many had not begun."""
    if cycle.action is None:
        return "; nothing had been decided"
    ends = [f"{result.call.tool} {result.status}" for result in cycle.known]
    open_calls = len(cycle.action.calls) - len(ends)
    return f"; of its calls: {', '.join(ends[:20]) or 'none ended'}{f', {open_calls} not begun' if open_calls else ''}"
