"""The messages that wait to be sent, of one channel: in order for each address, on disk until they are sent.

A message that could not be sent waits for its next attempt, and what is for the same address waits behind it; others go
on. One that can never be sent, or was tried for too long, is put aside and shown until somebody has it tried again or
drops it.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime
from heapq import heappop, heappush
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct

from spar.types import replace

#: Messages of one channel that may wait before it takes none in any more, and that are kept once they were put aside.
MOST_WAITING, MOST_FAILED = 1_000, 1_000


class Delivery(Struct, frozen=True):
    """A message on its way. `sent` counts the parts that were sent, `reference` is that of one to be edited."""

    id: str
    channel: str
    address: str
    text: str
    at: datetime
    kind: Literal["answer", "note"] = "answer"
    reply: dict[str, Any] = {}
    session: str = ""
    run_id: str = ""
    state: Literal["waiting", "failed"] = "waiting"
    attempts: int = 0
    error: str = ""
    sent: int = 0
    reference: str = ""


class KeepsRows(Protocol):
    """Small rows as deliveries are kept in; each change is durable with all that is told in the same step."""

    def keep(self, key: str, value: Any) -> None: ...
    def drop(self, key: str) -> None: ...


class Deliveries:
    """The deliveries of one channel, by their id. Args: rows: where they are kept, None: in memory only."""

    def __init__(self, rows: KeepsRows | None) -> None:
        self._rows = rows
        self._of_address: dict[str, deque[str]] = {}
        self._due: list[tuple[float, int, str]] = []  # addresses by when their first message is tried again
        self._count = 0
        self.items: dict[str, Delivery] = {}
        self.failed: dict[str, Delivery] = {}

    @property
    def is_full(self) -> bool:
        return len(self.items) >= MOST_WAITING

    def restore(self, delivery: Delivery) -> None:
        """Take what an earlier process kept."""
        if delivery.state == "failed":
            self.failed[delivery.id] = delivery
        else:
            self._enqueue(delivery, 0.0)

    def add(self, delivery: Delivery) -> bool:
        """Have a message sent; False for one that waits already or was put aside."""
        if delivery.id in self.items or delivery.id in self.failed:
            return False
        self._keep(delivery)
        self._enqueue(delivery, 0.0)
        return True

    def next(self, now: float) -> tuple[Delivery | None, float]:
        """Return the message whose turn it is, or None and the seconds until there is one (infinite: none waits)."""
        while self._due:
            due, _, address = self._due[0]
            if due > now:
                return None, due - now
            heappop(self._due)
            if queue := self._of_address.get(address):
                return self.items[queue[0]], 0.0
        return None, float("inf")

    def went_on(self, delivery: Delivery) -> None:
        """Note how far a message that is being sent has come."""
        if delivery.id in self.items:
            self.items[delivery.id] = delivery
            self._keep(delivery)

    def sent(self, delivery: Delivery) -> None:
        """Forget a message that was sent."""
        self._leave(delivery, 0.0)
        self._drop(delivery)

    def put_off(self, delivery: Delivery, error: str, due: float) -> Delivery:
        """Have a message tried again when it is due (monotonic seconds)."""
        delivery = replace(delivery, attempts=delivery.attempts + 1, error=error)
        if delivery.id in self.items:
            self.went_on(delivery)
            self._push(delivery.address, due)
        return delivery

    def put_aside(self, delivery: Delivery, error: str) -> Delivery:
        """Try a message no more, until somebody says so."""
        self._leave(delivery, 0.0)
        failed = replace(delivery, attempts=delivery.attempts + 1, error=error, state="failed")
        self.failed[failed.id] = failed
        self._keep(failed)
        while len(self.failed) > MOST_FAILED:
            self._drop(self.failed.pop(next(iter(self.failed))))
        return failed

    def retry(self, id: str) -> Delivery:
        """Have a message tried again that was put aside. Raises: LookupError."""
        delivery = replace(self._failed(id), state="waiting", attempts=0)
        del self.failed[id]
        self._keep(delivery)
        self._enqueue(delivery, 0.0)
        return delivery

    def drop(self, id: str) -> Delivery:
        """Forget a message that was put aside. Raises: LookupError."""
        delivery = self._failed(id)
        del self.failed[id]
        self._drop(delivery)
        return delivery

    def forget(self, session: str) -> None:
        """Know nothing of what was put aside of a session; their rows are left to whoever forgets it."""
        self.failed = {id: each for id, each in self.failed.items() if each.session != session}

    def _failed(self, id: str) -> Delivery:
        if id not in self.failed:
            raise LookupError(f"no message {id!r:.100} was put aside; spar channels failed")
        return self.failed[id]

    def _enqueue(self, delivery: Delivery, due: float) -> None:
        self.items[delivery.id] = delivery
        queue = self._of_address.setdefault(delivery.address, deque())
        queue.append(delivery.id)
        if len(queue) == 1:
            self._push(delivery.address, due)

    def _leave(self, delivery: Delivery, due: float) -> None:
        """Take the first message of its address out; the next one is due."""
        self.items.pop(delivery.id, None)
        queue = self._of_address[delivery.address]
        queue.remove(delivery.id)
        if queue:
            self._push(delivery.address, due)
        else:
            del self._of_address[delivery.address]

    def _push(self, address: str, due: float) -> None:
        self._count += 1
        heappush(self._due, (due, self._count, address))

    def _keep(self, delivery: Delivery) -> None:
        if self._rows is not None:
            self._rows.keep(f"out/{delivery.id}", msgspec.to_builtins(delivery))

    def _drop(self, delivery: Delivery) -> None:
        if self._rows is not None:
            self._rows.drop(f"out/{delivery.id}")
