"""Lease of this node: a thread with a connection of its own renews it, takes partitions and hears of requests.

It renews only while the event loop turns, so that a process that hangs loses its work. Any doubt is a loss: an error, a
renewal that comes too late, a row that is gone. After a loss it begins anew under another token. A node that does not
know the format in force has a row, and no lease: it waits to be replaced.
"""

from __future__ import annotations

import queue
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Final

import psycopg

from memory.engine.writer import first_line
from memory.postgres import schema
from memory.postgres.cluster import rows
from memory.postgres.cluster.decisions import RENEW_EVERY, View, clock_ahead, format_of, format_step, plan
from memory.postgres.cluster.ownership import Ownership, present

if TYPE_CHECKING:
    from memory.postgres.cluster.nodes import ClusterNodes
    from memory.postgres.connection import PostgresConnection

#: Seconds between two looks at the other nodes, and at the requests for this one.
LOOK_EVERY: Final = 0.5
#: Channel on which a node that gives something up wakes the others.
_ALL: Final = "spar_nodes"
_WITHIN: Final = 2_000  # milliseconds for one statement of this connection


class LeaseThread:
    """Holder of the lease of this node, from `start` to `stop`.

    Args: connect: opens a connection; name, version: of this node; listener: called by `call` in the event loop.
    """

    def __init__(
        self, connect: Callable[[], PostgresConnection], name: str, version: str, ownership: Ownership,
        listener: ClusterNodes, call: Callable[..., object],
    ) -> None:  # fmt: skip
        self._connect, self._name, self._version = connect, name, version
        self._ownership, self._listener, self._call = ownership, listener, call
        self._jobs: queue.SimpleQueue[Callable[[PostgresConnection], object]] = queue.SimpleQueue()
        self._ears, self._mouth = socket.socketpair()
        self._mouth.setblocking(False)
        self._is_ended = False
        self._connection: PostgresConnection | None = None
        self._token, self._has_looked, self._known = "", False, schema.known()
        self._beat, self._renewed_at, self._is_ahead = -1, 0.0, False
        self._owners: tuple[str | None, ...] = ()
        self._announced: frozenset[int] = frozenset()
        self._seen: dict[int, int] = {}  # requests that the event loop has, and their partitions
        self._thread = threading.Thread(target=self._run, name="memory-lease", daemon=True)
        self.last_error = self.agent = ""
        self.wants_resources = False  # whether the event loop waits for one

    # -- the event loop's side

    def start(self) -> None:
        self._thread.start()

    def stop(self, within: float) -> None:
        """Give all up and end. Blocks at most `within` seconds."""
        self._is_ended = True
        self._wake()
        self._thread.join(within)

    def release(self, ids: Iterable[int]) -> None:
        """Give partitions up."""
        token, given = self._ownership.token, list(ids)

        def give_up(connection: PostgresConnection) -> None:
            rows.release(connection, token, given)
            _notify(connection, _ALL)

        self._do(give_up)

    def wake_owner(self, partition: int) -> None:
        """Tell the owner of a partition that a request for it is on disk. It would look by itself a little later."""
        self._do(partial(self._notify_owner, partition))

    def drop_requests(self, seqs: Iterable[int]) -> None:
        """Delete requests that were dealt with."""
        given = list(seqs)

        def drop(connection: PostgresConnection) -> None:
            rows.drop_requests(connection, given)
            for seq in given:
                self._seen.pop(seq, None)

        self._do(drop)

    def answer(self, seq: int, text: str) -> None:
        """Answer a request that another node waits for."""

        def give(connection: PostgresConnection) -> None:
            asker = rows.answer(connection, seq, text)
            self._seen.pop(seq, None)
            if asker:
                _notify(connection, _channel(asker), str(seq))

        self._do(give)

    def ask_no_more(self, seq: int) -> None:
        """Note that this node does not wait for the answer to a request any more."""
        self._do(lambda connection: rows.ask_no_more(connection, seq))

    def release_resource(self, seq: int) -> None:
        """Give a resource up, and wake the node that waits for it."""

        def give_up(connection: PostgresConnection) -> None:
            waiting = rows.release_resource(connection, seq)
            if waiting == self._token:
                self._call(self._listener.acquired, rows.firsts(connection, waiting))
            elif waiting is not None:
                _notify(connection, _channel(waiting))

        self._do(give_up)

    def _do(self, job: Callable[[PostgresConnection], object]) -> None:
        self._jobs.put(job)
        self._wake()

    def _wake(self) -> None:
        with suppress(OSError):  # full: it is awake; or it has ended
            self._mouth.send(b".")

    # -- the thread's side

    def _run(self) -> None:
        try:
            while not self._is_ended:
                try:
                    self._step()
                except Exception as error:  # whatever it is: the lease is lost, and another one begins
                    self._lose()
                    self._has_none(first_line(error))
                    self._sleep(LOOK_EVERY)
            self._leave()
        finally:
            self._ownership.lose(self._token)
            if self._connection is not None:
                self._connection.close()
            self._ears.close()
            self._mouth.close()

    def _step(self) -> None:
        connection = self._connection
        if connection is None:
            self._begin()
            return
        token, now, format = self._token, present(), self._ownership.format
        if format and not self._ownership.is_valid:
            self._lose()
            return
        if now >= self._renewed_at + RENEW_EVERY and self._ownership.beat != self._beat:
            self._beat = self._ownership.beat
            if not rows.renew(connection, token, format):
                self._lose()
                return
            self._renewed_at = now
            if format and not self._ownership.hold(token, now):
                self._lose()
                return
        before = time.time()
        seen = rows.view(connection)
        ahead = clock_ahead(before, seen.now, time.time())
        if ahead and not self._is_ahead:
            self._call(self._listener.is_ahead, ahead)
        self._is_ahead = bool(ahead)
        present_format = format_of(seen.formats, *self._known)
        if bool(format) != bool(present_format):
            self._lose()
            return
        self._ownership.format = present_format
        if format:
            self._change_format(connection, seen)
            self._look(connection, token, seen)
        if not self._has_looked:
            self._has_looked = True
            self._call(self._listener.looked)
        self._work_off(connection)
        self._sleep(LOOK_EVERY)

    def _begin(self) -> None:
        """Begin a lease. Raises: errors of the database."""
        connection = self._connection = self._connect()
        connection.execute(f"SET statement_timeout = {_WITHIN}; SET lock_timeout = {_WITHIN}")
        token, now = token_hex(8), present()
        connection.execute(f'LISTEN {_ALL}; LISTEN "{_channel(token)}"')
        connection.raw.add_notify_handler(lambda notification: self._heard(notification.payload))  # while it works
        self._ownership.format = rows.join(connection, token, self._name, self._version, self.agent, self._known)
        self._token = token
        self._renewed_at, self._announced, self._seen = now, frozenset(), {}
        if not self._ownership.format:
            self._has_none(
                f"the database has the format {schema.present_formats(connection)[-1]}, known here is {self._known}; "
                "upgrade spar on it"
            )
            return
        self._ownership.trouble = ""
        self._ownership.hold(token, now)
        self._call(self._listener.began, token)
        _notify(connection, _ALL)

    def _has_none(self, reason: str) -> None:
        """Say why there is no lease, if it is another reason than before."""
        self.last_error = reason
        if reason != self._ownership.trouble:
            self._ownership.trouble = reason
            self._call(self._listener.has_none, reason)

    @contextmanager
    def _undone(self, connection: PostgresConnection) -> Iterator[None]:
        """Leave a transaction that was undone to the next look: it may have waited for a lock, and costs no lease."""
        try:
            yield
        except psycopg.Error as error:
            if connection.is_lost or connection.in_transaction:
                raise
            self.last_error = first_line(error)

    def _change_format(self, connection: PostgresConnection, seen: View) -> None:
        """Let the next format be in force or remove the former one, if that comes next; else at a later look."""
        if format_step(seen):
            with self._undone(connection):
                rows.change_format(connection)
                _notify(connection, _ALL)

    def _look(self, connection: PostgresConnection, token: str, seen: View) -> None:
        self._owners = tuple(partition.owner for partition in seen.partitions)
        chosen = plan(seen, token)
        if (leaving := frozenset(chosen.hand_over)) != self._announced:
            self._announced = leaving
            self._call(self._listener.leaving, token, leaving)
        mine = [partition.id for partition in seen.partitions if partition.owner == token]
        if chosen.take:
            with self._undone(connection):
                taken = rows.take(connection, token, chosen.take)
                if taken.epochs:
                    self._call(self._listener.gained, token, taken)
                mine += taken.epochs
        owned = frozenset(mine)
        self._seen = {seq: partition for seq, partition in self._seen.items() if partition in owned}
        if requests := rows.requests(connection, mine, self._seen):
            self._seen.update((request.seq, request.partition) for request in requests)
            self._call(self._listener.arrived, token, requests)
        if self.wants_resources:
            self._call(self._listener.acquired, rows.firsts(connection, token))

    def _work_off(self, connection: PostgresConnection) -> None:
        while not self._jobs.empty():
            self._jobs.get()(connection)

    def _notify_owner(self, partition: int, connection: PostgresConnection) -> None:
        owner = self._owners[partition] if self._owners else None
        if owner is not None:
            _notify(connection, _channel(owner))

    def _sleep(self, seconds: float) -> None:
        """Wait for a notification, a job or the next look."""
        connection, ears, poll = self._connection, self._ears.fileno(), select.poll()  # any number of open files
        poll.register(ears, select.POLLIN)
        if connection is not None and not connection.is_lost:
            poll.register(connection.raw.fileno(), select.POLLIN)
        readable = {file for file, _ in poll.poll(seconds * 1000)}
        if ears in readable:
            self._ears.recv(4096)
        if connection is not None and readable - {ears}:
            connection.raw.pgconn.consume_input()  # raises if the server has closed the connection
            while (notification := connection.raw.pgconn.notifies()) is not None:
                self._heard(notification.extra.decode())

    def _heard(self, payload: str) -> None:
        """Note a notification: of an answer, or that there is something to look at."""
        if payload:
            self._call(self._listener.heard, int(payload))
        else:
            self._wake()

    def _lose(self) -> None:
        """End the present lease, and give up what it owns if the database can be reached."""
        token = self._token
        self._token = ""
        self._ownership.lose(token)
        if token:
            self._call(self._listener.lost, token)
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                if token:
                    rows.leave(connection, token)
            connection.close()

    def _leave(self) -> None:
        connection, token = self._connection, self._token
        if connection is None or not token:
            return
        with suppress(psycopg.Error):
            self._work_off(connection)
            rows.leave(connection, token)
            _notify(connection, _ALL)


def _channel(token: str) -> str:
    return f"node_{token}"


def _notify(connection: PostgresConnection, channel: str, payload: str = "") -> None:
    connection.execute("SELECT pg_notify(?, ?)", (channel, payload))
