"""Sending of spans by OTLP over HTTP, with OpenTelemetry's SDK and exporter; extra `otel`.

Spans go to the exporter as they are: the SDK's tracer does not run, no context is propagated, no global provider is
set. The standard variables apply where no setting is given: `OTEL_EXPORTER_OTLP_ENDPOINT`,
`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, `…_HEADERS`, `…_TIMEOUT`, `…_COMPRESSION`, `…_CERTIFICATE`,
`OTEL_RESOURCE_ATTRIBUTES`, `OTEL_SERVICE_NAME`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from spar.tracing.spans import Span
from spar.tracing.trace_context import TraceParent

_KINDS = {"internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT}
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class OtlpSender:
    """Sender of spans to a collector; `send` blocks, and is called from one thread.

    Args: endpoint: the full address with its path; None: that of the environment; timeout: seconds of one request with
        all its repetitions.
    """

    def __init__(self, service: str, version: str, endpoint: str | None, headers: Mapping[str, str],
                 timeout: float | None) -> None:  # fmt: skip
        version_attribute = {"service.version": version}
        resource = Resource.create(version_attribute)  # adds the attributes of the environment
        if str(resource.attributes.get("service.name", "unknown_service")).startswith("unknown_service"):
            resource = resource.merge(Resource({"service.name": service}))
        self._resource, self._scope = resource, InstrumentationScope("spar", version)
        # The exporter logs each failure itself; the tracer counts failures and logs the first one.
        for name in ("opentelemetry.exporter.otlp.proto.http", "opentelemetry.exporter.http", "opentelemetry"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._exporter = OTLPSpanExporter(endpoint=endpoint, headers=dict(headers) or None, timeout=timeout)

    def send(self, spans: Sequence[Span]) -> bool:
        """Send spans; return whether the collector has accepted them. Never raises for a fault of the collector."""
        done = self._exporter.export([self._readable(span) for span in spans])
        return done is SpanExportResult.SUCCESS

    def encoded(self, spans: Sequence[Span]) -> bytes:
        """Return the body of the request that `send` makes."""
        body: bytes = encode_spans([self._readable(span) for span in spans]).SerializeToString()
        return body

    def close(self) -> None:
        """Abort the present request and close the connections; from any thread. Idempotent."""
        end: Callable[[], object] = self._exporter.shutdown
        end()

    def _readable(self, span: Span) -> ReadableSpan:
        parent = _context(span.trace_id, span.parent_id) if span.parent_id else None
        return ReadableSpan(
            span.name,
            _context(span.trace_id, span.span_id),
            parent,
            self._resource,
            span.attributes,
            links=[Link(_remote(link)) for link in span.links],
            kind=_KINDS[span.kind],
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
            start_time=span.began,
            end_time=span.ended,
            instrumentation_scope=self._scope,
        )


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=_SAMPLED)


def _remote(parent: TraceParent) -> SpanContext:
    flags = _SAMPLED if parent.is_sampled else TraceFlags(0)
    return SpanContext(int(parent.trace_id, 16), int(parent.span_id, 16), is_remote=True, trace_flags=flags)
