"""Tables `[agent]`, `[health]`, `[runs]`, `[sessions]`, `[acting]`, `[approval]`, `[budgets]` and `[senders]`."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, ClassVar, Literal

from spar.clock import time_of_day, zone_named
from spar.config.tables.section import (
    NO_FLAG,
    NOT_EMPTY,
    After,
    Also,
    AutoSeconds,
    Ge,
    Interval,
    Le,
    Limit,
    Name,
    Options,
    Positive,
    Seconds,
    Section,
    Text,
    Whole,
    refuse,
)
from spar.ports.budgets import MOST, QUANTITIES, WINDOWS, Limits, in_micro
from spar.types import QueueMode, Reasoning
from spar.types.values import GRANTABLE

#: Money is counted in millionths of a unit.
_MICRO = 1_000_000
#: How many of something wait at most.
Cap = Annotated[Whole, Ge(1), Le(MOST)] | Literal["auto"]
#: An amount that may be used; 0: nothing, "off": any. Money is exact to a millionth, and never stored as a float.
Count = Annotated[Whole, Ge(0), Le(MOST)] | Literal["off"]
Money = Annotated[Decimal, Ge(0), Le(MOST // _MICRO), Also({"decimal_places": 6}), NO_FLAG] | Literal["off"]
_Policy = Literal["skip", "continue", "retry", "pause", "stop"]


class ErrorPolicies(Section, frozen=True, kw_only=True):
    """The consequence of an error in a phase."""

    sense: _Policy = "skip"
    """Skip the cycle: the next one senses again."""
    plan: _Policy = "skip"
    """Skip the cycle; calls of a streamed plan that have begun still finish and are reflected on."""
    act: Literal["skip", "reflect", "continue", "retry", "pause", "stop"] = "reflect"
    """Let Reflect analyse the failure."""
    reflect: _Policy = "continue"
    """Continue; the outcome is stored without a reflection."""


class PhaseLimits(Section, frozen=True, kw_only=True):
    """Limits of one phase: its time, and its attempts within a cycle."""

    timeout: Limit = 0.0
    """Seconds until the phase is cancelled; 0 or "off": it has no deadline."""
    retries: Annotated[Whole, Ge(0), Le(100)] = 0
    """Further attempts inside the same cycle."""
    backoff: Seconds = 0.5
    """Seconds before the first further attempt; doubles with each, up to a minute."""
    grace: Seconds = 0.5
    """Seconds between cancelling a phase and leaving it behind."""
    opening: Limit = 60.0
    """Seconds that opening its module may take; 0 or "off": any time."""


class Phases(Section, frozen=True, kw_only=True):
    """The limits of each phase."""

    sense: PhaseLimits = PhaseLimits(timeout=30.0)
    plan: PhaseLimits = PhaseLimits(timeout=300.0)
    act: PhaseLimits = PhaseLimits(timeout=600.0)
    reflect: PhaseLimits = PhaseLimits(timeout=60.0)


class AgentSettings(Section, frozen=True, kw_only=True):
    """The loop: its name, its pace, its reaction to errors."""

    ordered: ClassVar[tuple[str, ...]] = ("min_interval", "agent.max_interval")

    name: Name = "main"
    """The name of the agent in events, logs and metrics."""
    loop_interval: Interval = 1.0
    """Seconds from the end of a cycle to the beginning of the next; 0: at once; "adaptive": shorter when there is more
    to do; "off": only when something is pushed or a trigger is due."""
    min_interval: Seconds = 0.5
    """Seconds; the pace of a busy agent under "adaptive", and the least proposed wait."""
    max_interval: Seconds = 5.0
    """Seconds; the pace of an idle agent under "adaptive", and the longest proposed wait."""
    busy_count: Annotated[Whole, Ge(1)] = 10
    """Perceptions in one cycle that count as busy."""
    plan_when_idle: bool = False
    """Whether to plan without perceptions."""
    errors: ErrorPolicies = ErrorPolicies()
    phases: Phases = Phases()


class HealthSettings(Section, frozen=True, kw_only=True):
    """Limits beyond which something counts as wrong, and the number of repairs."""

    failing_after: Annotated[Whole, Ge(1)] = 5
    """Failures in a row of one phase in one session until it counts as failing."""
    slow_after: AutoSeconds = "auto"
    """Seconds after which a cycle counts as slow; "auto": ten times the usual, at least a second, and a minute while it
    runs."""
    blocked_after: Positive = 1.0
    """Seconds for which the event loop may not respond."""
    stalled_after: AutoSeconds = "auto"
    """Seconds without a completed cycle; "auto": three intervals; for a running cycle only if its phase has no
    deadline."""
    backoff: Seconds = 0.5
    """Seconds before the first repair; doubles with each, up to a minute."""
    max_restarts: Annotated[Whole, Ge(0)] = 5
    """Restarts of one module within `within` seconds; one more and it is quarantined."""
    within: Positive = 60.0
    """Seconds over which restarts are counted."""
    approval_after: Seconds = 900.0
    """Seconds after which a call that waits for approval is an alert; 0: never."""


class RunSettings(Section, frozen=True, kw_only=True):
    """Runs, and the place of a message that arrives during a run."""

    ordered: ClassVar[tuple[str, ...]] = ("block_min", "runs.block_max")

    queue_mode: QueueMode = "followup"
    """The place of a message while its session has a run. "followup": it waits its turn. "steer": the run's next
    request contains it, and calls that have not started are put to the planner again. "collect": it becomes one run
    with other messages, once no more arrive. "interrupt": the run is ended, and the message is served next."""
    quiet: Seconds = 0.5
    """Seconds without a further message until collected ones become one run."""
    cap: Cap = "auto"
    """How many messages may wait in one session; "auto": 1000 with `followup`, 20 with every other mode."""
    drop: Literal["old", "new", "summarize"] = "summarize"
    """The message that is dropped beyond `cap`: the oldest, the new one, or the oldest with a summary for the next run.
    Its sender is told."""
    timeout: Limit = 600.0
    """Seconds that a run may take; 0 or "off": any time. Waiting for a provider that is down does not count."""
    patience: Limit = 86_400.0
    """Seconds that a run waits in all for a provider that is down, or for its budget; 0 or "off": any time."""
    inactivity: Limit = 0.0
    """Seconds without any progress until a run is ended; 0 or "off": any time."""
    requests: Count = 40
    """Requests to models that a run may make."""
    calls: Count = 200
    """Calls that a run may make; a cycle that has begun is not cut."""
    tokens: Count = "off"
    """Tokens that models may read in full and write for a run."""
    cached_tokens: Count = "off"
    """Tokens that models may read from a cache for a run."""
    money: Money = "off"
    """The money that a run may cost."""
    limit: Annotated[Whole, Ge(1)] = 8
    """Runs that may be active at once, over all sessions; the oldest message goes first."""
    verify_output: bool = True
    """Whether an answer beside failed calls is asked for once more, with the errors shown."""
    tell_errors: bool = True
    """Whether people are told that their run failed."""
    reasoning: Reasoning = "off"
    """Readers of a model's reasoning. "off": nobody. "stream": subscribers of the run. "reply": also the receivers of
    its reply, if their channel asks for it. It is never stored."""
    blocks: Literal["off", "text_end", "message_end"] = "off"
    """Whether an answer is sent in blocks, for channels that cannot edit. "off": whole, at the end. "text_end": each
    block as soon as it is written. "message_end": in blocks, once it is complete."""
    block_min: Annotated[Whole, Ge(1)] = 800
    """Characters from which a block ends with the paragraph."""
    block_max: Annotated[Whole, Ge(100), Le(100_000)] = 1_200
    """The most characters of a block; it ends earlier at a line, a sentence or a word."""

    @property
    def are_told_early(self) -> bool:
        """Return whether people get something of each run before its end."""
        return self.blocks != "off" or self.reasoning == "reply"


def _is_time_of_day(value: str) -> str:
    if value != "off" and not (len(value) == 5 and time_of_day(value) is not None):
        raise ValueError("must be a time of day like '04:00', or 'off'")
    return value


def _is_zone(value: str) -> str:
    try:
        zone_named(value)
    except ValueError as error:
        raise ValueError(f"must be a time zone: {error}") from None
    return value


class SessionSettings(Section, frozen=True, kw_only=True):
    """Sessions, and when one ends."""

    idle: Limit = 0.0
    """Seconds without a run after which the next message begins a new conversation; 0 or "off": never."""
    reset_at: Annotated[Text, After(_is_time_of_day)] = "off"
    """The time of day ("04:00") from which on the next message begins a new conversation; "off": never."""
    timezone: Annotated[Text, After(_is_zone)] = "local"
    """The time zone of `reset_at`: "local", "UTC", or a name like "Europe/Berlin"."""
    commands: bool = False
    """Whether trusted senders may use `/new`, `/reset`, `/stop`, `/status`, `/model`, `/feedback`, and commands of
    hooks at `command`."""


class ForkSettings(Section, frozen=True, kw_only=True):
    """Copies of sessions (`spar sessions fork`)."""

    effects: Literal["ask", "allow"] = "ask"
    """"ask": calls with effects of a forked session ask for approval; "allow": they are judged as those of others."""


class BreakpointSettings(Section, frozen=True, kw_only=True):
    """Breakpoints (`spar break add`)."""

    lease: Annotated[Positive, Le(86_400)] = 600.0
    """Seconds after which a breakpoint ends, and the session that stands there goes on; whoever is attached renews
    it."""


class ActingSettings(Section, frozen=True, kw_only=True):
    """Limits and order of calls."""

    max_parallel: Annotated[Whole, Ge(1)] = 64
    """Calls that may run at once."""
    order: Literal["parallel", "plan"] = "parallel"
    """"plan": calls that do more than read run one after another, in the order of the plan."""
    workspace: Literal["shared", "per-session"] = "shared"
    """"per-session": each session has its own folder in the workspace; the tools `files` and `shell` see only this
    one."""
    largest_result: Annotated[Whole, Ge(1024), Le(256 * 1024 * 1024)] = 16 * 1024 * 1024
    """Bytes of a result as JSON; a call that returns more fails (`too_large`)."""


class ApprovalRule(Section, frozen=True, kw_only=True):
    """One rule: the calls that it applies to, by all conditions that it names, and the decision. The first matching
    rule counts.

    A text is a pattern over the whole value, in which upper and lower case differ: `*` any characters, `?` one, `[ab]`
    one of these.
    """

    tool: Text | None = None
    """A pattern for the tool's name."""
    effect: Literal["read", "idempotent", "once"] | tuple[Literal["read", "idempotent", "once"], ...] | None = None
    """The effect of the call, or a list of which one must hold."""
    trust: Literal["trusted", "untrusted"] | None = None
    """Whether text from outside may have influenced the call."""
    session: Text | None = None
    """A pattern for the session."""
    params: Options | None = None
    """The parameters by name: texts are patterns, lists match item by item, all other values must be equal. A parameter
    that the call leaves out matches nothing."""
    decision: Literal["auto", "ask", "deny"]
    """Run it, ask people about it, or refuse it. A tool's own "deny" always applies."""


