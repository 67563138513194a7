"""All that can be configured, table by table (`spar.config.tables`).

Only the shapes are here; reading them from files and elsewhere is `spar.config.load`' work. Durations are seconds
and may be written as `"500ms"`, `"30s"`, `"5m"`, `"1h"`, `"2d"`. Everything is frozen; unknown keys are errors.
"""

from __future__ import annotations

from pydantic import ConfigDict, Field, ValidationInfo, field_validator

from spar.config.tables.agent import (
    ActingSettings,
    AgentSettings,
    ApprovalSettings,
    HealthSettings,
    RunSettings,
    SessionSettings,
)
from spar.config.tables.budgets import BudgetSettings
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


class Settings(Section):
    """Everything that can be configured. Made by hand it takes what it is given and looks nowhere else."""

    model_config = ConfigDict(defer_build=True)  # who loads a configuration builds another one (`spar.config.sources`)

    agent: AgentSettings = AgentSettings.model_construct()
    """The loop: its name, its pace, its answer to errors."""
    health: HealthSettings = HealthSettings.model_construct()
    """Limits from which something counts as wrong, and the number of repairs."""
    runs: RunSettings = RunSettings.model_construct()
    """Runs, and the place of a message that arrives during a run."""
    sessions: SessionSettings = SessionSettings.model_construct()
    """Sessions, and when one ends."""
    sense: SensePart = SensePart.model_construct()
    """The module that senses."""
    plan: PlanPart = PlanPart.model_construct()
    """The module that plans."""
    act: ActPart = ActPart.model_construct()
    """The module that acts."""
    reflect: ReflectPart = ReflectPart.model_construct()
    """The module that reflects."""
    perception: Options = Field({})
    """The stages of the pipeline, which checks them itself."""
    vectors: VectorsPart = VectorsPart.model_construct()
    """The embedder of texts: learning by their meaning stands on its vectors."""
    sensors: tuple[SensorPart, ...] = ()
    """The sensors; with none, only pushed perceptions and messages are perceived."""
    rules: tuple[Options, ...] = ()
    """The rules; the rules planner checks them."""
    tools: tuple[ToolPart, ...] = ()
    """The tools that calls may use."""
    channels: tuple[ChannelPart, ...] = ()
    """The channels on which people talk with the agent, besides its own doors."""
    notifiers: tuple[NotifierPart, ...] = ()
    """The ways on which people are told of alerts."""
    plugins: tuple[Part, ...] = ()
    """The plug-ins, which register hooks and subscribe to events; a plug-in that is only installed does nothing."""
    acting: ActingSettings = ActingSettings.model_construct()
    """Limits and order of calls."""
    approval: ApprovalSettings = ApprovalSettings.model_construct()
    """Questions to people about calls: their rules and their time."""
    budgets: BudgetSettings = BudgetSettings.model_construct()
    """How much may be used in a cycle, an hour, a day, a month."""
    senders: SenderSettings = SenderSettings.model_construct()
    """People who may talk with the agent on its channels."""
    memory: MemorySettings = MemorySettings.model_construct()
    """The store for experiences and cycles."""
    service: ServiceSettings = ServiceSettings.model_construct()
    """The process."""
    log: LogSettings = LogSettings.model_construct()
    """The log: its level, its form, its file."""
    tracing: TracingSettings = TracingSettings.model_construct()
    """Traces for an OpenTelemetry collector."""

    @field_validator("sensors", "channels", "notifiers")
    @classmethod
    def _differ_in_name(cls, parts: tuple[Labelled, ...], info: ValidationInfo) -> tuple[Labelled, ...]:
        seen: set[str] = set()
        for index, part in enumerate(parts):
            if part.label in seen:
                sentence = _SAME_NAME.format(str(info.field_name).removesuffix("s"))
                refuse((index, "name" if part.name else "use"), part.label, sentence)
            seen.add(part.label)
        return parts
