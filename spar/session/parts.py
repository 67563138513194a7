"""The parts of an agent that its sessions, its lifecycle and its submission share."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from spar.health.error_reporting import ErrorReporter
from spar.health.health import Health
from spar.journal.recovery import Recovery
from spar.journal.state.agent_state import AgentState
from spar.loop.core import Core
from spar.loop.setup import Setup
from spar.loop.tasks import Requests
from spar.observe.stats import SessionStats, Stats
from spar.runs.runs import Runs
from spar.session.holding import Holding

if TYPE_CHECKING:
    from spar.journal.cycle_log import CycleLog
    from spar.runs.outbox import RunMessages
    from spar.runs.transcripts import SessionTranscripts
    from spar.session.control.session_records import SessionRecords
    from spar.session.session_hooks import SessionHooks


class Conversing(Protocol):
    """Conversations of an agent, as far as its sessions use them."""

    @property
    def outbox(self) -> RunMessages: ...
    @property
    def transcripts(self) -> SessionTranscripts: ...
    @property
    def hooks(self) -> SessionHooks: ...
    @property
    def records(self) -> SessionRecords: ...


class MadeLater(Protocol):
    """Agent, as far as it makes parts when they are first used."""

    @property
    def conversations(self) -> Conversing: ...
    @property
    def cycle_log(self) -> CycleLog | AgentState: ...


class SessionParts(Struct, frozen=True, eq=False, dict=True):
    """Parts that every session of one agent uses: modules, journal, runs, reports, health and statistics.

    `later` makes what only messages, and what only a memory needs.
    """

    core: Core
    setup: Setup
    requests: Requests
    holding: Holding
    runs: Runs
    recovery: Recovery
    agent_state: AgentState
    later: MadeLater
    reports: ErrorReporter
    health: Health
    account: Stats
    session_accounts: SessionStats

    @cached_property
    def conversations(self) -> Conversing:
        """Parts that only messages need, which the first one makes."""
        return self.later.conversations

    @cached_property
    def cycle_log(self) -> CycleLog | AgentState:
        """Log of the cycles."""
        return self.later.cycle_log
