"""All that can be configured, table by table (`spar.config.tables`).

Only the shapes are here; reading them from files and elsewhere is `spar.config.load`' work, judging them
`spar.config.judge`'s. Everything is frozen; unknown keys are errors.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

from msgspec import field

from spar.config.tables.agent import (
    ActingSettings,
    AgentSettings,
    ApprovalSettings,
    HealthSettings,
    RunSettings,
    SessionSettings,
)
from spar.config.tables.budgets import BudgetSettings
from spar.config.tables.fields import After
from spar.config.tables.parts import (
    ActPart,
    ChannelPart,
    NotifierPart,
    Part,
    PlanPart,
    ReflectPart,
    SensePart,
    SensorPart,
    ToolPart,
    VectorsPart,
)
from spar.config.tables.section import Options, Section, refuse
from spar.config.tables.senders import SenderSettings
from spar.config.tables.service import LogSettings, MemorySettings, ServiceSettings
from spar.config.tables.tracing import TracingSettings

Labelled = SensorPart | ChannelPart | NotifierPart
_SAME_NAME = "is the name of another {} already; give this one a `name` of its own"


def _differ_in_name(kind: str, parts: tuple[Labelled, ...]) -> tuple[Labelled, ...]:
    seen: set[str] = set()
    for index, part in enumerate(parts):
        if part.label in seen:
            refuse((index, "name" if part.name else "use"), part.label, _SAME_NAME.format(kind))
        seen.add(part.label)
    return parts


class Settings(Section, frozen=True, kw_only=True):
    """Everything that can be configured."""

    agent: AgentSettings = AgentSettings()
    """The loop: its name, its pace, its answer to errors."""
    health: HealthSettings = HealthSettings()
    """Limits from which something counts as wrong, and the number of repairs."""
    runs: RunSettings = RunSettings()
    """Runs, and the place of a message that arrives during a run."""
    sessions: SessionSettings = SessionSettings()
    """Sessions, and when one ends."""
    sense: SensePart = SensePart()
    """The module that senses."""
    plan: PlanPart = PlanPart()
    """The module that plans."""
    act: ActPart = ActPart()
    """The module that acts."""
    reflect: ReflectPart = ReflectPart()
    """The module that reflects."""
    perception: Options = field(default_factory=dict)
    """The stages of the pipeline, which checks them itself."""
    vectors: VectorsPart = VectorsPart()
    """The embedder of texts: learning by their meaning stands on its vectors."""
    sensors: Annotated[tuple[SensorPart, ...], After(partial(_differ_in_name, "sensor"))] = ()
    """The sensors; with none, only pushed perceptions and messages are perceived."""
    rules: tuple[Options, ...] = ()
    """The rules; the rules planner checks them."""
    tools: tuple[ToolPart, ...] = ()
    """The tools that calls may use."""
    channels: Annotated[tuple[ChannelPart, ...], After(partial(_differ_in_name, "channel"))] = ()
    """The channels on which people talk with the agent, besides its own doors."""
    notifiers: Annotated[tuple[NotifierPart, ...], After(partial(_differ_in_name, "notifier"))] = ()
    """The ways on which people are told of alerts."""
    plugins: tuple[Part, ...] = ()
    """The plug-ins, which register hooks and subscribe to events; a plug-in that is only installed does nothing."""
    acting: ActingSettings = ActingSettings()
    """Limits and order of calls."""
    approval: ApprovalSettings = ApprovalSettings()
    """Questions to people about calls: their rules and their time."""
    budgets: BudgetSettings = BudgetSettings()
    """How much may be used in a cycle, an hour, a day, a month."""
    senders: SenderSettings = SenderSettings()
    """People who may talk with the agent on its channels."""
    memory: MemorySettings = MemorySettings()
    """The store for experiences and cycles."""
    service: ServiceSettings = ServiceSettings()
    """The process."""
    log: LogSettings = LogSettings()
    """The log: its level, its form, its file."""
    tracing: TracingSettings = TracingSettings()
    """Traces for an OpenTelemetry collector."""
