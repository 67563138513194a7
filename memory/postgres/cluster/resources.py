"""Exclusive resources of tools: of all nodes one has each, the others wait in the order in which they asked.

A node has a resource while its row is the first one of a node that is alive. So the resources of a node that is lost
are free as soon as its partitions are. Without an answer of the database nothing is acquired.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from memory.postgres.cluster import rows
from memory.postgres.cluster.lease import LeaseThread
from memory.postgres.cluster.ownership import Ownership

if TYPE_CHECKING:
    from memory.engine.session import DatabaseSession


class HeldResource:
    """Resource that this node has; a call gives it back."""

    __slots__ = ("_ownership", "_seq", "_thread", "_token")

    def __init__(self, seq: int, token: str, ownership: Ownership, thread: LeaseThread) -> None:
        self._seq, self._token, self._ownership, self._thread = seq, token, ownership, thread

    @property
    def is_held(self) -> bool:
        """Return whether the lease under which it was acquired is not over."""
        return self._ownership.token == self._token and self._ownership.is_valid

    def __call__(self) -> None:
        self._thread.release_resource(self._seq)


class NodeResources:
    """Resources that this node has or waits for."""

    def __init__(self, ownership: Ownership, thread: LeaseThread) -> None:
        self._ownership, self._thread = ownership, thread
        self._waiting: dict[int, asyncio.Future[None]] = {}

    async def acquire(self, file: DatabaseSession, agent: str, name: str) -> HeldResource:
        """Return a resource when this node has it. Raises: SparError."""
        token = self._ownership.token
        seq, is_first = await file.commit(partial(rows.ask_for, token=token, agent=agent, name=name))
        if token != self._ownership.token or not self._ownership.is_valid:
            raise self._ownership.error()
        if not is_first:
            future = self._waiting[seq] = asyncio.get_running_loop().create_future()
            self._thread.wants_resources = True
            try:
                await future
            except BaseException:
                self._thread.release_resource(seq)
                raise
            finally:
                del self._waiting[seq]
                self._thread.wants_resources = bool(self._waiting)
        return HeldResource(seq, token, self._ownership, self._thread)

    def acquired(self, seqs: Iterable[int]) -> None:
        """Note the rows of this node that are the first ones of their resources."""
        for seq in seqs:
            if (future := self._waiting.get(seq)) is not None and not future.done():
                future.set_result(None)

    def lost(self) -> None:
        """Note that the lease is over, and all rows with it."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(self._ownership.error())
