"""All settings, table by table (`spar.config.tables`).

This module only describes them; `spar.config.load` reads and validates them. All tables are frozen; unknown keys are
errors.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Struct, field

from spar.config.tables import parts
from spar.config.tables.agent import (
    ActingSettings,
    AgentSettings,
    ApprovalSettings,
    BreakpointSettings,
    ForkSettings,
    HealthSettings,
    RunSettings,
    SenderSettings,
    SessionSettings,
)
from spar.config.tables.budgets import BudgetSettings
from spar.config.tables.section import After, Options, Section, refuse
from spar.config.tables.service import LogSettings, MemorySettings, ServiceSettings, TracingSettings
from spar.errors import KeyPath

if TYPE_CHECKING:
    from spar.config.lines import Sources

_SAME_NAME = "is the name of another {} already; give this one a `name` of its own"


def _differ_in_name(kind: str, labelled: tuple[parts.LabelledPart, ...]) -> tuple[parts.LabelledPart, ...]:
    labels: set[str] = set()
    for index, part in enumerate(labelled):
        if (label := part.name or part.use) in labels:
            refuse((index, "name" if part.name else "use"), label, _SAME_NAME.format(kind))
        labels.add(label)
    return labelled


class Settings(Section, frozen=True, kw_only=True):
    """All settings."""

    agent: AgentSettings = AgentSettings()
    health: HealthSettings = HealthSettings()
    runs: RunSettings = RunSettings()
    sessions: SessionSettings = SessionSettings()
    fork: ForkSettings = ForkSettings()
    breakpoints: BreakpointSettings = BreakpointSettings()
    sense: parts.Part = parts.Part(use="standard")
    """The module that senses ("standard": sensors and pipeline)."""
    plan: parts.Part = parts.Part(use="rules")
    """The module that plans ("rules", or "llm": a model)."""
    act: parts.Part = parts.Part(use="executor")
    """The module that acts."""
    reflect: parts.Part = parts.Part(use="standard")
    """The module that reflects ("model": it also asks the planner's model)."""
    perception: Options = field(default_factory=dict)
    """The stages of the pipeline, which checks them itself."""
    vectors: parts.VectorsPart = parts.VectorsPart()
    sensors: Annotated[tuple[parts.SensorPart, ...], After(partial(_differ_in_name, "sensor"))] = ()
    """The sensors; with none, only pushed perceptions and messages are perceived."""
    rules: tuple[Options, ...] = ()
    """The rules; the rules planner checks them."""
    tools: tuple[parts.ToolPart, ...] = ()
    """The tools that calls may use."""
    channels: Annotated[tuple[parts.ChannelPart, ...], After(partial(_differ_in_name, "channel"))] = ()
    """The channels on which people talk with the agent, besides its built-in interfaces."""
    notifiers: Annotated[tuple[parts.NotifierPart, ...], After(partial(_differ_in_name, "notifier"))] = ()
    """The notifiers, which send alerts to people."""
    plugins: tuple[parts.Part, ...] = ()
    """The plug-ins, which register hooks and subscribe to events; a plug-in that is only installed does nothing."""
    attachments: Annotated[tuple[parts.LabelledPart, ...], After(partial(_differ_in_name, "attachment"))] = ()
    """The attachments: features that attach themselves to the agent; one that is only installed does nothing."""
    acting: ActingSettings = ActingSettings()
    approval: ApprovalSettings = ApprovalSettings()
    budgets: BudgetSettings = BudgetSettings()
    senders: SenderSettings = SenderSettings()
    memory: MemorySettings = MemorySettings()
    service: ServiceSettings = ServiceSettings()
    log: LogSettings = LogSettings()
    tracing: TracingSettings = TracingSettings()


class Loaded(Struct, frozen=True):
    """Settings, and the source of each of them."""

    settings: Settings
    sources: Sources

    @property
    def path(self) -> Path | None:
        """Return the file that was read, None if there was none."""
        return self.sources.file.path if self.sources.file else None

    @property
    def folder(self) -> Path:
        """Return the folder where relative paths start: that of the file, or the current one."""
        return self.sources.file.folder if self.sources.file else Path.cwd()

    def origin(self, path: KeyPath) -> str:
        """Return `config.toml:12`, `SPAR_LOG__LEVEL`, `--set log.level` or `default`."""
        return self.sources.origin(path)
