"""An agent as a service drives it and its doors ask it: a protocol for each thing that they do with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from spar.agent.lifecycle import Lifecycle
from spar.agent.lifespan import Lifespan
from spar.agent.measured import Blockable, Measured
from spar.agent.submission import Submission
from spar.health.error_reporting import ErrorReporter
from spar.loop.tasks import Requests
from spar.observe.stats import Snapshot
from spar.records.run_options import RunOptions
from spar.records.session import Origin, SessionRecord
from spar.runs.run import Receipt, RunStatus
from spar.session.control.session_control import SessionControl
from spar.session.control.session_records import SessionRecords
from spar.types import Ability, Action, ActionResult, Perception, Reflection

if TYPE_CHECKING:
    from spar.config.load import Settings


class Startable(Protocol):
    """An agent that is run."""

    async def start(self, *, resume: bool = False) -> None: ...
    async def run(self) -> None: ...
    async def stop(self, deadline: float | None = None) -> None: ...


class Pausable(Protocol):
    """An agent that rests when asked to."""

    async def pause(self) -> None: ...
    async def resume(self) -> None: ...


class TakesRuns(Protocol):
    """An agent that is given runs."""

    async def submit(
        self,
        message: str | Perception,
        *,
        session: str = "main",
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
    """An agent whose phases are tried one by one."""

    async def step_sense(self) -> list[Perception]: ...
    async def step_plan(self, perceptions: Perception | Sequence[Perception] | None = None) -> Action | None: ...
    async def step_act(self, action: Action | None = None) -> ActionResult: ...
    async def step_reflect(self, result: ActionResult | None = None) -> Reflection: ...


class Exchangeable(Protocol):
    """An agent whose modules and settings are exchanged while it runs; `lifespan` keeps what makes them anew."""

    @property
    def lifespan(self) -> Lifespan: ...
    async def exchange(self, parts: Mapping[str, Any], settings: Settings) -> None: ...


class AsksRuns(Blockable, TakesRuns, Protocol):
    """An agent as the doors give it runs, from another thread than its own."""


class Served(AsksRuns, Measured, Startable, Pausable, Steppable, Exchangeable, Protocol):
    """The agent of a service."""

    @property
    def stats(self) -> Snapshot: ...
    @property
    def requests(self) -> Requests: ...
    @property
    def reports(self) -> ErrorReporter: ...
    @property
    def lifecycle(self) -> Lifecycle: ...
    @property
    def session_records(self) -> SessionRecords: ...
    @property
    def abilities(self) -> Mapping[str, Ability]: ...
    @property
    def submission(self) -> Submission: ...
    @property
    def session_control(self) -> SessionControl: ...
    def caches(self) -> tuple[object, ...]: ...
