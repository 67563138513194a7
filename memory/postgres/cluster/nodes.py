"""Nodes of one database, as this one sees them: the face of this folder for the memory and for the agent."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from memory.journal.in_flight import InFlightFile
from memory.postgres.cluster import rows
from memory.postgres.cluster.decisions import partition_of
from memory.postgres.cluster.journal import NodeJournal
from memory.postgres.cluster.lease import LeaseThread
from memory.postgres.cluster.ownership import Ownership
from spar.clock import Clock
from spar.errors import ConfigError, SparError, TransientError
from spar.ports.nodes import NodeListener, NodeRequest, NodeRow
from spar.types import Fault

if TYPE_CHECKING:
    from memory.engine.session import DatabaseSession
    from memory.postgres.connection import PostgresConnection

Report = Callable[[Fault], None]

#: Seconds between two turns of the event loop that the lease counts.
_BEAT_EVERY = 0.25
#: Seconds for which an opening waits for its first partitions, and a closing for the end of its lease.
_BEGIN_WITHIN, _END_WITHIN = 10.0, 3.0
#: Seconds between two looks for the answer of another node that nobody has told of, and for all of them.
_LOOK_EVERY, _ANSWERED_WITHIN = 1.0, 60.0


class HeldResource:
    """Exclusive resource of tools that this node has; a call gives it back.

    A node has a resource while its row is the first one of a node that is alive. So the resources of a node that is
    lost are free as soon as its partitions are.
    """

    __slots__ = ("_ownership", "_seq", "_thread", "_token")

    def __init__(self, seq: int, token: str, ownership: Ownership, thread: LeaseThread) -> None:
        self._seq, self._token, self._ownership, self._thread = seq, token, ownership, thread

    @property
    def is_held(self) -> bool:
        """Return whether the lease under which it was acquired is not over."""
        return self._ownership.token == self._token and self._ownership.is_valid

    def __call__(self) -> None:
        self._thread.release_resource(self._seq)


class ClusterNodes:
    """Lease and partitions of this node in the event loop, and requests to the other nodes.

    Args: connect: opens a connection of the lease; report: gets the fault of a node that has no lease, or whose
        clock is off, and None when it has a lease again.
    """

    def __init__(
        self, name: str, connect: Callable[[], PostgresConnection], report: Callable[[Fault | None], None]
    ) -> None:
        self.ownership = Ownership(name)
        self._loop = asyncio.get_running_loop()
        here = f"{socket.gethostname()[:30]}:{os.getpid()}"
        self.thread = LeaseThread(connect, here, version("spar-agent"), self.ownership, self, self._call)
        self.place = ""
        self._acquiring: dict[int, asyncio.Future[None]] = {}  # the resources that this node waits for
        self._report, self._listeners = report, list[NodeListener]()
        self._file: DatabaseSession  # once there is a journal
        self._journal: NodeJournal | None = None
        self._beating: asyncio.TimerHandle | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._has_begun = asyncio.Event()
        self._is_settled, self._is_in_trouble = True, False
        self._taken: dict[int, int] = {}  # partitions that are not in force yet
        self._waiting: list[NodeRequest] = []  # that nobody has listened to yet, or for partitions not in force
        self._asked: dict[int, asyncio.Event] = {}  # requests of this node, set when they are answered

    # -- the memory's side

    async def open(self) -> None:
        """Begin the lease, and take the first partitions if any are free."""
        self._beat()
        self.thread.start()
        try:
            async with asyncio.timeout(_BEGIN_WITHIN):
                await self._has_begun.wait()
        except TimeoutError:
            pass  # the database cannot be reached now: it goes on trying

    async def close(self) -> None:
        """Give all partitions up and end the lease, within some seconds."""
        if self._beating is not None:
            self._beating.cancel()
        await asyncio.to_thread(self.thread.stop, _END_WITHIN)

    def journal(self, file: DatabaseSession, clock: Clock, hand: InFlightFile, report: Report) -> NodeJournal:
        """Return the journal of this node."""
        lost, wake = partial(self._call, self._fenced), self.thread.wake_owner
        self._file = file
        self._journal = NodeJournal(file, clock, hand, report, self.ownership, lost, wake)
        return self._journal

    # -- the lease's side, in the event loop

    def _call(self, function: Callable[..., object], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:  # the loop is closed
            pass

    def _beat(self) -> None:
        ownership = self.ownership
        ownership.beat += 1
        self._beating = self._loop.call_later(_BEAT_EVERY, self._beat)
        if not ownership.is_valid and (ownership.token or ownership.partitions):  # the thread may wait for an answer
            ownership.lose(ownership.token)
            self.lost(ownership.token)

    def began(self, token: str) -> None:
        """Note a new lease, which owns nothing yet, and looks at all requests anew."""
        self._taken, self.ownership.to_leave, self._waiting = {}, frozenset(), []
        self._drop_all()
        self.ownership.begun = token
        if self._is_in_trouble:
            self._is_in_trouble = False
            self._report(None)

    def has_none(self, reason: str) -> None:
        """Note that there is no lease, and why."""
        self._is_in_trouble = True
        self._report(Fault("lease", f"this node has no lease of its database now: {reason}", "memory"))

    def is_ahead(self, seconds: float) -> None:
        """Note that the clock of this machine is ahead of the database's by now, or behind it: less than 0."""
        side = "ahead of" if seconds > 0 else "behind"
        reason = f"the clock of this machine is {abs(seconds):.0f} s {side} that of the database; leases do not go " \
                 "by it, times and periods of budgets do: set it"  # fmt: skip
        self._report(Fault("clock", reason, "memory", retryable=False))

    def gained(self, token: str, taken: rows.Taken) -> None:
        """Note partitions that were taken under a lease; they are in force once all that was lost has ended here."""
        self._taken = {**self._taken, **taken.epochs}
        self.ownership.suspect_for(taken.suspect)
        if self._journal is not None:
            self._journal.raise_fence(taken.fence)
        if token == self.ownership.token and self._is_settled:
            self._use_taken()

    def _use_taken(self) -> None:
        taken, self._taken = self._taken, {}
        self.ownership.partitions = {**self.ownership.partitions, **taken}
        self.ownership.takeovers += len(taken)
        for listener in self._listeners:
            listener.gained()
            if self.ownership.leaving:
                listener.leaving()
        self._pass_on()

    def looked(self) -> None:
        """Note that the first look at the other nodes is over, whatever it gave."""
        self._has_begun.set()

    def lost(self, token: str) -> None:
        """Note that a lease is over."""
        self._taken = {}
        self._drop_all()

    def _drop_all(self) -> None:
        for future in self._acquiring.values():
            if not future.done():
                future.set_exception(self.ownership.error())
        if self.ownership.partitions:
            self._lose(set(self.ownership.partitions))

    def _fenced(self, shares: set[tuple[int, int]]) -> None:
        present_shares = set(self.ownership.partitions.items())
        if gone := {id for id, epoch in shares if (id, epoch) in present_shares}:
            self.ownership.fenced += len(gone)
            self._lose(gone)

    def _lose(self, ids: set[int]) -> None:
        self.ownership.give_up(ids)
        if self._journal is not None:
            self._journal.note_lost(ids)
        self._is_settled = False
        if not self._listeners:
            self.settled()
        for listener in self._listeners:
            listener.lost()

    def leaving(self, token: str, ids: frozenset[int]) -> None:
        """Note the partitions that are to be handed over."""
        if token != self.ownership.token:
            return
        stays, self.ownership.to_leave = self.ownership.to_leave - ids, ids
        if stays & self.ownership.partitions.keys():  # work for these may have come meanwhile, and waits
            for listener in self._listeners:
                listener.gained()
        if not self._listeners:
            self._leaving = self._loop.create_task(self._leave_unheard())
        for listener in self._listeners:
            listener.leaving()

    async def _leave_unheard(self) -> None:
        """Hand over what is to be handed over of a memory without an agent, once all that was written is safe."""
        with suppress(SparError):  # the lease is over, or the memory is closed
            while self._journal is not None and not self._journal.is_safe:
                await self._journal.safe()
            self.hand_over()

    def arrived(self, token: str, requests: list[NodeRequest]) -> None:
        """Note requests of other nodes."""
        self._waiting += requests
        self._pass_on()

    def _pass_on(self) -> None:
        """Pass requests on, but those for partitions that are not in force yet, and all while nobody listens."""
        waiting, self._waiting = self._waiting, []
        ready: list[NodeRequest] = []
        for request in waiting:
            is_early = not self._listeners or request.partition in self._taken
            (self._waiting if is_early else ready).append(request)
        for listener in self._listeners if ready else ():
            listener.arrived(ready)

    def heard(self, seq: int) -> None:
        """Note that a request of this node was answered."""
        if (has_news := self._asked.get(seq)) is not None:
            has_news.set()

    def acquired(self, seqs: list[int]) -> None:
        """Note the rows of this node that are the first ones of their resources."""
        for seq in seqs:
            if (future := self._acquiring.get(seq)) is not None and not future.done():
                future.set_result(None)

    # -- the agent's side

    def owns(self, agent: str, session: str) -> bool:
        """Return whether this node may work on a session now."""
        return self.ownership.share_of(agent, session) is not None

    def since_now(self, agent: str) -> Callable[[str], bool]:
        """Return a function that returns whether this node has owned a session without a break since this call."""
        ownership, then = self.ownership, self.ownership.partitions

        def has_owned(session: str) -> bool:
            share = ownership.share_of(agent, session)
            return share is not None and then.get(share[0]) == share[1]

        return has_owned

    def may_begin(self, agent: str, session: str) -> bool:
        """Return whether this node may begin a cycle of a session."""
        share = self.ownership.share_of(agent, session)
        return share is not None and share[0] not in self.ownership.to_leave

    def is_suspect(self, agent: str, session: str) -> bool:
        """Return whether work of a session may have ended several nodes."""
        return self.ownership.is_suspect(partition_of(agent, session))

    async def work_for(self, agent: str) -> None:
        """Note for which agent this node works. Raises: ConfigError while nodes work for another one; SparError."""
        self.thread.agent = agent
        other = await self._file.commit(partial(rows.work_for, token=self.ownership.token, agent=agent))
        if other is not None:
            raise ConfigError(
                f"the node {other[0]} works for the agent {other[1]!r} on this database: give the agent {agent!r} a "
                "database of its own (memory.url), or the same name (agent.name)",
                path=("memory", "url"),
            )

    def listen(self, listener: NodeListener) -> Callable[[], None]:
        """Have a listener called. Return a function that ends that."""
        self._listeners.append(listener)
        self._loop.call_soon(self._pass_on)
        return partial(self._ignore, listener)

    def _ignore(self, listener: NodeListener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    def settled(self) -> None:
        """Note that the work of all lost sessions has ended here: calls may begin again."""
        self._is_settled = True
        if self._journal is not None:
            self._journal.settled()
        if self._taken and self.ownership.token:
            self._use_taken()

    def hand_over(self, agent: str = "", busy: Collection[str] = ()) -> None:
        """Give up the sessions that are to be handed over, but those that are busy."""
        stay = {partition_of(agent, session) for session in busy}
        ids = self.ownership.leaving - stay
        self.ownership.give_up(ids)
        if ids:
            self.thread.release(ids)

    def epoch_of(self, agent: str, session: str) -> int:
        """Return how often a session has come to another node, as this one knows it; 0 for one that it does not own."""
        share = self.ownership.share_of(agent, session)
        return 0 if share is None else share[1]

    async def post(self, agent: str, session: str, kind: str, body: str) -> None:
        """Send a request to the owner of a session. Raises: SparError."""
        await self._post(NodeRequest(partition_of(agent, session), agent, kind, body), None)

    async def ask(self, agent: str, session: str, kind: str, body: str) -> str:
        """Send a request to the owner of a session, and return its answer. Raises: SparError."""
        seq = await self._post(NodeRequest(partition_of(agent, session), agent, kind, body), self.ownership.token)
        text, has_news = "", self._asked.setdefault(seq, asyncio.Event())
        try:
            async with asyncio.timeout(_ANSWERED_WITHIN):
                while not text:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_LOOK_EVERY):
                            await has_news.wait()
                    has_news.clear()
                    answer = await self._file.read(partial(rows.answer_of, seq=seq))
                    if answer is None:
                        raise TransientError(f"{kind} of session {session!r:.300}: this node lost its lease while it "
                                             "waited for the owner; look whether that was done")  # fmt: skip
                    text = answer
        except TimeoutError:
            raise TransientError(f"the node that owns session {session!r:.300} has not answered within "
                                 f"{_ANSWERED_WITHIN:g} s; it still does what was asked for") from None  # fmt: skip
        finally:
            del self._asked[seq]
            self.thread.ask_no_more(seq)
        return text

    async def _post(self, request: NodeRequest, asker: str | None) -> int:
        seq: int = await self._file.commit(partial(rows.post, request=request, asker=asker), len(request.body))
        self.thread.wake_owner(request.partition)
        return seq

    async def session_of(self, agent: str, id: str) -> str | None:
        """Return the session of a piece of accepted work or of a recorded cycle; None for another id."""
        return await self._file.read(partial(rows.session_of, agent=agent, id=id))

    async def acquire(self, agent: str, resource: str) -> HeldResource:
        """Return a resource when this node alone has it: others wait in the order in which they asked.

        Without an answer of the database nothing is acquired. Raises: SparError.
        """
        token, thread = self.ownership.token, self.thread
        ask = partial(rows.ask_for, token=token, agent=agent, name=resource)
        asking = asyncio.ensure_future(self._file.commit(ask))
        try:
            seq, is_first = await asyncio.shield(asking)
        except asyncio.CancelledError:
            asking.add_done_callback(self._give_up)
            raise
        if token != self.ownership.token or not self.ownership.is_valid:
            raise self.ownership.error()
        if not is_first:
            future = self._acquiring[seq] = self._loop.create_future()
            thread.wants_resources = True
            try:
                await future
            except BaseException:
                thread.release_resource(seq)
                raise
            finally:
                del self._acquiring[seq]
                thread.wants_resources = bool(self._acquiring)
        return HeldResource(seq, token, self.ownership, thread)

    def _give_up(self, asking: asyncio.Future[tuple[int, bool]]) -> None:
        """Take back the question for a resource of which nobody awaits the answer."""
        if not asking.cancelled() and asking.exception() is None:
            self.thread.release_resource(asking.result()[0])

    async def resources(self, agent: str) -> list[str]:
        """Return the resources that live nodes have or wait for. Raises: SparError."""
        return await self._file.read(partial(rows.resources, agent=agent))

    def done(self, requests: Sequence[NodeRequest]) -> None:
        """Delete requests that were dealt with."""
        self.thread.drop_requests(request.seq for request in requests)

    def answer(self, request: NodeRequest, text: str) -> None:
        """Answer a request that was dealt with."""
        self.thread.answer(request.seq, text)

    async def rows(self) -> list[NodeRow]:
        """Return all nodes, by name."""
        return await self._file.read(rows.nodes)

    async def drain(self, token: str, *, is_draining: bool = True) -> None:
        """Let a node hand over all that it owns, or let it take again. Raises: LookupError."""
        if not await self._file.commit(partial(rows.drain, token=token, is_draining=is_draining)):
            raise LookupError(f"no node {token!r}; the tokens are shown by: spar nodes list")

    def snapshot(self) -> dict[str, Any]:
        """Return the counts of this node. Safe from any thread."""
        own = self.ownership
        return {
            "partitions": len(own.partitions),
            "takeovers": own.takeovers,
            "fenced": own.fenced,
            "lease_age": round(own.age, 3) if own.token else None,
            "format": own.format,
            "last_error": self.thread.last_error,
        }
