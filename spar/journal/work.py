"""The accepted work of an agent that this process has in hand, the journal that keeps it, and the ends of its runs."""

from __future__ import annotations

from collections.abc import Callable

from spar.data.bounded import BoundedDict
from spar.errors import SparError
from spar.loop.core import Core
from spar.observe.logs import get_logger
from spar.ports.store import Journal
from spar.records.journal import Item, demanded
from spar.records.session import SessionUse
from spar.runs.run import End, Run, RunStatus

log = get_logger("spar.recovery")

#: Ids of accepted work by which a repetition is known that is pushed, not awaited.
REMEMBERED = 10_000


class Work:
    """The work of one agent in hand, by id, and the journal while it is open; None where none is kept.

    `repeated` counts what was accepted before.
    """

    __slots__ = ("_keeps_sessions", "_name", "_recent", "in_hand", "journal", "repeated")

    def __init__(self, name: str) -> None:
        self._name = name
        self.journal: Journal | None = None
        self.in_hand: dict[str, Item] = {}
        self.repeated = 0
        self._recent: BoundedDict[str, None] | None = None  # while there is a journal
        self._keeps_sessions = False

    async def open(self, journal: Journal, *, keeps_sessions: bool) -> None:
        """Keep work in this journal from now on.

        Args: keeps_sessions: whether it keeps that work uses its session, too.
        """
        self._keeps_sessions = keeps_sessions
        recent = self._recent = BoundedDict(REMEMBERED)
        for item_id in await journal.recent_ids(self._name, REMEMBERED):
            recent[item_id] = None

    async def accept(self, item: Item, use: SessionUse | None = None) -> tuple[Item, bool]:
        """Keep new work durably, and that it uses its session; the item that counts, and whether it is new."""
        given = (item, use) if use is not None and self._keeps_sessions else (item,)
        kept, is_new = await demanded(self.journal).accept(self._name, *given)
        if is_new:
            self._note(item)
        else:
            self.repeated += 1
        return kept, is_new

    def take_in(self, item: Item) -> bool:
        """Keep new work without waiting until that is durable; False when it was accepted before."""
        if self._recent is not None and item.id in self._recent:
            self.repeated += 1
            return False
        self._note(item)
        demanded(self.journal).keep(self._name, item)
        return True

    def _note(self, item: Item) -> None:
        self.in_hand[item.id] = item
        if self._recent is not None:
            self._recent[item.id] = None


class RunEnds:
    """Keeps the ends of one agent's runs that no cycle keeps.

    Args: opened: returns the memory's journal while that is open.
    """

    __slots__ = ("_core", "_opened", "_work")

    def __init__(self, core: Core, work: Work, opened: Callable[[], Journal | None]) -> None:
        self._core, self._work, self._opened = core, work, opened

    def parts(self, run: Run, end: End) -> tuple[RunStatus, ...]:
        """Return the ends of the accepted messages that are a part of a run."""
        found: list[RunStatus] = []
        for part in run.share():
            if part.id in self._work.in_hand:
                found.append(part.status_at(end, self._core.clock.now()))
            found += self.parts(part, end)
        return tuple(found)

    def _tell_end(self, run: Run, end: End) -> bool:
        """Tell the journal that a run is over, and with it what is a part of it; False if it knows."""
        was_in_hand = run.id in self._work.in_hand
        ends = [run.status_at(end, self._core.clock.now())] if was_in_hand else []
        journal = self._work.journal
        if journal is None and self._core.state in ("created", "stopped"):  # steps by hand have opened it
            journal = self._opened()
        for each in (*ends, *self.parts(run, end)):
            del self._work.in_hand[each.run_id]
            if journal is not None:  # else it is told at the next start, if there is to be one
                journal.run_ended(each.run_id, each)
        return was_in_hand

    async def keep(self, run: Run, end: End) -> None:
        """Have the end of a run that no cycle ends on disk before anybody is told of it.

        That of one that a cycle has just ended is there, too, when this returns.
        """
        journal = self._work.journal
        if journal is None or (run.status is None and not self._tell_end(run, end)):
            return
        try:
            await journal.safe()
        except SparError as error:  # it is being closed under us, or was taken over
            log.warning("end of a run not known to be kept", agent=self._core.name, reason=str(error))

    def run_ended(self, run: Run, end: End) -> None:
        """A run has its answer; one that no cycle gave is kept here, and so is one that was changed since."""
        journal = self._work.journal
        is_new = self._tell_end(run, end)
        if journal is not None and run.is_changed and not is_new:
            journal.amended(run.id, run.status_at(None, self._core.clock.now()))
