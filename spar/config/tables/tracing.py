"""The table `[tracing]`."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Ge, Le
from msgspec import field

from spar.config.tables.fields import After, Positive
from spar.config.tables.section import Section, Text


def _is_address(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise ValueError("must begin with http:// or https://")
    return text


class TracingSettings(Section, frozen=True, kw_only=True):
    """Traces of cycles, told to an OpenTelemetry collector by OTLP over HTTP; needs the extra `otel`."""

    enabled: bool = False
    """Whether traces are told. Off, nothing of it is imported and a cycle pays nothing."""
    endpoint: Annotated[Text, After(_is_address)] | None = None
    """The collector's address with its path, such as "http://127.0.0.1:4318/v1/traces"; left out: as
    `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or `OTEL_EXPORTER_OTLP_ENDPOINT` say, else port 4318 of this machine."""
    ratio: Annotated[float, Ge(0.0), Le(1.0)] | None = None
    """The share of cycles that is told; left out: as `OTEL_TRACES_SAMPLER_ARG` says, else all."""
    headers: dict[str, str | dict[str, str]] = field(default_factory=dict)
    """Headers of each request to it, such as `{ authorization = { env = "OTLP_TOKEN" } }`: a secret stands in a
    variable, a file or a credential; `OTEL_EXPORTER_OTLP_HEADERS` is honoured, too."""
    timeout: Positive | None = None
    """Seconds for one request to the collector, repetitions included; left out: as `OTEL_EXPORTER_OTLP_TIMEOUT` says,
    else 10."""
    named_to: tuple[Literal["models", "mcp", "http"], ...] = ("models", "mcp")
    """To whom a request names its span, by a header `traceparent`: the providers of models, MCP servers (there also in
    the call's `_meta`), the hosts that the tool `http` is sent to. Those are anybody's, and are told nothing unless it
    is named here; what follows a redirect to another host never is."""
    content: bool = False
    """Whether parameters and results of calls are told too, what looks like a secret masked."""
