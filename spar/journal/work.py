"""The accepted work of an agent that this process has in hand, the journal that keeps it, and the ends of its runs."""

from __future__ import annotations

from collections.abc import Callable

from spar.errors import SparError
from spar.loop.core import Core
from spar.observe.logs import get_logger
from spar.ports.store import Journal
from spar.records.journal import Item
from spar.runs.run import End, Run, RunStatus

log = get_logger("spar.recovery")


class Work:
    """The work in hand, by id, and the journal while it is open; None where none is kept."""

    __slots__ = ("in_hand", "journal")

    def __init__(self) -> None:
        self.journal: Journal | None = None
        self.in_hand: dict[str, Item] = {}


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
