"""Journal in memory: the open work of an agent whose memory keeps no journal, as long as its process lives.

It has all that stands open and nothing of what has ended, but for the ids and keys by which work that comes again is
recognized.
"""

from __future__ import annotations

from typing import Any, Final

from spar import facts
from spar.clock import Clock
from spar.data.bounded import BoundedDict
from spar.decisions.resume import completed
from spar.errors import ConflictError, NotReadyError
from spar.facts import Fact
from spar.records.journal import Closing, DeadLetter, Doubt, Item, Unfinished
from spar.state.apply import ADDITIONS, SessionState, apply
from spar.state.work import CycleState
from spar.types import Perception

#: The most ids and keys of accepted work that are remembered; the same of dead letters, and of calls in doubt.
REMEMBERED = 10_000


class JournalInMemory:
    """Journal of one agent that keeps open work in memory, and its own `views`.

    Args: refusal: why it accepts no work; "" if it does.
    """

    is_safe, is_behind = True, False

    def __init__(self, clock: Clock, refusal: str = "") -> None:
        self._clock, self.refusal = clock, refusal
        self._open = SessionState("")  # of all sessions together, without their cycles
        self._cycles: dict[str, CycleState] = {}
        self._accepted = BoundedDict[str, tuple[Any, ...]](REMEMBERED)  # the fields of each item behind its perception
        self._keys = BoundedDict[str, str](REMEMBERED)
        #: Values of what is put aside, in doubt (also when it was answered) and detached.
        self._letters = BoundedDict[str, DeadLetter](REMEMBERED)
        self._doubts = BoundedDict[str, Doubt](REMEMBERED)
        self._detached = BoundedDict[str, Unfinished](REMEMBERED)
        self.views = self

    async def safe(self) -> None:
        """Return at once: nothing is promised beyond the process. Raises: NotReadyError in the place of a memory that
        is not open, which was to keep it."""
        if self.refusal:
            raise NotReadyError(self.refusal)

    # -- facts

    def append(self, fact: Fact, agent: str = "") -> None:
        """Keep a fact about open work."""
        kind = type(fact)
        if kind in _OF_WORK:
            ADDITIONS[kind](self._open, fact)
        match fact:
            case facts.WorkAccepted(item=item) | facts.WorkChanged(item=item) | facts.RetryPlanned(item=item):
                if item.id not in self._accepted:
                    self._accepted[item.id] = item.kind, item.session, item.key, item.at
                    if item.key is not None:
                        self._keys[item.key] = item.id
            case facts.CycleOpened():
                self._cycles.setdefault(fact.cycle, CycleState(fact.cycle)).opened = fact
            case facts.CycleWritten(closing=Closing(again=None)):
                self._cycles.pop(fact.cycle, None)
            case (
                facts.CycleWritten(closing=Closing(again=Unfinished() as cycle))
                | facts.ConversationReset(cut=Unfinished() as cycle)
            ):
                self.append(facts.CycleOpened.of(cycle))
            case facts.Planned() | facts.CallsPlanned() | facts.AttemptStarted() | facts.CallEnded():
                if (open_cycle := self._cycles.get(fact.cycle)) is not None:
                    apply(SessionState(fact.session, cycle=open_cycle), fact)
            case facts.PutAside(item=item):
                self._letters[item.id] = DeadLetter(item.id, item, self._clock.now(), fact.reason)
            case facts.CallDetached(action=action):
                name = f"{fact.cycle}/{action.calls[0].id}"
                self._detached[name] = Unfinished(name, fact.session, action=action, effect=fact.effect)
            case facts.CallDoubted(doubt=doubt) | facts.DoubtAnswered(doubt=doubt):
                self._doubts[doubt.id] = doubt

    async def commit(self, fact: Fact, agent: str) -> Item | None:
        """Keep a fact that an earlier one may rule out; see the port. Raises: NotReadyError if it accepts none."""
        if self.refusal:
            raise NotReadyError(self.refusal)
        match fact:
            case facts.WorkAccepted(item=item):
                id = item.id if item.id in self._accepted else self._keys.get(item.key or "", "")
                if id in self._accepted:
                    return self._open.items.get(id) or Item(id, Perception(""), *self._accepted[id])
            case facts.LetterAnswered(letter=letter):
                if letter.id not in self._open.put_aside:
                    raise ConflictError(f"dead letter {letter.id!r} has been dealt with already")
                if fact.is_tried_again:
                    self.append(facts.WorkChanged(session=fact.session, item=letter.again))
            case facts.DoubtAnswered(doubt=doubt, again=again):
                if doubt.id not in self._open.doubts:
                    raise ConflictError(f"call {doubt.id!r} is not in doubt any more: it has been answered")
                if again is not None and again.action is not None:
                    self.append(facts.CycleOpened.of(again))
                    self.append(facts.Planned(session=again.session, cycle=again.cycle_id, action=again.action))
        self.append(fact)
        return None

    @property
    def open_cycles(self) -> int:
        """Return how many cycles have begun and not ended."""
        return len(self._cycles)

    # -- views

    async def items(self, agent: str) -> list[Item]:
        """Return the waiting work, the oldest first."""
        return sorted(self._open.items.values(), key=lambda item: (item.at, item.id))

    async def run(self, agent: str, run_id: str) -> tuple[Item | None, None]:
        """Return the item of a run that waits; nothing of one that has ended."""
        return self._open.items.get(run_id), None

    async def dead_letters(self, agent: str) -> list[DeadLetter]:
        """Return the dead letters that were not dealt with."""
        return [letter for letter in self._letters.values() if letter.id in self._open.put_aside]

    async def unfinished(self, agent: str) -> list[Unfinished]:
        """Return the open cycles and detached calls, in the order of their ids."""
        cycles = [completed(cycle.opened.unfinished, cycle) for cycle in self._cycles.values() if cycle.opened]
        detached = [call for name, call in self._detached.items() if name in self._open.detached]
        return sorted([*cycles, *detached], key=lambda cycle: cycle.cycle_id)

    async def doubts(self, agent: str, *, is_open: bool = True) -> list[Doubt]:
        """Return the calls in doubt; with `is_open=False` also the answered ones."""
        doubts = [doubt for doubt in self._doubts.values() if not is_open or doubt.id in self._open.doubts]
        return sorted(doubts, key=lambda doubt: (doubt.at, doubt.id))


#: Facts of work that add up to a state without cycles.
_OF_WORK: Final = frozenset({
    facts.WorkAccepted, facts.WorkChanged, facts.RetryPlanned, facts.RunAnswered, facts.CycleWritten, facts.PutAside,
    facts.LetterAnswered, facts.CallDetached, facts.CallAttached, facts.CallDoubted, facts.DoubtAnswered,
})  # fmt: skip