class ApprovalSettings(Section, frozen=True, kw_only=True):
    """Questions to people about calls: their rules and their time limits."""

    hold: Seconds = 0.0
    """Seconds that a cycle and its session wait for the answer; then it continues without the call. 0: nothing waits
    for a person."""
    expires: Positive = 900.0
    """Seconds until a question without an answer becomes a denial."""
    untrusted: Literal["auto", "ask", "deny"] = "ask"
    """The decision about calls that follow from untrusted text, by tools that are not safe with it."""
    max_pending: Annotated[Whole, Ge(1)] = 10
    """Questions of one run (or of a session's cycles without one) that may wait; further ones are denied."""
    grantable: tuple[Text, ...] = GRANTABLE
    """Names of programs (of the files that links lead to) whose exact calls a person may grant for a time."""
    rules: tuple[ApprovalRule, ...] = ()
    """Which calls run, are asked about, or are refused; for all others the tool's own setting counts."""


class WindowBudget(Section, frozen=True, kw_only=True):
    """The amounts that may be used within one window. 0: nothing; "off": any amount."""

    calls: Count = "off"
    """Calls of tools; each attempt counts as one."""
    effects: Count = "off"
    """Calls of tools that change something."""
    requests: Count = "off"
    """Requests to models."""
    tokens: Count = "off"
    """Tokens of models: read in full, and written."""
    cached_tokens: Count = "off"
    """Tokens of models that a cache served."""
    money: Money = "off"
    """The cost of models, in the currency of their prices."""


