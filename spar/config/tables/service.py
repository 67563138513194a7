"""Tables `[memory]`, `[service]`, `[log]` and `[tracing]`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Le
from msgspec import field

from spar.config.tables.section import LOWER, After, Options, Positive, Seconds, Section, Text, Whole, refuse
from spar.types import Learning

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


# -- [service], [log]


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
