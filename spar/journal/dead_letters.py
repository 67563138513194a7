"""Dead letters: work that was put aside after too many failed or interrupted attempts, until a person decides about
it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from spar.events import DeadLettered
from spar.facts import LetterAnswered, PutAside
from spar.journal.work import Work
from spar.loop.core import Core
from spar.observe.logs import get_logger
from spar.records.journal import DeadLetter, Item, demanded, named
from spar.runs.run import End
from spar.runs.runs import Runs

log = get_logger("spar.recovery")


class DeadLetters:
    """The dead letters of one agent. `totals` counts those of this process by kind."""

    __slots__ = ("_core", "_hand_out", "_runs", "_work", "totals")

    def __init__(self, core: Core, work: Work, runs: Runs, hand_out: Callable[[Item], Awaitable[None]]) -> None:
        self._core, self._work, self._runs, self._hand_out = core, work, runs, hand_out
        self.totals: dict[str, int] = {}

    async def list(self) -> list[DeadLetter]:
        """Return the letters that nobody has decided about, oldest first. Raises: ConflictError without a journal."""
        return list(await demanded(self._work.journal).views.dead_letters(self._core.name))

    def add(self, fact: PutAside) -> None:
        """Put an item aside and publish that. If the item is a run, the run ends with an error."""
        item, reason = fact.item, fact.reason
        self._core.ledger.tell(fact)
        self.totals[item.kind] = self.totals.get(item.kind, 0) + 1
        log.error("put aside", agent=self._core.name, item=item.id, attempts=item.attempts, reason=reason)
        self._core.events.publish(DeadLettered(item=item.id, reason=reason, attempts=item.attempts))
        if item.kind == "run":
            run = self._runs.restore(item, [])
            if run.started_at is None:
                self._runs.start_aside(run)
            self._runs.end(run, End("error", reason))

    async def revive(self, id: str) -> Item:
        """Try a letter again, as if it were new; return its item.

        Args: id: its id, or a unique prefix. Raises: LookupError for an unknown id; ConflictError if it was decided
        already.
        """
        return await self._answer(id, is_tried_again=True)

    async def bury(self, id: str) -> Item:
        """Drop a letter for good; return its item. Raises: as `revive`."""
        return await self._answer(id, is_tried_again=False)

    async def _answer(self, id: str, *, is_tried_again: bool) -> Item:
        letter: DeadLetter = named(await self.list(), id, "dead letter")
        session = letter.item.session
        if (owner := self._core.owner_of(session)) is not None:
            await owner.ask(session, "letter", id=letter.id, is_tried_again=is_tried_again)
            return letter.again
        fact = LetterAnswered(session=session, letter=letter, is_tried_again=is_tried_again)
        await demanded(self._work.journal).commit(fact, self._core.name)
        try:
            if is_tried_again:
                await self._hand_out(letter.again)
        finally:
            self._core.ledger.add(fact)
        return letter.again
