"""Statements on the rows of nodes, partitions and resources, and on the requests between nodes.

Commits of all nodes, and all changes of owners, are serialised by one row of the database (`LOCK`): the facts are one
chain. All times are of the database's clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import psycopg

from memory.codec import safe
from memory.engine.own_keys import EPOCH, FENCE, FENCES, SAVE, first_fence
from memory.engine.transactions import Statement
from memory.postgres import schema
from memory.postgres.cluster.decisions import LOSSES, LOST_WITHIN, TTL, Node, Partition, View, format_of, format_step
from spar.errors import ConfigError
from spar.ports.nodes import NodeRequest, NodeRow

if TYPE_CHECKING:
    from memory.engine.connection import Connection
    from memory.postgres.connection import PostgresConnection, PostgresRows

_NOW: Final = "extract(epoch FROM clock_timestamp())::float8"
LOCK: Final = f"SELECT 1 FROM state WHERE key = '{EPOCH}' FOR UPDATE"
#: End who holds the lock and lets the server wait, also in a pipeline, where no timeout of the server ends it.
_END_HOLDER: Final = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity JOIN pg_locks USING (pid) "
    f"WHERE locktype = 'transactionid' AND granted AND transactionid = (SELECT xmax FROM state WHERE key = '{EPOCH}') "
    "AND wait_event = 'ClientRead' AND query_start < clock_timestamp() - interval '1 second'"
)
_IS_CONNECTED: Final = (
    "EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = node.backend "
    "AND extract(epoch FROM a.backend_start)::float8 = node.backend_start)"
)
_LIVE: Final = f"SELECT token FROM node WHERE until > {_NOW} AND {_IS_CONNECTED}"
_JOIN: Final = (
    "INSERT INTO node (token, name, version, agent, lowest, highest, format, since, until, backend, backend_start) "
    f"SELECT ?, ?, ?, ?, ?, ?, ?, {_NOW}, {_NOW} + {TTL}, pid, extract(epoch FROM backend_start)::float8 "
    "FROM pg_stat_activity WHERE pid = pg_backend_pid()"
)
_RENEW: Final = f"UPDATE node SET until = {_NOW} + {TTL}, format = ? WHERE token = ? AND until > {_NOW}"
_VIEW: Final = (
    f"SELECT {_NOW}, (SELECT json_agg(json_build_array(token, until, is_draining = 1, {_IS_CONNECTED}, highest, "
    "format)) FROM node), (SELECT array_agg(owner ORDER BY id) FROM partition), "
    "(SELECT array_agg(number) FROM spar_format)"
)
#: No owner changes between this and the commit: who takes a partition waits for `LOCK` first. Locks of the rows as well
#: (FOR SHARE) would be written to the log of the server each time: 64 sessions had 0.6 times the cycles, not 0.8.
_HELD: Final = "SELECT json_agg(json_build_array(id, epoch)) FROM partition WHERE id = ANY(?1) AND owner = ?2"
#: A transaction that holds the row of its node holds off the deletion of that row, but no renewal of it.
_BEGIN: Final = (
    "SELECT pg_current_xact_id()::text, newest.seq, newest.link, "
    f"({_HELD}) FROM node "
    "LEFT JOIN (SELECT seq, link FROM fact ORDER BY seq DESC LIMIT 1) AS newest ON true "
    f"WHERE token = ?2 AND until > {_NOW} FOR KEY SHARE OF node"
)
#: Beginning of a transaction that only looks: nobody waits for it before it takes the lock.
_LOOK: Final = (
    "SELECT pg_current_xact_id()::text, newest.seq, newest.link FROM (SELECT 1) AS one "
    "LEFT JOIN (SELECT seq, link FROM fact ORDER BY seq DESC LIMIT 1) AS newest ON true"
)
#: Error (a division by zero) unless the lease is valid, its node owns all of some partitions, and there is a fact.
_DEMAND: Final = (
    f"SELECT 1 / count(*) FROM (SELECT FROM node WHERE token = ?1 AND until > {_NOW} FOR KEY SHARE) AS own "
    "WHERE EXISTS (SELECT FROM fact) AND cardinality(CAST(?2 AS int[])) = (SELECT count(*) FROM partition "
    "JOIN unnest(CAST(?2 AS int[]), CAST(?3 AS bigint[])) AS wanted (id, epoch) USING (id, epoch) WHERE owner = ?1)"
)
_TAKE: Final = (
    "UPDATE partition SET owner = ?1, epoch = epoch + 1, "
    f"losses = CASE WHEN lost_at < {_NOW} - {LOST_WITHIN} THEN 0 ELSE losses END + (owner IS NOT NULL)::int, "
    f"lost_at = CASE WHEN owner IS NULL THEN lost_at ELSE {_NOW} END WHERE id = ANY(?2) "
    f"AND (owner IS NULL OR owner NOT IN ({_LIVE})) AND ?1 IN ({_LIVE}) "
    f"RETURNING id, epoch, CASE WHEN losses < {LOSSES} THEN 0 ELSE lost_at + {LOST_WITHIN} - {_NOW} END"
)
_FIRSTS: Final = (
    "SELECT seq FROM resource mine WHERE token = ? AND NOT EXISTS (SELECT FROM resource other "
    "WHERE other.agent = mine.agent AND other.name = mine.name AND other.seq < mine.seq "
    f"AND other.token IN ({_LIVE}))"
)
_FREE: Final = "UPDATE partition SET owner = NULL WHERE owner = ?"
_ALL_NODES: Final = (
    f"SELECT token, name, version, since, until - {_NOW}, is_draining, {_IS_CONNECTED}, "
    "(SELECT count(*) FROM partition WHERE owner = token), lowest, highest, format FROM node ORDER BY name, token"
)


class Taken(NamedTuple):
    """Partitions that a node has taken, with their epochs.

    The fences of the node begin above `fence` now. `suspect` are the partitions that have lost their owners too often,
    and the seconds for which that counts.
    """

    epochs: Mapping[int, int]
    fence: int
    suspect: Mapping[int, float]


def create(connection: PostgresConnection, name: str) -> None:
    """Create the tables if there are none, and add what the formats of this release need; called in a transaction, by
    one process at a time.

    Raises: ConfigError if live nodes hold the database in a format that is too low for this release.
    """
    # Locked in the order of those who commit; who reads a table keeps it from being changed.
    connection.execute(f"{LOCK}; SET LOCAL lock_timeout = '1s'")
    connection.execute(Path(__file__).with_name("cluster.sql").read_text("utf-8"))
    alone = connection.execute(f"SELECT NOT EXISTS ({_LIVE})").get
    (schema.migrate if alone else schema.prepare)(connection)
    present = schema.present_formats(connection)[-1]
    if not format_of([present], *schema.known()):
        raise ConfigError(
            f"{name} has the older format {present}, and other nodes work in it; known here is {schema.known()}: "
            "upgrade them to a version between first, or stop them (spar nodes list)",
            path=("url",),
        )


class Begun(NamedTuple):
    """Transaction of a node: its number, number and link of the newest fact if there is one, and those of the wanted
    partitions, with their epochs, that the node owns; nobody takes them before the commit."""

    xid: str
    newest: tuple[int, bytes] | None
    held: set[tuple[int, int]]


def beginning(token: str, wanted: Iterable[tuple[int, int]]) -> Sequence[Statement]:
    """Return the statements with which a transaction of a node begins. Args: wanted: partitions with their epochs."""
    return ("BEGIN", ()), (LOCK, ()), (_BEGIN, (_ids(wanted), token))


def begun(answer: PostgresRows) -> Begun | None:
    """Return what the statements have answered; None if the lease of the node is over."""
    row = answer.fetchone()
    if row is None:
        return None
    number, seq, link, mine = row
    return Begun(number, None if seq is None else (seq, bytes(link)), _shares(mine))


def looking() -> Sequence[Statement]:
    """Return the statements with which a transaction begins that takes the lock later, with `demands`."""
    return ("BEGIN", ()), (_LOOK, ())


def looked(answer: PostgresRows) -> tuple[str, tuple[int, bytes] | None]:
    """Return the transaction's number, and number and link of the newest fact at that time if there is one."""
    number, seq, link = answer.fetchone()
    return number, None if seq is None else (seq, bytes(link))


