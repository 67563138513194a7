"""A collector of traces on a loopback port: takes OTLP over HTTP as the real ones do, and keeps what it was told."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.servers.web import http_served


@dataclass
class Told:
    """One span as it arrived."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    began: int
    ended: int
    attributes: dict[str, Any]
    error: str
    links: list[tuple[str, str]]
    resource: dict[str, Any]


@dataclass
class Collector:
    """What a collector was told. While `answers` is not 200 it takes nothing."""

    url: str = ""
    answers: int = 200
    spans: list[Told] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    refused: int = 0

    def named(self, name: str) -> list[Told]:
        return [each for each in list(self.spans) if each.name == name]

    def of(self, trace_id: str) -> dict[str, Told]:
        """The spans of a trace by name."""
        return {each.name: each for each in list(self.spans) if each.trace_id == trace_id}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(each) for each in value.array_value.values] if kind == "array_value" else getattr(value, kind)


def _attributes(pairs: Any) -> dict[str, Any]:
    return {each.key: _value(each.value) for each in pairs}


def decoded(body: bytes) -> list[Told]:
    request = ExportTraceServiceRequest.FromString(body)
    return [
        Told(
            span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(), span.kind,
            span.start_time_unix_nano, span.end_time_unix_nano, _attributes(span.attributes),
            span.status.message if span.status.code == 2 else "",
            [(link.trace_id.hex(), link.span_id.hex()) for link in span.links], _attributes(group.resource.attributes),
        )
        for group in request.resource_spans for scope in group.scope_spans for span in scope.spans
    ]  # fmt: skip


@contextmanager
def collecting(port: int = 0) -> Iterator[Collector]:
    """A collector for as long as the block."""
    collector = Collector()

    def answer(path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        if collector.answers == 200:
            collector.headers.append(headers)
            collector.spans += decoded(gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body)
        else:
            collector.refused += 1
        return collector.answers, ExportTraceServiceResponse().SerializeToString()

    with http_served(answer, "application/x-protobuf", port) as url:
        collector.url = f"{url}/v1/traces"
        yield collector
