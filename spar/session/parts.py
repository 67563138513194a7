"""The parts of an agent that its sessions, its lifecycle and its submission share."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from spar.health.error_reporting import ErrorReporter
from spar.health.health import Health
from spar.journal.cycle_log import CycleLog
from spar.journal.recovery import Recovery
from spar.journal.state.agent_state import AgentState
from spar.journal.work import Work
from spar.loop.core import Core
from spar.loop.setup import Setup
from spar.loop.tasks import Requests
from spar.observe.stats import SessionStats, Stats
from spar.runs.runs import Runs
from spar.session.holding import Holding

if TYPE_CHECKING:
    from spar.runs.outbox import RunMessages
    from spar.runs.transcripts import SessionTranscripts
    from spar.session.session_hooks import SessionHooks


class Conversing(Protocol):
    """Conversations of an agent, as far as its sessions use them."""

    @property
    def outbox(self) -> RunMessages: ...
    @property
    def transcripts(self) -> SessionTranscripts: ...
    @property
    def hooks(self) -> SessionHooks: ...


class SessionParts(Struct, frozen=True, eq=False, dict=True):
    """Parts that every session of one agent uses: modules, journal, runs, reports, health and statistics.

    `converse` makes what only messages need.
    """

    core: Core
    setup: Setup
    requests: Requests
    holding: Holding
    runs: Runs
    work: Work
    recovery: Recovery
    cycle_log: CycleLog
    agent_state: AgentState
    converse: Callable[[], Conversing]
    reports: ErrorReporter
    health: Health
    account: Stats
    session_accounts: SessionStats

    @cached_property
    def conversations(self) -> Conversing:
        """Parts that only messages need, which the first one makes."""
        return self.converse()
