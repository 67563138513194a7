"""Agent as a service and its interfaces use it: one protocol for each use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from spar.agent.lifespan import Lifespan
from spar.agent.measured import Blockable, Measured
from spar.agent.submission import Submission
from spar.health.error_reporting import ErrorReporter
from spar.observe.stats import Snapshot
from spar.records.abilities import KnownAbilities
from spar.records.run_options import RunOptions
from spar.records.runs import Receipt, RunStatus
from spar.records.session import Origin, SessionRecord
from spar.session.control.session_control import SessionControl
from spar.session.control.session_records import SessionRecords
from spar.types import Action, ActionResult, Perception, Phase, Reflection

if TYPE_CHECKING:
    from spar.config.load import Settings
    from spar.session.control.forks import Forks


class Startable(Protocol):
    """Agent that is started and stopped."""

    async def start(self, *, resume: bool = False) -> None: ...
    async def run(self) -> None: ...
    async def stop(self, deadline: float | None = None) -> None: ...


class Pausable(Protocol):
    """Agent that can be paused."""

    async def pause(self) -> None: ...
    async def resume(self) -> None: ...


class TakesRuns(Protocol):
    """Agent that accepts runs."""

    async def submit(
        self,
        message: str | Perception,
        *,
        session: str | None = None,
        mode: str | None = None,
        idempotency_key: str | None = None,
        output: Mapping[str, Any] | None = None,
        options: RunOptions | Mapping[str, Any] | None = None,
        origin: Origin | None = None,
    ) -> Receipt: ...
    async def wait(self, run_id: str, timeout: float | None = 30.0) -> RunStatus: ...
    async def abort(self, run_id: str) -> None: ...
    async def reset(self, session: str, *, by: str = "") -> SessionRecord: ...
    async def feedback(self, run_id: str, good: bool, why: str = "") -> None: ...


class Steppable(Protocol):
    """Agent whose phases run one by one."""

    async def step_sense(self) -> list[Perception]: ...
    async def step_plan(self, perceptions: Perception | Sequence[Perception] | None = None) -> Action | None: ...
    async def step_act(self, action: Action | None = None) -> ActionResult: ...
    async def step_reflect(self, result: ActionResult | None = None) -> Reflection: ...


class Exchangeable(Protocol):
    """Agent whose modules and settings are replaced while it runs. `lifespan` has the functions that create new
    modules."""

    @property
    def lifespan(self) -> Lifespan: ...
    async def exchange(self, parts: Mapping[Phase, Any], settings: Settings) -> None: ...


class AsksRuns(Blockable, TakesRuns, Protocol):
    """Agent as the interfaces use it, from another thread than its own."""


class Served(AsksRuns, Measured, Startable, Pausable, Steppable, Exchangeable, Protocol):
    """Agent of a service."""

    @property
    def stats(self) -> Snapshot: ...
    @property
    def reports(self) -> ErrorReporter: ...
    @property
    def session_records(self) -> SessionRecords: ...
    @property
    def abilities(self) -> KnownAbilities: ...
    @property
    def submission(self) -> Submission: ...
    @property
    def session_control(self) -> SessionControl: ...
    @property
    def forks(self) -> Forks: ...
    def caches(self) -> tuple[object, ...]: ...
