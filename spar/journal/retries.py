"""Retries: failed work that waits for its next attempt."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from spar.clock import Timer
from spar.decisions.consequence import BACKOFF, retry
from spar.facts import PutAside, RetryPlanned, WorkLeft
from spar.journal.dead_letters import DeadLetters
from spar.journal.work import Work
from spar.loop.core import Core
from spar.loop.tasks import Requests
from spar.records.journal import Item
from spar.types import Fault, Perception, replace

#: The most failed work that waits. Beyond it failed perceptions of sensors are not tried again.
MOST_WAITING = 10_000


class Retries:
    """The failed work of one agent that waits for its next attempt. `len` is its number, `shed` counts work that was
    dropped.

    Args: hand_out: gives an item to its session, once it is due.
    """

    __slots__ = ("_core", "_hand_out", "_letters", "_requests", "_timers", "_work", "shed")

    def __init__(self, core: Core, requests: Requests, work: Work, letters: DeadLetters,
                 hand_out: Callable[[Item], Awaitable[None]]) -> None:  # fmt: skip
        self._core, self._requests, self._work = core, requests, work
        self._letters, self._hand_out = letters, hand_out
        self._timers: dict[str, Timer] = {}
        self.shed = 0

    def __len__(self) -> int:
        return len(self._timers)

    def failed(
        self, perceptions: Iterable[Perception], session: str, fault: Fault, *, is_sensed: bool
    ) -> tuple[Item, ...]:
        """Count a failed attempt at each perception, and journal it; return the items that will be tried again. Others
        are put aside."""
        failed: list[Item] = []
        for perception in perceptions:
            item = self._work.items(session).get(perception.id)
            if item is None and len(self._timers) >= MOST_WAITING:
                self.shed += 1
                continue
            item = item or Item(perception.id, perception, session=session)
            item = replace(item, perception=perception, is_sensed=is_sensed, attempts=item.attempts + 1, fault=fault)
            fact = retry(item, self._core.clock.now())
            if isinstance(fact, PutAside):
                self._letters.add(fact)
            else:
                self._core.ledger.tell(fact)
                self._wait(fact.item)
                failed.append(fact.item)
        return tuple(failed)

    def later(self, fact: RetryPlanned) -> None:
        """Try an item again at its time, which the journal has."""
        self._core.ledger.add(fact)
        self._wait(fact.item)

    def _wait(self, item: Item) -> None:
        """Wait for the time of an item, instead of a time that was planned before."""
        assert item.due_at is not None
        clock = self._core.clock
        if (waiting := self._timers.get(item.id)) is not None:
            waiting.cancel()
        wait = (item.due_at - clock.now()).total_seconds()
        # A longer wait is that of a clock that was set back.
        self._timers[item.id] = clock.call_at(clock.monotonic() + min(wait, BACKOFF.cap), partial(self._due, item))

    def _due(self, item: Item) -> None:
        if self._core.state not in ("stopping", "stopped"):  # the next start finds it in the journal
            self._requests.in_background(self._try_again(item), "recovery of")

    async def _try_again(self, item: Item) -> None:
        try:
            await self._hand_out(replace(item, due_at=None))
        finally:
            self._timers.pop(item.id, None)

    def end(self) -> None:
        """Cancel all timers. The next start finds the items in the journal."""
        for timer in self._timers.values():
            timer.cancel()
        ledger = self._core.ledger
        for state in [state for state in ledger.states.values() if state.retries]:
            ledger.add(WorkLeft(session=state.key, items=tuple(state.retries)))
        self._timers.clear()