def demands(token: str, wanted: Iterable[tuple[int, int]], answers: Mapping[Statement, str]) -> list[Statement]:
    """Return the statements that take the lock, and fail with `psycopg.errors.DivisionByZero` unless the lease is
    valid, the node owns all wanted partitions, and what was asked before (`as_text`) still has the same answers."""
    ids, epochs = zip(*wanted, strict=True) if wanted else ((), ())
    same = [
        (
            f"SELECT 1 / (ARRAY(SELECT answer::text FROM ({sql}) AS answer)::text = CAST(? AS text))::int",
            (*given, answer),
        )
        for (sql, given), answer in answers.items()
    ]
    return [(LOCK, ()), (_DEMAND, (token, list(ids), list(epochs))), *same]


def as_text(question: Statement) -> Statement:
    """Return the question for the text of the rows that another one returns."""
    sql, given = question
    return f"SELECT ARRAY(SELECT answer::text FROM ({sql}) AS answer)::text", given


def held(connection: PostgresConnection, token: str, wanted: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
    """Return those partitions, with their epochs, that a node still owns; nobody takes them before the commit."""
    return _shares(connection.execute(_HELD, (_ids(wanted), token)).get)


def _shares(pairs: Iterable[tuple[int, int]] | None) -> set[tuple[int, int]]:
    return {(int(id), int(epoch)) for id, epoch in pairs or ()}


def _ids(shares: Iterable[tuple[int, int]]) -> list[int]:
    return sorted({id for id, _ in shares})


@contextmanager
def _locked(connection: PostgresConnection, milliseconds: int = 1_000) -> Iterator[None]:
    """Let a transaction hold off all commits. Args: milliseconds: for which it waits for a lock."""
    try:
        connection.execute(f"BEGIN; SET LOCAL lock_timeout = {milliseconds}; {LOCK}")
        yield
        connection.execute("COMMIT")
    except BaseException as error:
        if not connection.is_lost:
            connection.execute("ROLLBACK")
            if isinstance(error, psycopg.errors.LockNotAvailable):
                connection.execute(_END_HOLDER)
        raise


def join(connection: PostgresConnection, token: str, name: str, version: str, agent: str, known: schema.Formats) -> int:
    """Begin the lease of a node, whose connection this is. Return the format in which it writes, or 0.

    The format does not rise meanwhile, so that no live node is without knowledge of it unless it has 0 there.
    """
    with _locked(connection):
        format = format_of(schema.present_formats(connection), *known)
        connection.execute(_JOIN, (token, name, version, agent, *known, format))
    return format


def work_for(connection: Connection, token: str, agent: str) -> tuple[str, str] | None:
    """Note for which agent a node works. Return a live one that works for another one, and for which."""
    other = connection.execute(
        f"SELECT name, agent FROM node WHERE agent NOT IN ('', ?) AND token IN ({_LIVE}) LIMIT 1", (agent,)
    ).fetchone()
    if other is None:
        connection.execute("UPDATE node SET agent = ? WHERE token = ?", (agent, token))
    return other  # type: ignore[no-any-return]


def renew(connection: PostgresConnection, token: str, format: int) -> bool:
    """Renew the lease of a node, and say in which format it writes. Return whether the lease was not over."""
    connection.execute(_RENEW, (format, token))
    return connection.changes() == 1


def change_format(connection: PostgresConnection) -> None:
    """Let the next format be in force, or remove the former one, if that is still what comes next."""
    with _locked(connection, 200):  # all commits wait meanwhile
        step = format_step(view(connection))
        if step == "rise":
            schema.rise(connection)
        elif step == "remove":
            schema.remove_former(connection)


def view(connection: PostgresConnection) -> View:
    """Return all nodes and the owners of all partitions."""
    now, nodes, owners, formats = connection.execute(_VIEW).fetchone()
    rows = [Node(*row) for row in nodes or ()]
    partitions = tuple(Partition(id, owner) for id, owner in enumerate(owners))
    return View(now, {node.token: node for node in rows}, partitions, tuple(formats))


def take(connection: PostgresConnection, token: str, ids: Iterable[int]) -> Taken:
    """Take the partitions that are free, and delete the rows of nodes that are gone."""
    with _locked(connection):
        taken = list(connection.execute(_TAKE, (token, sorted(ids))))
        connection.execute(f"DELETE FROM node WHERE until < {_NOW} OR NOT {_IS_CONNECTED}")
        connection.execute("DELETE FROM inbox WHERE answer IS NOT NULL AND asker NOT IN (SELECT token FROM node)")
        fence = next_fence(connection)
    epochs = {int(id): int(epoch) for id, epoch, _ in taken}
    return Taken(epochs, fence, {int(id): float(left) for id, _, left in taken if left > 0})


def next_fence(connection: PostgresConnection, epoch: int = 0) -> int:
    """Reserve fences. Return the number above which they begin: all that were reserved before are lower."""
    stored = connection.execute("SELECT value FROM state WHERE key = ?", (FENCE,)).get
    fence = first_fence(int(stored or 0), epoch)
    connection.execute(SAVE, (FENCE, str(fence + FENCES)))
    return fence


def release(connection: PostgresConnection, token: str, ids: Iterable[int]) -> None:
    """Give partitions up, for others to take."""
    connection.execute("UPDATE partition SET owner = NULL WHERE owner = ? AND id = ANY(?)", (token, sorted(ids)))


def leave(connection: PostgresConnection, token: str) -> None:
    """End the lease of a node, and give up all that it owns."""
    connection.execute(_FREE, (token,))
    connection.execute("DELETE FROM node WHERE token = ?", (token,))


def post(connection: Connection, request: NodeRequest, asker: str | None = None) -> int:
    """Add a request for the owner of a partition. Return its number. Args: asker: the node that waits for an answer."""
    sql = "INSERT INTO inbox (partition, agent, kind, body, asker) VALUES (?, ?, ?, ?, ?) RETURNING seq"
    return int(connection.execute(sql, (request.partition, request.agent, request.kind, request.body, asker)).get)


def answer(connection: PostgresConnection, seq: int, text: str) -> str | None:
    """Answer a request for the node that waits for that, and return it; delete the request if that node is gone."""
    sql = "UPDATE inbox SET answer = ? WHERE seq = ? AND asker IN (SELECT token FROM node) RETURNING asker"
    asker: str | None = connection.execute(sql, (text, seq)).get
    connection.execute("DELETE FROM inbox WHERE seq = ? AND answer IS NULL", (seq,))
    return asker


def answer_of(connection: Connection, seq: int) -> str | None:
    """Return the answer to a request: "" while there is none, None when the request is gone."""
    row = connection.execute("SELECT coalesce(answer, '') FROM inbox WHERE seq = ?", (seq,)).fetchone()
    return None if row is None else str(row[0])


def ask_no_more(connection: PostgresConnection, seq: int) -> None:
    """Note that nobody waits for the answer to a request any more; it is carried out all the same."""
    connection.execute("DELETE FROM inbox WHERE seq = ? AND answer IS NOT NULL", (seq,))
    connection.execute("UPDATE inbox SET asker = NULL WHERE seq = ?", (seq,))


def session_of(connection: Connection, agent: str, id: str) -> str | None:
    """Return the session of a piece of accepted work or of a recorded cycle; None for another id."""
    sql = "SELECT session FROM item WHERE agent = ?1 AND id = ?2 UNION ALL SELECT session FROM cycle WHERE id = ?2"
    row = connection.execute(sql, (safe(agent), safe(id))).fetchone()
    return None if row is None else str(row[0])


def requests(
    connection: PostgresConnection, ids: Iterable[int], seen: Iterable[int], most: int = 100
) -> list[NodeRequest]:
    """Return the requests for some partitions but those that were seen before, the oldest first."""
    sql = (
        "SELECT partition, agent, kind, body, seq, asker IS NOT NULL FROM inbox "
        "WHERE partition = ANY(?) AND answer IS NULL AND seq <> ALL(?) ORDER BY seq LIMIT ?"
    )
    return [
        NodeRequest(partition, agent, kind, body, seq, bool(is_asked))
        for partition, agent, kind, body, seq, is_asked in connection.execute(sql, (sorted(ids), list(seen), most))
    ]


def drop_requests(connection: PostgresConnection, seqs: Iterable[int]) -> None:
    """Delete requests that were dealt with."""
    connection.execute("DELETE FROM inbox WHERE seq = ANY(?)", (sorted(seqs),))


def ask_for(connection: Connection, token: str, agent: str, name: str) -> tuple[int, bool]:
    """Ask for a resource, in a transaction of a node. Return the number of the row, and whether the node has it."""
    bindings = safe(agent), safe(name), token
    sql = "INSERT INTO resource (agent, name, token) VALUES (?, ?, ?) RETURNING seq"
    seq = int(connection.execute(sql, bindings).get)
    return seq, seq in firsts(connection, token)


def firsts(connection: Connection, token: str) -> list[int]:
    """Return the numbers of the rows of a node that are the first ones of their resources."""
    return [int(row[0]) for row in connection.execute(_FIRSTS, (token,))]


def resources(connection: Connection, agent: str) -> list[str]:
    """Return the names of the resources that live nodes have or wait for."""
    sql = f"SELECT DISTINCT name FROM resource WHERE agent = ? AND token IN ({_LIVE})"
    return [str(row[0]) for row in connection.execute(sql, (safe(agent),))]


def release_resource(connection: PostgresConnection, seq: int) -> str | None:
    """Give a resource up. Return the token of a node that waits for it; None for none."""
    row = connection.execute("DELETE FROM resource WHERE seq = ? RETURNING agent, name", (seq,)).fetchone()
    sql = "SELECT token FROM resource WHERE agent = ? AND name = ? ORDER BY seq LIMIT 1"
    waiting = None if row is None else connection.execute(sql, tuple(row)).get
    return None if waiting is None else str(waiting)


def nodes(connection: Connection) -> list[NodeRow]:
    """Return all nodes."""
    return [
        NodeRow(token, name, version, since, max(0.0, left), bool(drains), left > 0 and is_there, partitions, *formats)
        for token, name, version, since, left, drains, is_there, partitions, *formats in connection.execute(_ALL_NODES)
    ]


def drain(connection: Connection, token: str, *, is_draining: bool) -> bool:
    """Let a node own nothing any more, or let it own again. Return whether there is such a node."""
    connection.execute("UPDATE node SET is_draining = ? WHERE token = ?", (is_draining, token))
    return connection.changes() == 1