class BudgetSettings(Section, frozen=True, kw_only=True):
    """The agent slows down at 80 % of a budget, does without models or asks people at 100 %, is paused at 120 %."""

    cycle: WindowBudget = WindowBudget(calls=10_000, requests=8, money=Decimal("0.5"))
    """One cycle."""
    hour: WindowBudget = WindowBudget(
        effects=1_000, requests=120, tokens=200_000, cached_tokens=2_000_000, money=Decimal(1)
    )
    """An hour (UTC)."""
    day: WindowBudget = WindowBudget(effects=10_000, tokens=2_000_000, cached_tokens=20_000_000, money=Decimal(5))
    """A day (UTC)."""
    month: WindowBudget = WindowBudget(money=Decimal(50))
    """A month (UTC)."""

    @classmethod
    def off(cls) -> BudgetSettings:
        """Return budgets without limits, as an agent made by hand has."""
        return cls(**dict.fromkeys(WINDOWS, WindowBudget()))

    @property
    def limits(self) -> Limits:
        """Return the limits by window and quantity; money in millionths."""
        return {
            (window, quantity): in_micro(amount)
            for window in WINDOWS
            for quantity in QUANTITIES
            if (amount := getattr(getattr(self, window), quantity)) != "off"
        }


def _check_names(names: tuple[str, ...]) -> tuple[str, ...]:
    from spar.records.senders import read_sender  # of no use to an agent without channels

    for index, name in enumerate(names):
        try:
            read_sender(name, may_be_pattern=True)
        except ValueError as error:
            refuse((index,), name, str(error))
    return names


