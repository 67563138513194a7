"""Rows of facts, items and open cycles.

They are encoded at once, so that nothing can change them before they are written. Only large results of calls, which
are copies that nobody changes, are encoded by the writer's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from memory.codec import encoded, safe, sealed, seconds, seems_small
from memory.events import EventRow, LateBody
from spar.clock import Clock
from spar.records.journal import Item, Unfinished
from spar.types import Action, Call, Fault, copy_with

#: Most bytes of one body. A larger one is cut, which is reported; such work cannot be continued after a crash.
MOST_BYTES = 64 << 20
#: Most bytes of a fact of a call. It holds the largest result that an actor allows, since after a crash the next call
#: uses this result. Escaped to ASCII, JSON grows to three times its bytes at most.
MOST_CALL_BYTES = 3 * (256 << 20)
_OF_CALLS = frozenset({"planned", "started", "ended"})
#: Characters and parts of a result that is encoded at once.
_FEW = 16_384
#: Number of calls of a plan in one fact.
CALLS_IN_A_FACT = 500


class FactRows:
    """Maker of the rows for the facts, items and open cycles of one journal.

    Args: clock: gives the times of facts; report: called for a body that had to be cut, from any thread.
    """

    __slots__ = ("_clock", "_report")

    def __init__(self, clock: Clock, report: Callable[[Fault], None]) -> None:
        self._clock, self._report = clock, report

    def fact(self, work: str, call: str, kind: str, body: Any) -> EventRow:
        """Return the row of a fact.

        Args: work: the id of the cycle that the fact is about, or ""; call: the id of the call, item or run that it is
            about, or "".
        """
        text = body if isinstance(body, LateBody) else self._encoded(work, call, kind, body)
        return self._clock.now().timestamp(), safe(work), safe(call) if call else "", kind, text

    def ended(self, work: str, call: str, output: Any, end: dict[str, Any]) -> EventRow:
        """Return the row of a fact `ended`. Args: output: the call's result, which `end` contains."""
        late = None if seems_small(output, _FEW) else LateBody(lambda: self._encoded(work, call, "ended", end))
        return self.fact(work, call, "ended", end if late is None else late)

    def _encoded(self, work: str, call: str, kind: str, body: Any) -> str:
        limit = MOST_CALL_BYTES if kind in _OF_CALLS else MOST_BYTES
        text, was_cut = encoded(body, limit=limit)
        if was_cut:
            self._report_cut(f"{kind} of {work or call}", limit)
        return text

    def planned(self, work: str, action: Action, effect: str) -> list[EventRow]:
        """Return the facts of an action that is about to be executed."""
        head = copy_with(action, calls=(), perceptions=())
        begun = self.fact(work, action.id, "acting", {"action": head, "effect": effect, "calls": len(action.calls)})
        return [begun, *self.calls(work, action.calls)] if action.calls else [begun]

    def calls(self, work: str, calls: Sequence[Call]) -> Iterator[EventRow]:
        """Yield the facts of calls that were planned."""
        for start in range(0, len(calls), CALLS_IN_A_FACT):
            some = calls[start : start + CALLS_IN_A_FACT]
            yield self.fact(work, "", "planned", [call.to_wire() for call in some])

    def opened(self, cycle_id: str, cycle: Unfinished) -> EventRow:
        """Return the fact that a cycle has begun."""
        return self.fact(cycle_id, "", "opened", {"items": cycle.items, "run": cycle.run_id})

    def open_cycle(self, cycle_id: str, agent: str, cycle: Unfinished) -> tuple[Any, ...]:
        """Return the row of an open cycle."""
        return safe(cycle_id), safe(agent), cycle.attempts, self.body(cycle)

    def item(self, agent: str, item: Item) -> tuple[Any, ...]:
        """Return the row of an item of work."""
        return item_row(agent, item, self.body(item))

    def body(self, value: Any) -> str:
        """Encode the body of a row that may change. It has a checksum, since it is not in the chain of facts."""
        text, was_cut = encoded(value, limit=MOST_BYTES)
        if was_cut:
            self._report_cut(f"a {type(value).__name__}", MOST_BYTES)
        return sealed(text)

    def _report_cut(self, what: str, limit: int) -> None:
        message = f"{what:.200} is too large or too deep to be kept whole: at most {limit >> 20} MiB; it is kept cut"
        self._report(Fault("too_large", message, "memory", retryable=False))


def item_row(agent: str, item: Item, body: str) -> tuple[Any, ...]:
    """Return the row of an item with a body that is encoded already."""
    key = None if item.key is None else safe(item.key)
    return safe(item.id), safe(agent), safe(item.session), item.kind, key, seconds(item.at), item.attempts, body
