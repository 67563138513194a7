"""The acceptance of work, the journal that keeps it, and the ends of its runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from spar.errors import ConflictError, NotReadyError, SparError
from spar.facts import RunAnswered, WorkChanged
from spar.journal.state.agent_state import AgentState
from spar.loop.core import Core
from spar.observe.logs import get_logger
from spar.records.journal import Item
from spar.records.runs import RunStatus, known_status
from spar.runs.runs import Run, Runs

if TYPE_CHECKING:
    from spar.data.bounded import BoundedDict
    from spar.ports.store import Journal

log = get_logger("spar.recovery")

#: Seconds after which a refused caller may ask again; a start usually takes less.
STARTS_WITHIN = 1.0
#: The most ids of accepted work that are remembered to recognize a repeated push.
REMEMBERED = 10_000


class Work:
    """Accepted work of one agent.

    Attributes: has_begun: whether the unfinished work of earlier processes has been read; repeated: how much work had
        been accepted before; polled: for each trait (hash) of a perception that will be polled again, how often it was
        current when a process died.
    """

    __slots__ = ("__dict__", "_agent_state", "_core", "_ledger", "_recent", "has_begun", "polled", "repeated")

    def __init__(self, core: Core, agent_state: AgentState, runs: Runs) -> None:
        self._core, self._ledger, self._agent_state = core, core.ledger, agent_state
        self.has_begun, self.repeated = False, 0
        self.polled: dict[str, int] = {}
        core.ledger.in_memory = lambda: agent_state.in_memory
        self._recent: BoundedDict[str, None] | None = None  # ids of accepted work, while a journal is open
        runs.write_end, runs.earlier = self.write_end, self._earlier

    @property
    def stored(self) -> Journal:
        """Return the journal of the memory. Raises: ConflictError if there is none, or it is not open."""
        if (journal := self._agent_state.journal) is None:
            raise ConflictError("there is no journal: the agent has no memory that keeps one, or has not been started")
        return journal

    # -- whether work is accepted

    @property
    def is_ready(self) -> bool:
        """Return whether work can be accepted: the journal was opened and read, or is in memory."""
        return self.has_begun or not self._agent_state.has_journal

    @property
    def can_keep(self) -> bool:
        """Return whether pushed perceptions can be kept: what was accepted before is known, or no memory keeps it."""
        return self._recent is not None or not self._agent_state.has_journal

    def demand_ready(self, what: str) -> None:
        """Check that work can be accepted. Raises: NotReadyError while the journal is not open."""
        if not self.is_ready:
            core = self._core
            raise NotReadyError(
                f"cannot {what} now: the journal of agent {core.name!r} is not open ({core.state}); "
                "start the agent and try again",
                retry_after=STARTS_WITHIN,
            )

    # -- accepted work

    def take_in(self, item: Item) -> bool:
        """Journal new work without waiting for the disk. Return False if it was accepted before."""
        if self._recent is not None and item.id in self._recent:
            self.repeated += 1
            return False
        self._ledger.journal.append(WorkChanged(session=item.session, item=item), self._core.name)
        return True

    def took(self, item: Item) -> None:
        """Add a perception that the journal has to the state of its session, and remember its id."""
        self._ledger.add(WorkChanged(session=item.session, item=item))
        if self._recent is not None:
            self._recent[item.id] = None

    def items(self, session: str) -> Mapping[str, Item]:
        """Return the accepted work of a session that has not ended, by id."""
        state = self._ledger.states.get(session)
        return {} if state is None else state.items

    # -- ends of runs

    def write_end(self, run: Run, answer: RunStatus) -> None:
        """Journal the end of a run."""
        is_written = self.is_ready or self._core.state in ("created", "stopped")  # else the next start ends it
        answered = RunAnswered(session=run.session, run=run.id, answer=answer)
        self._ledger.add(answered)
        try:
            if is_written:
                self._ledger.journal.append(answered, self._core.name)
        except Exception as error:  # anybody may have written the store; its failure must not fail the session
            log.error("end of a run not journalled", agent=self._core.name, run=run.id, reason=repr(error))

    async def safe(self) -> None:
        """Wait until all that was journalled, as the ends of runs, is on disk; a failure is logged."""
        try:
            await self._ledger.journal.safe()
        except SparError as error:  # the journal is being closed, or another process has taken it over
            log.warning("end of a run not known to be kept", agent=self._core.name, reason=str(error))

    # -- status

    async def _earlier(self, run_id: str, timeout: float | None) -> RunStatus:
        """Return the status of a run that this process does not have."""
        shared = self._core.shared
        return await (self.status_of(run_id) if shared is None else shared.wait(run_id, timeout))

    async def status_of(self, run_id: str) -> RunStatus:
        """Return the status of a run of an earlier process. Raises: LookupError for an unknown run."""
        return known_status(run_id, *await self._ledger.journal.views.run(self._core.name, run_id))