class AllowedSenders(Section, frozen=True, kw_only=True):
    """Allowed senders, of one person or of several."""

    senders: Annotated[tuple[Text, ...], NOT_EMPTY, After(_check_names)]
    """Each as `channel:address` (`mail:alice@example.org`); `mail:*@example.org` is everybody of a domain, `mail:*`
    everybody on a channel."""
    person: str = ""
    """The name of the person."""
    trust: Literal["trusted", "untrusted"] = "trusted"
    """"trusted": their text may steer the agent, and their commands count; "untrusted": they are answered, but a call
    that follows from their text needs approval."""

    def __post_init__(self) -> None:
        everybody = [name for name in self.senders if name.strip().endswith(":*")]
        if self.trust == "trusted" and everybody:
            refuse(("trust",), self.trust, f"must be 'untrusted': {everybody[0]} is everybody on that channel")


class SenderSettings(Section, frozen=True, kw_only=True):
    """People who may talk with the agent on its channels; messages of other senders are not heard."""

    unknown: Literal["pair", "ignore"] = "pair"
    """"pair": an unknown sender is sent a code, which the owner gives to the service (`spar senders pair`). "ignore":
    it is sent nothing. Its messages are only counted."""
    expires: Annotated[Positive, Le(30 * 86_400)] = 86_400.0
    """Seconds for which a code is valid; a sender is sent one at most once a day."""
    limit: Annotated[Whole, Ge(1), Le(10_000)] = 100
    """Most unknown senders in the list; further ones replace those whose codes have expired."""
    allow: tuple[AllowedSenders, ...] = ()
    """Allowed senders; the most exact name of a sender counts."""
    deny: Annotated[tuple[Text, ...], After(_check_names)] = ()
    """Senders that are never allowed, written as under `allow`."""
