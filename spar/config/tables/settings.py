"""All settings, table by table (`spar.config.tables`).

This module only describes them; `spar.config.load` reads and validates them. All tables are frozen; unknown keys are
errors.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from msgspec import Struct, field

from spar.config.tables.agent import (
    ActingSettings,
    AgentSettings,
    ApprovalSettings,
    BreakpointSettings,
    BudgetSettings,
    ForkSettings,
    HealthSettings,
    RunSettings,
    SenderSettings,
    SessionSettings,
)
from spar.config.tables.section import (
    LOWER,
    After,
    Also,
    Ge,
    Le,
    Name,
    Options,
    Positive,
    Seconds,
    Section,
    Text,
    Whole,
    refuse,
)
from spar.errors import KeyPath
from spar.types import Learning, QueueMode
from spar.types.values import AlertKind

if TYPE_CHECKING:
    from pathlib import Path

    from spar.config.lines import Sources


class Part(Section, frozen=True, kw_only=True):
    """The part to use, and its options."""

    use: Text
    """A part (`spar config parts` lists them), or "package.module:Class"."""
    options: Options = field(default_factory=dict)
    """The arguments of its constructor."""


class LabelledPart(Part, frozen=True, kw_only=True):
    """Part in a list, with a name."""

    name: Name | None = None
    """The name, unique among the parts of this kind; left out: `use`. The senders of a channel have it, too."""

    @property
    def label(self) -> str:
        return self.name or self.use


class VectorsPart(Section, frozen=True, kw_only=True):
    """The embedder, which turns texts of like meaning into near vectors."""

    use: Text | None = None
    """An embedder, such as "minilm" (English; extra `vectors`); left out: texts are compared by their words."""
    options: Options = field(default_factory=dict)
    """The arguments of its constructor."""


class SupervisedPart(LabelledPart, frozen=True, kw_only=True):
    """Part that is put in quarantine when it fails too often."""

    timeout: Positive = 30.0
    """Seconds for one use of it, such as a poll, or sending one message."""
    max_failures: Annotated[Whole, Ge(1)] = 5
    """Failures within `within` seconds until it (a channel: receiving, or sending) is put in quarantine."""
    within: Positive = 60.0
    """Seconds over which its failures are counted."""
    probe_after: Positive = 600.0
    """Seconds in quarantine until it is tried again."""


class SensorPart(SupervisedPart, frozen=True, kw_only=True):
    """One sensor, with its limits."""

    every: Seconds | None = None
    """Least seconds between two polls; 0: each cycle; left out: the sensor's own choice."""
    session: Name = "main"
    """The session of its perceptions."""
    when_full: Literal["refuse", "latest", "sample"] = "refuse"
    """When ten thousand of its perceptions wait: "refuse" the next one; "latest": keep the newest of each key;
    "sample": drop some, spread over time."""
    place: str = ""
    """The `memory.place` of its nodes, one of which runs it; left out: where the session `main` is."""


class ChannelPart(SupervisedPart, frozen=True, kw_only=True):
    """One channel, with its limits."""

    session: Name | None = None
    """The conversation of all its messages; left out: one for each address, `NAME:ADDRESS`."""
    mode: QueueMode | None = None
    """The place of a message while its conversation has a run; left out: `runs.queue_mode`."""
    stream: bool = True
    """Whether an answer is shown while it is written, if the channel can change sent messages."""
    reasoning: bool = False
    """Whether the model's reasoning is sent before its answer, if `runs.reasoning` is "reply"."""
    give_up_after: Positive = 86_400.0
    """Seconds for which a message is tried again until it is put aside."""


def _hours(text: str) -> str:
    if text:
        from spar.ports.channel import QuietHours

        QuietHours.parse(text)
    return text


class NotifierPart(LabelledPart, frozen=True, kw_only=True):
    """One notifier, which sends alerts to people."""

    kinds: tuple[AlertKind, ...] = ()
    """The kinds of alerts that it sends; left out: all."""
    min_severity: Literal["warning", "critical"] = "warning"
    """The least severity that it sends."""
    repeat: Seconds = 0.0
    """Seconds after which an alert that is still open is sent again; 0: only once."""
    timeout: Positive = 20.0
    """Seconds for one attempt."""
    give_up_after: Positive = 86_400.0
    """Seconds for which a notice is tried again until it is put aside."""
    quiet: Annotated[str, After(_hours)] = ""
    """Hours in the machine's time zone in which it sends only critical alerts, such as `22:00-07:00`; the others follow
    as one notice."""


