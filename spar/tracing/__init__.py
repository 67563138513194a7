"""Traces: what a cycle did, sent to an OpenTelemetry collector after its end.

An attachment, imported only if `[tracing]` is on.

attach        makes the tracer from `[tracing]` and the OTEL_* variables, and connects it to an agent
tracer        takes each ended cycle, passes its spans to the exporter in a separate thread, and counts
spans         makes spans of a cycle's record and of a run's end, by the GenAI conventions; pure
trace_context names of traces and spans, computed from existing ids; pure
otlp          sends spans by OTLP over HTTP; the only file that knows OpenTelemetry
"""
