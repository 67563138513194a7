"""The acceptance of work, the journal that keeps it, and the ends of its runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from spar.data.bounded import BoundedDict
from spar.errors import InboxFullError, SparError
from spar.facts import AnswerChanged, RunAnswered, WorkAccepted, WorkChanged, WorkLeft
from spar.loop.core import Core
from spar.observe.logs import get_logger
from spar.records.journal import Item, demanded
from spar.records.session import SessionUse
from spar.runs.run import End, Run
from spar.state.apply import Ledger
from spar.types import Perception

if TYPE_CHECKING:
    from spar.ports.store import Journal

log = get_logger("spar.recovery")

#: The most ids of accepted work that are remembered to recognize a repeated push; without a journal the most ids and
#: keys of accepted perceptions.
REMEMBERED = 10_000


class Work:
    """Accepted work of one agent, and its journal while that is open; None without a journal.

    `repeated` counts the work that had been accepted before.
    """

    __slots__ = ("_accepted", "_keeps_sessions", "_ledger", "_name", "_recent", "journal", "repeated")

    def __init__(self, name: str, ledger: Ledger) -> None:
        self._name, self._ledger = name, ledger
        self.journal: Journal | None = None
        self.repeated = 0
        self._recent: BoundedDict[str, None] | None = None  # None without a journal
        self._accepted = BoundedDict[str, None](REMEMBERED)  # used without a journal
        self._keeps_sessions = False

    async def open(self, journal: Journal, *, keeps_sessions: bool) -> None:
        """Keep accepted work in this journal from now on.

        Args: keeps_sessions: the journal also records the use of sessions.
        """
        self._keeps_sessions = keeps_sessions
        recent = self._recent = BoundedDict(REMEMBERED)
        for item_id in await journal.views.recent_ids(self._name, REMEMBERED):
            recent[item_id] = None

    async def accept(self, item: Item, use: SessionUse | None = None) -> tuple[Item, bool]:
        """Journal new work durably, with the use of its session. Return the item that counts (the first accepted one),
        and whether it is new."""
        fact = WorkAccepted(session=item.session, item=item, use=use if self._keeps_sessions else None)
        earlier = await demanded(self.journal).commit(fact, self._name)
        if earlier is not None:
            self.repeated += 1
            return earlier, False
        self._ledger.add(fact)
        self._remember(item)
        return item, True

    def accept_unkept(self, item: Item, hand_over: Callable[[Perception], bool]) -> bool:
        """Hand over a perception without a journal. Return False if it was accepted before. Raises: InboxFullError."""
        names = {item.id, item.key or item.id}
        if not self._accepted.keys().isdisjoint(names):
            self.repeated += 1
            return False
        if not hand_over(item.perception):
            raise InboxFullError(f"too much waits in session {item.session!r}; try again later")
        self._accepted.update(dict.fromkeys(names))
        return True

    def take_in(self, item: Item) -> bool:
        """Journal new work without waiting for the disk. Return False if it was accepted before."""
        if self._recent is not None and item.id in self._recent:
            self.repeated += 1
            return False
        self._ledger.tell(WorkChanged(session=item.session, item=item))
        self._remember(item)
        return True

    def items(self, session: str) -> Mapping[str, Item]:
        """Return the accepted work of a session that has not ended, by id."""
        state = self._ledger.states.get(session)
        return {} if state is None else state.items

    def _remember(self, item: Item) -> None:
        if self._recent is not None:
            self._recent[item.id] = None


class LedgerJournal:
    """Journal in which the actor of an agent records its calls: their facts go to the agent's ledger, which keeps them
    in `journal`."""

    __slots__ = ("append", "epoch", "is_open", "next_fence", "safe")

    def __init__(self, ledger: Ledger, journal: Journal) -> None:
        self.append, self.epoch = ledger.tell, journal.epoch
        self.is_open, self.next_fence, self.safe = journal.is_open, journal.next_fence, journal.safe


class RunEnds:
    """Writer of the ends of runs.

    Args: opened: returns the memory's journal while that is open.
    """

    __slots__ = ("_core", "_opened", "_work")

    def __init__(self, core: Core, work: Work, opened: Callable[[], Journal | None]) -> None:
        self._core, self._work, self._opened = core, work, opened

    def write(self, run: Run, end: End, cycle: str = "") -> None:
        """Journal the end of a run, unless that was done. Args: cycle: the cycle with whose end it ends."""
        if run.id not in self._work.items(run.session):
            return
        journal = self._work.journal
        if journal is None and self._core.state in ("created", "stopped"):  # steps by hand may have opened it
            journal = self._opened()
        if journal is None:  # the next start ends it
            self._core.ledger.add(WorkLeft(session=run.session, items=(run.id,)))
            return
        try:
            answer = run.status_at(end, self._core.clock.now())
            fact = RunAnswered(session=run.session, run=run.id, answer=answer, cycle=cycle)
            journal.append(fact, self._core.name)
            self._core.ledger.add(fact)
        except Exception as error:  # anybody may have written the store; its failure must not fail the session
            self._core.ledger.add(WorkLeft(session=run.session, items=(run.id,)))
            log.error("end of a run not journalled", agent=self._core.name, run=run.id, reason=repr(error))

    async def safe(self) -> None:
        """Wait until the ends of runs are on disk."""
        journal = self._work.journal
        if journal is None:
            return
        try:
            await journal.safe()
        except SparError as error:  # the journal is being closed, or another process has taken it over
            log.warning("end of a run not known to be kept", agent=self._core.name, reason=str(error))

    def amend(self, run: Run) -> None:
        """Journal the answer of an ended run if hooks have changed it since its end was journalled."""
        if run.is_changed and self._work.journal is not None:
            answer = run.status_at(None, self._core.clock.now())
            fact = AnswerChanged(session=run.session, run=run.id, answer=answer)
            self._work.journal.append(fact, self._core.name)