class ToolPart(Part, frozen=True, kw_only=True):
    """One tool."""

    name: Name | None = None
    """The name in calls; left out: the one that the tool gives itself."""
    timeout: Positive | None = None
    """Seconds of one attempt. For this and all keys below, left out: the term of the tool itself."""
    retries: Annotated[Whole, Ge(0), Le(100)] | None = None
    """Further attempts at a call that may be repeated."""
    concurrency: Annotated[Whole, Ge(0)] | None = None
    """Calls at once; 0: any number."""
    rate: Annotated[str, Also({"pattern": r"^([1-9]\d{0,5}/(s|min|h|day))?$"})] | None = None
    """Calls that may start in a time: "10/min", "2/s", "100/h", "1000/day"; "": any number."""
    resources: tuple[Text, ...] | None = None
    """Names of resources; calls that share one never overlap."""
    order: Literal["parallel", "plan"] | None = None
    """"plan": its calls run one after another, in the order of the plan."""
    approval: Literal["auto", "ask", "deny"] | None = None
    """Whether people are asked before a call; rules under `approval` may decide otherwise."""
    safe_with_untrusted: bool | None = None
    """Whether text from outside may fill its parameters unasked."""
    brings_untrusted: bool | None = None
    """Whether its result is text from outside; true where neither this nor the tool says otherwise."""


#: Events that acknowledged writes survive: a power cut, the death of the process, neither.
DURABILITIES = ("power", "process", "off")


class MemorySettings(Section, frozen=True, kw_only=True):
    """The store of experiences and cycles; keys besides `use` go to its constructor."""

    rest: ClassVar[str] = "options"

    use: Text = "sqlite"
    """The store: a name, or "package.module:Class"; it checks its own keys (`url`, `durability`, …)."""
    learning: Learning = "on"
    """"on": decisions use what was learnt; "observe": lessons are only reported; "off": nothing is learnt."""

    options: Options = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the durability of the built-in store, even if no store is made."""
        durability = self.options.get("durability", DURABILITIES[0])
        if self.use == "sqlite" and durability not in DURABILITIES:
            refuse(("durability",), durability, f"must be one of {', '.join(map(repr, DURABILITIES))}")


class ServiceSettings(Section, frozen=True, kw_only=True):
    """The process."""

    state_dir: Text = "state"
    """The folder of the service's own files, relative to the configuration file."""
    workspace: Text = "workspace"
    """The only folder that tools may touch, relative to the same."""
    host: Text = "127.0.0.1"
    """The address on which the port listens."""
    port: Annotated[Whole, Ge(0), Le(65535)] = 8420
    """The port; 0: any free one."""
    probes: bool = True
    """Whether there is a port: /livez, /startupz, /readyz, /metrics, hooks, and /v1 with a token."""
    console: bool = True
    """Whether the port serves the console, a page for browsers, at /; it asks for a token."""
    hosts: tuple[Text, ...] = ()
    """Further host names of requests, such as a proxy's."""
    token_rate: Annotated[Whole, Ge(0)] = 6_000
    """Requests to /v1 of one token in a minute, also at once; further ones are answered 429; 0: any."""
    token_requests: Annotated[Whole, Ge(0)] = 32
    """Requests of one token that may wait for their answers at once, besides streams; 0: any."""
    metrics: Literal["local", "token", "open"] = "local"
    """The readers of /metrics: "local": programs of this machine, others with a token of scope read; "token": only with
    a token; "open": whoever reaches the port."""
    drain: Seconds = 20.0
    """Seconds that work gets to finish at SIGTERM."""
    memory_soft: Annotated[Whole, Ge(0)] = 512 * 1024 * 1024
    """Bytes of process memory above which caches are given up; 0: none."""
    memory_hard: Annotated[Whole, Ge(0)] = 1024 * 1024 * 1024
    """Bytes above which the process drains and ends with 75, to be started again; 0: none."""
    min_free_disk: Annotated[Whole, Ge(0)] | None = None
    """Bytes free on the state directory's disk, below which no new work is accepted; left out: 512 MiB, at most 5 %;
    0: none."""


