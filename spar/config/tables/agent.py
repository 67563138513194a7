"""The tables `[agent]` and `[health]`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from annotated_types import Ge, Le
from pydantic import field_validator, model_validator
from pydantic_core import PydanticCustomError

from spar.config.fields import AutoSeconds, Interval, Limit, Positive, Seconds, Whole
from spar.config.tables.section import Name, Section, refuse


class ErrorPolicies(Section):
    """The consequence of an error in a phase."""

    sense: Literal["skip", "continue", "retry", "pause", "stop"] = "skip"
    """Skip the cycle: the next one senses anew."""
    plan: Literal["skip", "continue", "retry", "pause", "stop"] = "skip"
    """Skip the cycle; calls that a streamed plan had already begun still finish and are reflected on."""
    act: Literal["skip", "reflect", "continue", "retry", "pause", "stop"] = "reflect"
    """Let Reflect analyse the failure: a failed action is what there is most to learn from."""
    reflect: Literal["skip", "continue", "retry", "pause", "stop"] = "continue"
    """Go on: the action is done, and its outcome is remembered without a reflection."""

    @field_validator("sense", "plan", "reflect", mode="before")
    @classmethod
    def _only_act_is_reflected_on(cls, value: Any) -> Any:
        if value == "reflect":
            raise PydanticCustomError(
                "allowed", "must be 'skip', 'continue', 'retry', 'pause' or 'stop'; 'reflect' is for act only"
            )
        return value


class PhaseLimits(Section):
    """Limits of one phase: its time, and its attempts within a cycle."""

    timeout: Limit = 0.0
    """Seconds until the phase is cancelled; 0 or "off": it has no deadline."""
    retries: Annotated[Whole, Ge(0), Le(100)] = 0
    """Further attempts inside the same cycle; 0, because the next cycle is an attempt too."""
    backoff: Seconds = 0.5
    """Seconds before the first further attempt; doubles with each, up to a minute."""
    grace: Seconds = 0.5
    """Seconds between cancelling a phase and leaving it behind: enough to close a connection."""
    opening: Limit = 60.0
    """Seconds that opening its module may take, at the start, at a reload and in recovery; 0 or "off": as long as it
    takes."""


class SenseLimits(PhaseLimits):
    """The limits of Sense."""

    timeout: Limit = 30.0
    """Seconds; polling sensors is quick, and each sensor has a timeout of its own."""


class PlanLimits(PhaseLimits):
    """The limits of Plan."""

    timeout: Limit = 300.0
    """Seconds; a slow model's long answer, after a conversation had to be summed up."""


class ActLimits(PhaseLimits):
    """The limits of Act."""

    timeout: Limit = 600.0
    """Seconds; the same as a run's own limit, for calls have timeouts of their own."""


class ReflectLimits(PhaseLimits):
    """The limits of Reflect."""

    timeout: Limit = 60.0
    """Seconds; it computes, and asks a model at most once."""


class Phases(Section):
    """The limits of each phase."""

    sense: SenseLimits = SenseLimits.model_construct()
    """The limits of Sense."""
    plan: PlanLimits = PlanLimits.model_construct()
    """The limits of Plan."""
    act: ActLimits = ActLimits.model_construct()
    """The limits of Act."""
    reflect: ReflectLimits = ReflectLimits.model_construct()
    """The limits of Reflect."""


class AgentSettings(Section):
    """The loop: its name, its pace, its answer to errors."""

    name: Name = "main"
    """The name of the agent in events, logs and metrics."""
    loop_interval: Interval = 1.0
    """Seconds from the end of a cycle to the beginning of the next; 0: at once; "adaptive": by how much is going
    on; "off": only when something is pushed or a trigger is due."""
    min_interval: Seconds = 0.5
    """Seconds; the pace of a busy agent under "adaptive", and the least that a proposed next look is taken for."""
    max_interval: Seconds = 5.0
    """Seconds; the pace of an idle agent under "adaptive", and the most that a proposed next look is taken for."""
    busy_count: Annotated[Whole, Ge(1)] = 10
    """How many perceptions in one cycle count as busy."""
    plan_when_idle: bool = False
    """Whether to plan when nothing was noticed; off, because it makes an idle agent cost something."""
    errors: ErrorPolicies = ErrorPolicies.model_construct()
    """The consequence of an error in a phase: skip, reflect, continue, retry, pause or stop."""
    phases: Phases = Phases.model_construct()
    """Deadlines and attempts, by phase."""

    @model_validator(mode="after")
    def _least_is_not_above_most(self) -> AgentSettings:
        if self.min_interval > self.max_interval:
            refuse(("min_interval",), self.min_interval, f"must be <= agent.max_interval ({self.max_interval:g})")
        return self


class HealthSettings(Section):
    """Limits from which something counts as wrong, and the number of repairs."""

    failing_after: Annotated[Whole, Ge(1)] = 5
    """Failures in a row of one phase in one session until it counts as failing."""
    slow_after: AutoSeconds = "auto"
    """Seconds from which a cycle counts as slow; "auto": by what is usual for this agent, a second at least, and a
    minute while it goes on."""
    blocked_after: Positive = 1.0
    """Seconds for which the event loop may not answer; no honest work holds it that long."""
    stalled_after: AutoSeconds = "auto"
    """Seconds without a completed cycle; "auto": three times the expected interval, and for a cycle in hand only if its
    phase has no deadline."""
    backoff: Seconds = 0.5
    """Seconds before the first repair; doubles with each, up to a minute."""
    max_restarts: Annotated[Whole, Ge(0)] = 5
    """Restarts of one module within `within` seconds; one more and it is quarantined (Erlang/OTP's intensity)."""
    within: Positive = 60.0
    """Seconds over which restarts are counted."""
