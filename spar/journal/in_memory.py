"""Journal in memory: the open work of an agent whose memory keeps no journal, as long as its process lives.

It has all that stands open and nothing of what has ended, but for the ids and keys by which work that comes again is
recognized. Rows, counts, budgets and answers of ended runs outlive work, so it keeps none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from spar import facts
from spar.clock import Clock
from spar.data.bounded import BoundedDict
from spar.decisions.resume import completed
from spar.errors import ConflictError
from spar.facts import Fact
from spar.records.journal import DeadLetter, Doubt, Item, Spend, Unfinished
from spar.state.apply import apply
from spar.state.work import CycleState, SessionState
from spar.types import Call, Perception, replace

#: The most ids and keys of accepted work that are remembered; the same of dead letters, and of calls in doubt.
REMEMBERED = 10_000


class JournalInMemory:
    """Journal of one agent that keeps open work in memory; it implements `spar.ports.store.journal`.

    It is its own `views`, and nothing of an earlier process is in its `hand`.
    """

    epoch = 0
    is_safe, is_behind, refusal = True, False, ""
    left, left_by = frozenset[str](), 0

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._items: dict[str, Item] = {}
        self._accepted = BoundedDict[str, Item](REMEMBERED)  # by id, without what was perceived
        self._keys = BoundedDict[str, str](REMEMBERED)
        self._cycles: dict[str, CycleState] = {}
        self._detached: dict[str, Unfinished] = {}
        self._letters = BoundedDict[str, DeadLetter](REMEMBERED)
        self._doubts = BoundedDict[str, Doubt](REMEMBERED)
        self._values = BoundedDict[str, Mapping[str, Any]](REMEMBERED)  # of calls that have started
        self._owner: object = None
        self._fence = 0
        self.views = self.hand = self

    def forget(self) -> None:
        """Do nothing: no process was before this one."""

    async def safe(self) -> None:
        """Return at once: nothing is promised beyond the process."""

    # -- facts

    def append(self, fact: Fact, agent: str = "") -> None:
        """Keep a fact about open work."""
        if (keep := _KEPT.get(type(fact))) is not None:
            keep(self, fact)

    async def commit(self, fact: Fact, agent: str) -> Item | None:
        """Keep a fact that an earlier one may rule out; see the port."""
        if isinstance(fact, facts.WorkAccepted):
            item = fact.item
            known = self._accepted.get(item.id) or self._accepted.get(self._keys.get(item.key or "", ""))
            if known is not None:
                return self._items.get(known.id, known)
            self._item(fact)
        elif isinstance(fact, facts.LetterAnswered):
            if self._letters.pop(fact.letter.id, None) is None:
                raise ConflictError(f"dead letter {fact.letter.id!r} has been dealt with already")
            if fact.is_tried_again:
                self._items[fact.letter.id] = fact.letter.again
        elif isinstance(fact, facts.DoubtAnswered):
            if (doubt := self._doubts.get(fact.doubt.id)) is None or doubt.answer is not None:
                raise ConflictError(f"call {fact.doubt.id!r} is not in doubt any more: it has been answered")
            self._doubts[doubt.id] = fact.doubt
            if (again := fact.again) is not None and again.action is not None:
                self._opened(facts.CycleOpened.of(again))
                self._called(facts.Planned(session=again.session, cycle=again.cycle_id, action=again.action))
        return None

    def _item(self, fact: facts.WorkAccepted | facts.WorkChanged | facts.RetryPlanned) -> None:
        item = fact.item
        if item.id not in self._accepted:
            self._accepted[item.id] = replace(item, perception=Perception(""))
            if item.key is not None:
                self._keys[item.key] = item.id
        elif item.id not in self._items:  # it has ended
            return
        self._items[item.id] = item

    def _answered(self, fact: facts.RunAnswered) -> None:
        self._items.pop(fact.run, None)

    def _put_aside(self, fact: facts.PutAside) -> None:
        item = fact.item
        self._items.pop(item.id, None)
        self._letters[item.id] = DeadLetter(item.id, item, self._clock.now(), fact.reason)

    def _opened(self, fact: facts.CycleOpened) -> None:
        self._cycles.setdefault(fact.cycle, CycleState(fact.cycle)).opened = fact

    def _called(self, fact: facts.Planned | facts.CallsPlanned | facts.AttemptStarted | facts.CallEnded) -> None:
        if (cycle := self._cycles.get(fact.cycle)) is not None:
            apply(SessionState(fact.session, cycle=cycle), fact)
        if isinstance(fact, facts.AttemptStarted) and fact.values is not None:
            self._values[f"{fact.cycle}/{fact.call}"] = fact.values

    def _written(self, fact: facts.CycleWritten) -> None:
        for item in fact.closing.done:
            self._items.pop(item, None)
        if (again := fact.closing.again) is not None:
            self._opened(facts.CycleOpened.of(again))
        else:
            self._cycles.pop(fact.cycle, None)

    def _reset(self, fact: facts.ConversationReset) -> None:
        if fact.cut is not None:
            self._opened(facts.CycleOpened.of(fact.cut))

    def _left(self, fact: facts.CallDetached) -> None:
        name = f"{fact.cycle}/{fact.action.calls[0].id}"
        self._detached[name] = Unfinished(name, fact.session, action=fact.action, effect=fact.effect)

    def _attached(self, fact: facts.CallAttached) -> None:
        self._detached.pop(f"{fact.cycle}/{fact.call}", None)

    def _doubted(self, fact: facts.CallDoubted) -> None:
        self._doubts.setdefault(fact.doubt.id, fact.doubt)

    # -- one process, one agent

    def claim(self, agent: str, owner: object) -> Callable[[], None]:
        """Reserve the agent's work for an owner; return a function that ends that. Raises: ConflictError."""
        if self._owner not in (None, owner):
            raise ConflictError(f"an agent named {agent!r} works with this journal already")
        self._owner = owner

        def release() -> None:
            if self._owner is owner:
                self._owner = None

        return release

    def next_fence(self, above: int = 0) -> int:
        """Return a number above `above` and all that were returned before."""
        self._fence = max(self._fence, above) + 1
        return self._fence

    def is_open(self, work: str) -> bool:
        """Return whether a cycle has begun and not ended."""
        return work in self._cycles

    @property
    def open_cycles(self) -> int:
        """Return how many cycles have begun and not ended."""
        return len(self._cycles)

    # -- views

    async def items(self, agent: str) -> list[Item]:
        """Return the waiting work, the oldest first."""
        return sorted(self._items.values(), key=lambda item: (item.at, item.id))

    async def recent_ids(self, agent: str, number: int) -> list[str]:
        """Return the ids of the work accepted last, the newest first."""
        return list(reversed(self._accepted))[:number]

    async def run(self, agent: str, run_id: str) -> tuple[Item | None, None]:
        """Return the item of a run that waits; nothing of one that has ended."""
        return self._items.get(run_id), None

    async def dead_letters(self, agent: str) -> list[DeadLetter]:
        """Return the dead letters that were not dealt with."""
        return list(self._letters.values())

    async def unfinished(self, agent: str) -> list[Unfinished]:
        """Return the open cycles and detached calls, in the order of their ids."""
        cycles = [completed(cycle.opened.unfinished, cycle) for cycle in self._cycles.values() if cycle.opened]
        return sorted([*cycles, *self._detached.values()], key=lambda cycle: cycle.cycle_id)

    async def doubts(self, agent: str, *, is_open: bool = True) -> list[Doubt]:
        """Return the calls in doubt; with `is_open=False` also the answered ones."""
        doubts = [doubt for doubt in self._doubts.values() if doubt.answer is None or not is_open]
        return sorted(doubts, key=lambda doubt: (doubt.at, doubt.id))

    async def call(self, doubt: Doubt) -> Call:
        """Return the call of a doubt with the values that it was started with."""
        return replace(doubt.call, params=self._values.get(doubt.id, doubt.call.params), after=())

    async def counts(self, agent: str) -> dict[str, Any]:
        """Return no counts."""
        return {}

    async def rows(self, owner: str) -> dict[str, Any]:
        """Return no rows."""
        return {}

    async def spent(self) -> list[Spend]:
        """Return no amounts."""
        return []


#: What keeps each kind of fact. Those that are not here are about nothing that stands open.
_KEPT: Final[dict[type[Fact], Callable[[JournalInMemory, Any], None]]] = {
    facts.WorkChanged: JournalInMemory._item,
    facts.RetryPlanned: JournalInMemory._item,
    facts.RunAnswered: JournalInMemory._answered,
    facts.PutAside: JournalInMemory._put_aside,
    facts.CycleOpened: JournalInMemory._opened,
    facts.CycleReopened: JournalInMemory._opened,
    facts.CycleWritten: JournalInMemory._written,
    facts.ConversationReset: JournalInMemory._reset,
    facts.Planned: JournalInMemory._called,
    facts.CallsPlanned: JournalInMemory._called,
    facts.AttemptStarted: JournalInMemory._called,
    facts.CallEnded: JournalInMemory._called,
    facts.CallDetached: JournalInMemory._left,
    facts.CallAttached: JournalInMemory._attached,
    facts.CallDoubted: JournalInMemory._doubted,
}
