"""Retries: failed work that waits for its next attempt."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from datetime import timedelta
from typing import Any

from spar.backoff import Backoff
from spar.clock import Timer
from spar.facts import RetryDue, RetryPlanned
from spar.journal.dead_letters import DeadLetters
from spar.journal.work import Work
from spar.loop.core import Core
from spar.loop.tasks import Requests
from spar.records.journal import MOST_ATTEMPTS, Item
from spar.types import Fault, Perception, replace

#: The wait (seconds) between a failure and the next attempt at the same work.
BACKOFF = Backoff(10.0, 300.0)
#: The most pieces of current work. Beyond it failed perceptions of sensors are not tried again.
MOST_OPEN_ITEMS = 10_000


class Retries:
    """The failed work of one agent that waits for its next attempt. `len` is its number, `shed` counts work that was
    dropped.

    Args: hand_out: gives an item to its session, once it is due.
    """

    __slots__ = ("_core", "_hand_out", "_letters", "_requests", "_timers", "_work", "shed")

    def __init__(self, core: Core, work: Work, requests: Requests, letters: DeadLetters,
                 hand_out: Callable[[Item], Coroutine[Any, Any, object]]) -> None:  # fmt: skip
        self._core, self._work, self._requests, self._letters = core, work, requests, letters
        self._hand_out = hand_out
        self._timers: dict[str, Timer] = {}
        self.shed = 0

    def __len__(self) -> int:
        return len(self._timers)

    def failed(
        self, perceptions: Iterable[Perception], session: str, fault: Fault, *, is_sensed: bool
    ) -> tuple[Item, ...]:
        """Count a failed attempt at each perception; return the items that will be tried again. Others are put
        aside."""
        failed: list[Item] = []
        for perception in perceptions:
            item = self._work.open_items.get(perception.id)
            if item is None and len(self._work.open_items) >= MOST_OPEN_ITEMS:
                self.shed += 1
                continue
            item = item or Item(perception.id, perception, session=session)
            attempts = item.attempts + 1
            wait = BACKOFF.delay(attempts)
            due = self._core.clock.now() + timedelta(seconds=wait)
            item = replace(item, perception=perception, is_sensed=is_sensed, attempts=attempts, fault=fault, due_at=due)
            if attempts >= MOST_ATTEMPTS:
                self._work.open_items.pop(item.id, None)
                self._letters.add(item)
            else:
                self.later(item, wait)
                failed.append(item)
        return tuple(failed)

    def later(self, item: Item, wait: float) -> None:
        """Start the timer of an item's next attempt. A timer that the item has already is replaced.

        Args: wait: seconds; a longer wait is checked again after 300 s.
        """

        def try_again() -> None:
            del self._timers[item.id]
            if (ledger := self._core.facts) is not None:
                ledger.tell(RetryDue(session=item.session, item=item.id))
            if self._core.state == "running":
                self._requests.in_background(self._hand_out(replace(item, due_at=None)), "recovery of")

        self._work.open_items[item.id] = item
        if (ledger := self._core.facts) is not None:
            due_at = self._core.clock.now().timestamp() + wait
            ledger.tell(RetryPlanned(session=item.session, item=item.id, attempts=item.attempts, due_at=due_at))
        if (waiting := self._timers.get(item.id)) is not None:
            waiting.cancel()
        clock = self._core.clock
        self._timers[item.id] = clock.call_at(clock.monotonic() + min(wait, BACKOFF.cap), try_again)

    def end(self) -> None:
        """Cancel all timers. The next start finds the items in the journal."""
        for item_id, timer in self._timers.items():
            timer.cancel()
            self._work.open_items.pop(item_id, None)
        self._timers.clear()
