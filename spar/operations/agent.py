"""Operations on the agent as a whole: its status, its pauses and its end, single steps, parts, live events."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import msgspec
from msgspec import Meta, Struct, field

from spar.decoding import convert, decode
from spar.observe.stats import Snapshot
from spar.operations.operation import (
    After,
    AuditRule,
    Caller,
    Column,
    CommandForm,
    Nothing,
    Stream,
    after_of,
    operation,
)
from spar.records.audit import refine
from spar.records.senders import ChannelState
from spar.replay.tally import ShadowReport, ShadowState
from spar.types import Action, ActionResult, Call, Perception, Phase, Reflection, replace

if TYPE_CHECKING:
    from spar.service.app import Service

#: Seconds that a step, a pause or a stop may take before the request is answered with a timeout.
LONG_PATIENCE: Final = 900.0
#: Clients that may read the live events at once: a tenth of all connections of the server.
WATCHERS: Final = 25


class StatusChoice(Struct, frozen=True, forbid_unknown_fields=True):
    """Choice of a status."""

    lanes: Annotated[bool, Meta(description="Whether the open sessions are included, which may be many.")] = True


class AlertRow(Struct, frozen=True):
    """Open alert. `session` is that of an alert about a single session, "" for one about the agent."""

    kind: str
    severity: str
    message: str
    since: Any
    session: str = ""


class LaneRow(Struct, frozen=True):
    """Open session: its waiting messages, its running cycle and phase, where it stands at a breakpoint ("": nowhere),
    and when it looks next (seconds)."""

    session: str
    waiting: int
    cycle: str | None = None
    phase: str | None = None
    phase_seconds: float | None = None
    waits_for_model: bool = False
    stands: str = ""
    next_look: Any = None
    next_cycle_in: float | None = None


class WaitingApprovals(Struct, frozen=True):
    """Number of approvals that wait, and the age of the oldest one in seconds."""

    pending: int
    oldest_age_seconds: float | None


class OpenWork(Struct, frozen=True):
    """Numbers of the work that recovery found: left to people, waiting, and to be retried."""

    in_doubt: int
    dead_letters: int
    in_hand: int
    to_be_retried: int


class ModelRow(Struct, frozen=True):
    """Availability of a model: `closed` answers, `open` is tried again in `wait` seconds, `half_open` at once."""

    model: str
    state: str
    reason: str
    wait: float


class BudgetRow(Struct, frozen=True):
    """Use of a budget; money in millionths."""

    budget: str
    used: int
    limit: int
    ratio: float
    refused: int
    ends_at: datetime | None


class StepRow(Struct, frozen=True):
    """Step of recovery: what was done with which part, and why."""

    at: Any
    step: str
    part: str
    reason: str


class HealthRow(Struct, frozen=True):
    """Health of the agent: whether the planner makes do with less, and the latest steps of recovery."""

    degraded: bool
    steps: list[StepRow]


class StoredCounts(Struct, frozen=True):
    """Numbers of cycles and experiences: written, waiting to be written, lost."""

    stored: int
    waiting: int
    lost: int


class AgentStatus(Struct, frozen=True):
    """Status of the agent: its state, figures and alerts, the sessions that stand at breakpoints, and the snapshots of
    its parts by name.

    Commands read the fields without a default. They say which of them a service of another version does not send.
    """

    name: str
    state: str
    failure: str
    loop_interval: Any
    stats: Snapshot
    alerts: list[AlertRow]
    senders_waiting: int
    open_runs: int
    stored_counts: StoredCounts = field(name="kept")
    blocked_by: str
    health: HealthRow
    modules: dict[str, dict[str, Any]]
    channels: dict[str, ChannelState]
    budgets: list[BudgetRow]
    recovery: OpenWork
    models: list[ModelRow]
    waiting_for_models: int
    calls: dict[str, int]
    warnings: list[str]
    approvals: WaitingApprovals
    lanes: list[LaneRow] = []
    stands: list[str] = []
    left_behind: int = 0
    hooks: Any = None
    memory: Any = None


class Status(Struct, frozen=True):
    """Status of the service: its version, process and addresses, and its agent."""

    version: str
    pid: int
    started_at: datetime
    config: str | None
    addresses: dict[str, str]
    agent: AgentStatus
    shadow: ShadowState | None = None


@operation("status", "GET /v1/status", "read", where="service", served="always", is_masked=True)
async def status(service: Service, given: StatusChoice) -> Status:
    """Return the status of the service."""
    return cast("Status", service.status(has_lanes=given.lanes))


@operation("shadow", "GET /v1/shadow", "read", where="service", command=CommandForm(
    rows=lambda report: report.disagreements,
    columns=(Column(">times", "count"), Column("disagreement", "what"),
             Column("first", lambda row: row.first.at, "time"),
             Column("in cycle", lambda row: row.first.cycle_id[:12])),
    empty=lambda given: "no disagreement",
    also=(CommandForm(sentence=lambda given, report: report.line),),
    examples=("spar shadow", "spar shadow --json"),
))  # fmt: skip
async def show_shadow(service: Service, given: Nothing) -> ShadowReport:
    """Report how often the second configuration of `spar run --shadow` agrees, and the disagreements by frequency."""
    if service.shadow is None:
        advice = "spar run --shadow other.toml starts one"
        raise LookupError(f"no second configuration decides beside this service; {advice}")
    return service.shadow.report()


# -- the verbs of the agent


class AgentChange(Struct, frozen=True):
    """Effect of a verb on the agent: its state before and after."""

    agent: str
    before: str
    after: str


class Reloaded(AgentChange, frozen=True):
    """Effect of a reload: the keys of the settings that changed, and of those that need a restart."""

    changed: tuple[str, ...] = ()
    needs_restart: tuple[str, ...] = ()


def _effect(given: Any, change: AgentChange) -> str:
    return f"{change.agent}: {change.before} → {change.after}"


def _reload_effect(given: Any, change: Reloaded) -> str:
    later = f"; only after a restart: {', '.join(change.needs_restart)}" if change.needs_restart else ""
    return f"{change.agent}: reloaded, changed: {', '.join(change.changed) or 'nothing'}{later}"


def _begin(service: Service) -> str:
    """Return the state of the agent, and note it in the entry of the audit log."""
    before: str = service.agent.core.state
    refine(subject=service.agent.name, detail={"state": before})
    return before


@operation("pause", "POST /v1/agent:pause", "operate", patience=LONG_PATIENCE,
           audit=AuditRule("agent.pause", ("state.pause",)),
           command=CommandForm(sentence=_effect, examples=("spar pause",)))  # fmt: skip
async def pause(service: Service, given: Nothing) -> AgentChange:
    """Let the running cycles finish and begin no other; returns when they have finished."""
    before = _begin(service)
    await service.agent.pause()
    return AgentChange(service.agent.name, before, service.agent.core.state)


@operation("resume", "POST /v1/agent:resume", "operate", patience=LONG_PATIENCE,
           audit=AuditRule("agent.resume", ("state.pause",)),
           command=CommandForm(sentence=_effect, examples=("spar resume",)))  # fmt: skip
async def resume(service: Service, given: Nothing) -> AgentChange:
    """Continue after a pause."""
    before = _begin(service)
    await service.agent.resume()
    return AgentChange(service.agent.name, before, service.agent.core.state)


@operation("reload", "POST /v1/agent:reload", "operate", patience=LONG_PATIENCE,
           audit=AuditRule("agent.reload", ("state.pause",)),
           command=CommandForm(sentence=_reload_effect, examples=("spar config check && spar reload",)))  # fmt: skip
async def reload(service: Service, given: Nothing) -> Reloaded:
    """Read the configuration again and apply the settings that need no restart, between two cycles."""
    before = _begin(service)
    event = await service.reload()
    return Reloaded(service.agent.name, before, service.agent.core.state, event.changed, event.needs_restart)


@operation("stop", "POST /v1/agent:stop", "operate", served="always", patience=LONG_PATIENCE,
           audit=AuditRule("agent.stop", is_first=lambda service, given: True))  # fmt: skip
async def stop(service: Service, given: Nothing) -> AgentChange:
    """Let the running service finish its work and end; returns at once."""
    before = _begin(service)
    await service.stop()
    return AgentChange(service.agent.name, before, service.agent.core.state)


# -- single steps


class StepInput(Struct, frozen=True, forbid_unknown_fields=True):
    """Input of a step: a JSON value, by default the output of the step before."""

    value: msgspec.Raw = msgspec.Raw()


def _input_of(given: Struct, phase: Phase) -> Any:
    """Return the input of a phase, None for the output of the step before. Raises: ValueError."""
    value = given.value if isinstance(given, StepInput) else msgspec.Raw()
    return step_input(phase, decoded(value)) if bytes(value) else None


async def _step(service: Service, given: StepInput, phase: Phase) -> Any:
    """Run one phase with an input, by default with the output of the step before."""
    refine(subject=service.agent.name)
    return await service.agent.stepper.step(phase, _input_of(given, phase))


def _entry(phase: Phase) -> AuditRule:
    """Return the entry of a step, which is written before it: a stop may cut it off and close the memory."""

    def may_step(service: Service, given: Struct) -> bool:
        from spar.agent.lifecycle import LEGAL

        _input_of(given, phase)
        return "step" in LEGAL[service.agent.core.state]

    return AuditRule(f"agent.step_{phase}", is_first=may_step)


@operation("step sense", "POST /v1/agent:step_sense", "step", patience=LONG_PATIENCE, audit=_entry("sense"))
async def step_sense(service: Service, given: Nothing) -> list[Perception]:
    """Run the phase sense and return its perceptions."""
    refine(subject=service.agent.name)
    return list(await service.agent.stepper.step("sense", None))


@operation("step plan", "POST /v1/agent:step_plan", "step", patience=LONG_PATIENCE, audit=_entry("plan"))
async def step_plan(service: Service, given: StepInput) -> Action | None:
    """Run the phase plan about perceptions and return its action, null for none."""
    return cast("Action | None", await _step(service, given, "plan"))


@operation("step act", "POST /v1/agent:step_act", "step", patience=LONG_PATIENCE, audit=_entry("act"))
async def step_act(service: Service, given: StepInput) -> ActionResult:
    """Run the phase act with an action, a list of calls or one call: any tool with any parameters."""
    return cast("ActionResult", await _step(service, given, "act"))


@operation("step reflect", "POST /v1/agent:step_reflect", "step", patience=LONG_PATIENCE, audit=_entry("reflect"))
async def step_reflect(service: Service, given: StepInput) -> Reflection:
    """Run the phase reflect about the result of an action."""
    return cast("Reflection", await _step(service, given, "reflect"))


# -- live events


class EventsChoice(Struct, frozen=True, forbid_unknown_fields=True):
    """Choice of live events."""

    type: Annotated[
        list[str],
        Meta(description="Only events of these classes, separated by commas; a base class includes its subclasses."),
    ] = field(default_factory=list)
    session: Annotated[str | None, Meta(description="Only of this session; empty: only events of no session.")] = None
    after: After = None


@operation("events", "GET /v1/events", "read", served="always", streams=(WATCHERS, "watch the events"))
async def events(service: Service, given: EventsChoice, caller: Caller) -> Stream:
    """Stream the events of the agent as server-sent events, until the client disconnects. With `after` or
    `Last-Event-ID`, the stream begins with the buffered events after that number (0: all)."""
    from spar.service.feed import kinds_of

    names = frozenset(filter(None, ",".join(given.type).split(",")))
    kinds = kinds_of(names) if names else frozenset()
    reader = service.feed.read(after_of(caller, given.after), kinds, given.session)
    return Stream(reader, lambda event: event.type, lambda: reader.seen, reader.close)


# -- the input of a step

#: The type of each phase's input.
KINDS: Mapping[str, Any] = {"plan": list[Perception], "act": Action, "reflect": ActionResult}


def decoded(body: bytes | msgspec.Raw) -> Any:
    """Return the JSON value of a body. Raises: ValueError."""
    try:
        return decode(bytes(body), Any)
    except RecursionError:
        raise ValueError("the body cannot be read: it is nested too deeply") from None
    except msgspec.DecodeError as error:
        raise ValueError(f"the body cannot be read: {error}") from None


def step_input(phase: str, value: Any) -> Any:
    """Return the input of a phase.

    Args: value: JSON value; for act an action, a list of calls or one call; each call with its fields or in the form
        of models (`{"_tool": …}`).
    Raises: ValueError that names the wrong place.
    """
    try:
        return _action(value) if phase == "act" else convert(value, KINDS[phase])
    except msgspec.ValidationError as error:
        raise ValueError(f"the given value does not fit: {error}") from None


def _action(value: Any) -> Action:
    if isinstance(value, list) or (isinstance(value, Mapping) and "_tool" in value):
        value = {"calls": value if isinstance(value, list) else [value]}
    calls = value.get("calls") if isinstance(value, Mapping) else None
    if not isinstance(calls, list):
        return convert(value, Action)
    decoded = tuple(_call(call, f"calls[{index}]") for index, call in enumerate(calls))
    return replace(convert({**value, "calls": []}, Action), calls=decoded)


def _call(value: Any, where: str) -> Call:
    try:
        is_wire = isinstance(value, Mapping) and "_tool" in value
        return Call.from_wire(value) if is_wire else convert(value, Call)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
