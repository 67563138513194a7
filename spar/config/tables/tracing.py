"""Table `[tracing]`."""

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
    """Traces of cycles, sent to an OpenTelemetry collector by OTLP over HTTP; needs the extra `otel`."""

    enabled: bool = False
    """Whether traces are sent. If not, no library for it is imported, and cycles pay nothing for it."""
    endpoint: Annotated[Text, After(_is_address)] | None = None
    """The collector's address with its path, such as "http://127.0.0.1:4318/v1/traces"; left out: the value of
    `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or `OTEL_EXPORTER_OTLP_ENDPOINT`, else port 4318 of this machine."""
    ratio: Annotated[float, Ge(0), Le(1)] | None = None
    """The share of cycles that is sent; left out: the value of `OTEL_TRACES_SAMPLER_ARG`, else all."""
    headers: dict[str, str | dict[str, str]] = field(default_factory=dict)
    """Headers of each request to it, such as `{ authorization = { env = "OTLP_TOKEN" } }`: a secret stands in a
    variable, a file or a credential; `OTEL_EXPORTER_OTLP_HEADERS` applies too."""
    timeout: Positive | None = None
    """Seconds for one request to the collector, repetitions included; left out: the value of
    `OTEL_EXPORTER_OTLP_TIMEOUT`, else 10."""
    named_to: tuple[Literal["models", "mcp", "http"], ...] = ("models", "mcp")
    """Receivers of requests that name their span, by a header `traceparent`: the providers of models, MCP servers
    (there also in the call's `_meta`), the hosts of the tool `http`. Those hosts may belong to anybody, so they get it
    only if it is named here; after a redirect to another host it is never sent."""
    content: bool = False
    """Whether parameters and results of calls are sent too, with everything that looks like a secret masked."""
