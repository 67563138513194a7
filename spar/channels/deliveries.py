"""Messages of one channel that wait to be sent: in order for each address, on disk until they are sent.

A message that could not be sent waits for its next attempt, and later messages for the same address wait behind it;
other addresses go on. A message that can never be sent, or was tried for too long, is put aside and listed until a
person retries or drops it.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime
from heapq import heappop, heappush
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct

from spar.types import replace

#: Bounds of one channel: waiting messages (a full channel accepts no new ones), and messages that were put aside.
MOST_WAITING, MOST_FAILED = 1_000, 1_000


class Delivery(Struct, frozen=True):
    """Message to be sent. `sent` counts the parts that were sent; `reference` names an earlier message to be edited."""

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
    """Store of small rows for deliveries; a change is durable together with other changes of the same step."""

    def keep(self, key: str, value: Any) -> None: ...
    def drop(self, key: str) -> None: ...


class Deliveries:
    """Deliveries of one channel, by their id. Args: rows: where they are stored, None: only in memory."""

    def __init__(self, rows: KeepsRows | None) -> None:
        self._rows = rows
        self._of_address: dict[str, deque[str]] = {}
        self._due: list[tuple[float, int, str]] = []  # addresses by the due time of their first message
        self._count = 0
        self.items: dict[str, Delivery] = {}
        self.failed: dict[str, Delivery] = {}

    @property
    def is_full(self) -> bool:
        return len(self.items) >= MOST_WAITING

    def restore(self, delivery: Delivery) -> None:
        """Load a delivery of an earlier process."""
        if delivery.state == "failed":
            self.failed[delivery.id] = delivery
        else:
            self._enqueue(delivery)

    def add(self, delivery: Delivery) -> bool:
        """Enqueue a message; return False when one of this id waits already or was put aside."""
        if delivery.id in self.items or delivery.id in self.failed:
            return False
        self._keep(delivery)
        self._enqueue(delivery)
        return True

    def next(self, now: float) -> tuple[Delivery | None, float | None]:
        """Return the message that is due, or None and the seconds until one is (None: none waits)."""
        while self._due:
            due, _, address = self._due[0]
            if due > now:
                return None, due - now
            heappop(self._due)
            if queue := self._of_address.get(address):
                return self.items[queue[0]], 0.0
        return None, None

    def went_on(self, delivery: Delivery) -> None:
        """Store the progress of a message that is being sent."""
        if delivery.id in self.items:
            self.items[delivery.id] = delivery
            self._keep(delivery)

    def sent(self, delivery: Delivery) -> None:
        """Forget a message that was sent."""
        self._leave(delivery)
        self._drop(delivery)

    def put_off(self, delivery: Delivery, error: str, due: float) -> None:
        """Schedule another attempt at a message (monotonic seconds)."""
        if (now := self.items.get(delivery.id)) is not None:  # perhaps some of its parts were sent
            self.went_on(replace(now, attempts=now.attempts + 1, error=error))
            self._push(delivery.address, due)

    def put_aside(self, delivery: Delivery, error: str) -> Delivery:
        """Stop trying a message until a person retries it."""
        delivery = self.items.get(delivery.id, delivery)
        self._leave(delivery)
        failed = replace(delivery, attempts=delivery.attempts + 1, error=error, state="failed")
        self.failed[failed.id] = failed
        self._keep(failed)
        while len(self.failed) > MOST_FAILED:
            self._drop(self.failed.pop(next(iter(self.failed))))
        return failed

    def retry(self, id: str) -> Delivery:
        """Enqueue a message again that was put aside."""
        delivery = replace(self.failed.pop(id), state="waiting", attempts=0)
        self._keep(delivery)
        self._enqueue(delivery)
        return delivery

    def drop(self, id: str) -> Delivery:
        """Forget a message that was put aside."""
        delivery = self.failed.pop(id)
        self._drop(delivery)
        return delivery

    def forget(self, session: str) -> None:
        """Forget the messages of a session that were put aside; the caller deletes their rows."""
        self.failed = {id: delivery for id, delivery in self.failed.items() if delivery.session != session}

    def _enqueue(self, delivery: Delivery) -> None:
        self.items[delivery.id] = delivery
        queue = self._of_address.setdefault(delivery.address, deque())
        queue.append(delivery.id)
        if len(queue) == 1:
            self._push(delivery.address, 0.0)

    def _leave(self, delivery: Delivery) -> None:
        """Remove the first message of its address from the queue, and schedule the next one."""
        self.items.pop(delivery.id, None)
        queue = self._of_address[delivery.address]
        queue.remove(delivery.id)
        if queue:
            self._push(delivery.address, 0.0)
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