class LogSettings(Section, frozen=True, kw_only=True):
    """The log: its level, its form, its file."""

    level: Annotated[Literal["debug", "info", "warning", "error"], LOWER] = "info"
    """The least important level that is written."""
    format: Literal["auto", "json", "pretty"] = "auto"
    """"json": one object a line; "pretty": for people; "auto": pretty on a terminal, else json."""
    file: Text | None = None
    """A file that gets the same lines as JSON, kept below 10 MiB, with five older ones; left out: none."""


def _is_address(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise ValueError("must begin with http:// or https://")
    return text


class TracingSettings(Section, frozen=True, kw_only=True):
    """Traces of cycles for an OpenTelemetry collector, by OTLP over HTTP; needs the extra `otel`."""

    enabled: bool = False
    """Whether traces are sent."""
    endpoint: Annotated[Text, After(_is_address)] | None = None
    """The collector's address, such as "http://127.0.0.1:4318/v1/traces"; left out:
    `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or `OTEL_EXPORTER_OTLP_ENDPOINT`, else port 4318 of this machine."""
    ratio: Annotated[float, Ge(0), Le(1)] | None = None
    """Share of cycles; left out: `OTEL_TRACES_SAMPLER_ARG`, else all."""
    headers: dict[str, str | dict[str, str]] = field(default_factory=dict)
    """Headers of each request, such as `{ authorization = { env = "OTLP_TOKEN" } }`, besides
    `OTEL_EXPORTER_OTLP_HEADERS`."""
    timeout: Positive | None = None
    """Seconds for one request; left out: `OTEL_EXPORTER_OTLP_TIMEOUT`, else 10."""
    named_to: tuple[Literal["models", "mcp", "http"], ...] = ("models", "mcp")
    """Receivers of requests that name their span, by a header `traceparent`: providers of models, MCP servers, hosts
    of the tool `http`."""
    content: bool = False
    """Whether parameters and results are sent, secrets masked."""


# -- all tables


_SAME_NAME = "is the name of another {} already; give this one a `name` of its own"


def _differ_in_name(kind: str, labelled: tuple[LabelledPart, ...]) -> tuple[LabelledPart, ...]:
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
    sense: Part = Part(use="standard")
    """The module that senses ("standard": sensors and pipeline)."""
    plan: Part = Part(use="rules")
    """The module that plans ("rules", or "llm": a model)."""
    act: Part = Part(use="executor")
    """The module that acts."""
    reflect: Part = Part(use="standard")
    """The module that reflects ("model": it also asks the planner's model)."""
    perception: Options = field(default_factory=dict)
    """The stages of the pipeline, which checks them itself."""
    vectors: VectorsPart = VectorsPart()
    sensors: Annotated[tuple[SensorPart, ...], After(partial(_differ_in_name, "sensor"))] = ()
    """The sensors; with none, only pushed perceptions and messages are perceived."""
    rules: tuple[Options, ...] = ()
    """The rules; the rules planner checks them."""
    tools: tuple[ToolPart, ...] = ()
    """The tools that calls may use."""
    channels: Annotated[tuple[ChannelPart, ...], After(partial(_differ_in_name, "channel"))] = ()
    """The channels on which people talk with the agent, besides its built-in interfaces."""
    notifiers: Annotated[tuple[NotifierPart, ...], After(partial(_differ_in_name, "notifier"))] = ()
    """The notifiers, which send alerts to people."""
    plugins: tuple[Part, ...] = ()
    """The plug-ins, which register hooks and subscribe to events; a plug-in that is only installed does nothing."""
    attachments: Annotated[tuple[LabelledPart, ...], After(partial(_differ_in_name, "attachment"))] = ()
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
        return self.sources.folder

    def origin(self, path: KeyPath) -> str:
        """Return `config.toml:12`, `SPAR_LOG__LEVEL`, `--set log.level` or `default`."""
        return self.sources.origin(path)
