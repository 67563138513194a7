"""Traces: what a cycle did, told to an OpenTelemetry collector after it has ended.

Imported only where `[tracing]` is on.

tracer      takes each cycle that is over, hands its spans to the exporter in a thread of its own, and counts
spans       makes spans of a cycle's record and of a run's end, by the GenAI conventions; pure
trace_context names of traces and spans, made from ids that there are anyway; pure
otlp        sends spans by OTLP over HTTP; the one file that knows OpenTelemetry
"""
