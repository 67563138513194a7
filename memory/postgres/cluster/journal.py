"""Journal of a node: it writes the facts of its own sessions alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from memory.journal import queries
from memory.journal.handover import Batch
from memory.journal.in_flight import InFlightFile
from memory.journal.journal import Journal
from memory.postgres.cluster.decisions import partition_of
from memory.postgres.cluster.ownership import Ownership, Share
from memory.postgres.cluster.writing import CALLING, Posting, SharedBatch
from spar import facts
from spar.clock import Clock
from spar.ports.nodes import NodeRequest
from spar.types import Fault

if TYPE_CHECKING:
    from memory.codec import EventRow
    from memory.engine.connection import Connection
    from memory.engine.session import DatabaseSession
    from spar.facts import CycleOpened, Fact
    from spar.records.journal import Item, Unfinished

R = TypeVar("R")

#: Kind of a request to take an `item` that was accepted; without one to look at all work, since somebody has decided.
WORK: Final = "work"
#: Request about the fact that is committed in this context, and the share under which this node has its session.
_REQUEST: ContextVar[tuple[NodeRequest, Share] | None] = ContextVar("request", default=None)


class NodeJournal(Journal):
    """Journal of a node, on a database that others write too. What belongs to sessions of others is not written.

    Args: lost: called with partitions and epochs that a transaction found taken, from the writer's thread; wake: tells
        the owner of a partition that a request for it is on disk.
    """

    _batch: SharedBatch

    def __init__(
        self, file: DatabaseSession, clock: Clock, hand: InFlightFile, report: Callable[[Fault], None],
        ownership: Ownership, lost: Callable[[set[tuple[int, int]]], object], wake: Callable[[int], object],
    ) -> None:  # fmt: skip
        self._ownership, self._wake = ownership, wake
        self._partitions: dict[str, int] = {}  # of the open cycles of this node, by id
        self._begun_shares: dict[str, Share] = {}
        self._losses, self._settled = 0, asyncio.Event()  # how often partitions were lost; whether their work has ended
        self._settled.set()
        super().__init__(file, clock, hand, report)
        self._new_batch = partial(SharedBatch, file.writer.report, ownership, lost)
        self._batch = self._new_batch()

    def _commit(self, work: Callable[[Connection], R], size: int) -> Coroutine[Any, Any, R]:
        """Write the request of the context in the same transaction. Args, returns: as the method of the base."""
        request = _REQUEST.get()
        return super()._commit(work if request is None else Posting(work, *request, self._ownership), size)

    def append(self, fact: Fact, agent: str = "") -> None:
        """Write a fact of an agent without waiting for the disk; not one of a session of another node, and no totals:
        they would replace what other nodes have counted, and the ends of cycles have them.

        Raises: LeaseOverError for the start of a call in a session of another node.
        """
        partition = partition_of(agent, fact.session) if fact.session else self._partitions.get(_cycle_of(fact))
        if partition is None:
            if not isinstance(fact, facts.TotalsCounted):
                self._begin_lease()
                super().append(fact, agent)
            return
        epoch = self._ownership.epoch_of(partition)
        if epoch is None:
            if isinstance(fact, facts.AttemptStarted):
                raise self._ownership.error()
            return
        if isinstance(fact, facts.AttemptStarted | facts.Planned):
            CALLING.set((partition, epoch))
        elif isinstance(fact, facts.CycleOpened | facts.CycleReopened):
            self._partitions[fact.cycle] = partition
        self._begin_lease()
        batch = self._batch
        batch.share = partition, epoch
        try:
            super().append(fact, agent)
        finally:
            batch.share = None
        if isinstance(fact, facts.CycleWritten) and fact.closing.again is None:
            self._partitions.pop(fact.cycle, None)

    async def commit(self, fact: Fact, agent: str) -> Item | None:
        """Write a fact that an earlier one may rule out. The owner of its session hears of it.

        Returns, raises: as the method of the base.
        """
        partition, share = partition_of(agent, fact.session), self._ownership.share_of(agent, fact.session)
        if partition in self._ownership.to_leave:
            share = None
        body = json.dumps({"item": fact.item.id} if isinstance(fact, facts.WorkAccepted) else {})
        token = _REQUEST.set((NodeRequest(partition, agent, WORK, body), share))
        try:
            known = await super().commit(fact, agent)
        finally:
            _REQUEST.reset(token)
        if share is None:
            self._wake(partition)
        return known

    @property
    def refusal(self) -> str:
        """Return why nothing more can be accepted now; "" when it can."""
        return super().refusal or self._ownership.refusal

    @property
    def open_cycles(self) -> int:
        """Return how many cycles of this node have begun and not ended."""
        return len(self._partitions)

    def note_lost(self, partitions: set[int]) -> None:
        """Forget the open cycles of partitions that another node owns now."""
        self._losses += 1
        self._settled.clear()
        for cycle in [cycle for cycle, partition in self._partitions.items() if partition in partitions]:
            del self._partitions[cycle]
            self._open_cycles.pop(cycle, None)
            self.hand.drop(cycle)

    def settled(self) -> None:
        """Note that the work of lost partitions has ended here."""
        self._settled.set()

    def raise_fence(self, above: int) -> None:
        """Let all further fences be above a number: those of earlier owners are lower."""
        self._fence = max(self._fence, above)

    async def load(self) -> None:
        """Read which cycles are open, those of other nodes included."""
        present = await self._file.read(queries.open_ids)
        for cycle in [cycle for cycle in self._open_cycles if cycle not in present and cycle not in self._partitions]:
            del self._open_cycles[cycle]
        self._open_cycles.update(present)

    # -- rows with their shares

    def _begin_lease(self) -> None:
        """Begin a batch of the present lease: under another one its rows would not be written."""
        batch = self._batch
        if batch.token == self._ownership.token:
            return
        if batch.events or batch.writes or self.begun:
            self.hand_over()
        self._batch.token = self._ownership.token

    def add_fact(self, fact: EventRow) -> None:
        """Add a fact to the batch."""
        super().add_fact(fact)
        self._batch.event_shares.append(self._batch.share)

    def begin(self, cycle_id: str, agent: str, cycle: Unfinished | CycleOpened) -> None:
        """Add a cycle that begins; its row is written only if it does not end in the same batch."""
        self._begun_shares[cycle_id] = self._batch.share
        super().begin(cycle_id, agent, cycle)

    async def safe(self) -> None:
        """Return when all rows added so far are safe.

        Raises: SparError when the memory is closed; LeaseOverError when the lease is over, and until the work of lost
            partitions has ended: rows of it were left out, and its calls must not begin. A call of a session that this
            node has kept waits for that end.
        """
        while True:
            before, was_settled = self._losses, self._settled.is_set()
            if was_settled and self._flush is not None and self._flush.done():
                self._flush = None  # its error is of a lease that is over, and all of that has ended
            await super().safe()
            if was_settled and self._losses == before and self._ownership.is_in_force:
                return
            share = CALLING.get()
            if share is None or self._ownership.epoch_of(share[0]) != share[1]:
                raise self._ownership.error()
            await self._settled.wait()

    def _close_batch(self) -> Batch:
        shares = [self._begun_shares.get(cycle_id) for cycle_id in self.begun]
        self._begun_shares.clear()
        batch = self._batch
        super()._close_batch()
        if shares:  # the facts of the beginnings were put first, the rows of the open cycles last
            batch.event_shares[:0] = shares
            batch.shares[-len(shares) :] = shares
        return batch


def _cycle_of(fact: Fact) -> str:
    return fact.cycle if isinstance(fact, facts.RowsChanged) else ""
