"""Agent as metrics and status read it: its figures and parts, without operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from spar.agent.attachments import Attachments
from spar.agent.lifecycle import Lifecycle
from spar.budgets.budgets import Budgets
from spar.health.health import Health
from spar.health.watched import Watched
from spar.journal.recovery import Recovery
from spar.journal.state.agent_state import AgentState
from spar.loop.core import Core
from spar.loop.setup import Setup
from spar.loop.tasks import Requests
from spar.observe.learning import LearningCounts
from spar.observe.stats import Stats
from spar.protocols import Warns
from spar.runs.runs import Runs
from spar.session.sessions import Sessions
from spar.types import Ability


class Counted(Protocol):
    """Figures of an agent."""

    @property
    def account(self) -> Stats: ...
    @property
    def stored_counts(self) -> dict[str, int]: ...
    @property
    def learnt(self) -> LearningCounts: ...
    @property
    def abilities(self) -> Mapping[str, Ability]: ...
    @property
    def refused(self) -> int: ...
    @property
    def left_behind(self) -> int: ...
    @property
    def last_completed_at(self) -> float: ...


class Blockable(Protocol):
    """Agent whose event loop is watched for being blocked."""

    @property
    def name(self) -> str: ...
    @property
    def core(self) -> Core: ...
    @property
    def requests(self) -> Requests: ...
    @property
    def watched(self) -> Watched: ...


class Measured(Counted, Blockable, Protocol):
    """Agent as it is measured: its figures, and the parts that report their state."""

    @property
    def lifecycle(self) -> Lifecycle: ...
    @property
    def setup(self) -> Setup: ...
    @property
    def health(self) -> Health: ...
    @property
    def budgets(self) -> Budgets: ...
    @property
    def agent_state(self) -> AgentState: ...
    @property
    def recovery(self) -> Recovery: ...
    @property
    def runs(self) -> Runs: ...
    @property
    def sessions(self) -> Sessions: ...
    @property
    def attachments(self) -> Attachments: ...
    @property
    def memory(self) -> Any: ...


def stands_of(agent: Measured) -> list[str]:
    """Return where sessions stand still by hand; may be called from any thread."""
    sessions = list(agent.sessions.by_key.values())
    return [f"session {session.key!r} stands at {where}" for session in sessions for where in session.stands]


def warnings_of(agent: Measured) -> list[str]:
    """Return the modules' warnings about the configuration; may be called from any thread."""
    warnings: list[str] = []
    for module in agent.setup.modules.values():
        if isinstance(module.part, Warns):
            try:
                warnings += [str(warning) for warning in module.part.warnings()]
            except Exception as error:  # a user's part failed; the others are still read
                warnings.append(f"{module.name} cannot say what is wrong with it: {error!r:.200}")
    return warnings
