"""Spans of an ended cycle, and of an ended run, by the GenAI conventions of OpenTelemetry.

A record has the beginning of its cycle and the duration of each phase: sense begins with the cycle, plan when sense
ends, reflect ends with the cycle, act ends when reflect begins (streamed calls begin before their plan has ended). A
span lies within its parent. Names of attributes are those of the semantic conventions, whose state is "Development"; an
attribute without a name there begins with `spar.`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from spar.data.json_safe import plain
from spar.data.scrub import scrub
from spar.events import ModelAnswered, RunEnded
from spar.events.table import span_attributes
from spar.tracing.trace_context import TraceParent, span_of, trace_of
from spar.types import CallResult, CycleRecord

#: Most characters of an attribute that holds content.
MOST_CONTENT: Final = 8_000
#: Most spans of calls in one cycle; for further calls only their number is sent.
MOST_CALLS: Final = 500
#: Most links of one span.
MOST_LINKS: Final = 128
_NANO: Final = 1_000_000_000
#: Names in the conventions of providers that have other names in model strings.
_PROVIDERS: Final[Mapping[str, str]] = {
    "azure": "azure.ai.openai", "bedrock": "aws.bedrock", "google": "gcp.gemini", "google-gla": "gcp.gemini",
    "google-vertex": "gcp.vertex_ai", "grok": "x_ai", "mistral": "mistral_ai", "moonshotai": "moonshot_ai",
    "openai-chat": "openai", "openai-responses": "openai", "xai": "x_ai",
}  # fmt: skip
_GOOD: Final = frozenset({"ok", "skipped", "cancelled", "denied"})

Value = str | bool | int | float | tuple[str, ...]


class Span(Struct, frozen=True):
    """Span with times in nanoseconds since 1970; `error` is the reason of a failed one, "" for all others."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    began: int
    ended: int
    attributes: dict[str, Value]
    error: str = ""
    kind: Literal["internal", "client"] = "internal"
    links: tuple[TraceParent, ...] = ()


def spans_of_cycle(
    record: CycleRecord,
    run_id: str = "",
    requests: Sequence[ModelAnswered] = (),
    links: Sequence[TraceParent] = (),
    *,
    with_content: bool = False,
) -> list[Span]:
    """Return the spans of a cycle, its own first, then those of its phases, requests and calls.

    Args: requests: the requests to models in this cycle; links: spans of others that caused it.
    """
    id, trace = record.cycle_id, record.trace_id or trace_of(record.cycle_id)
    began = _nanos(record.started_at)
    ended = began + max(int(record.duration * _NANO), 0)
    cycle_span = span_of(id)
    linked = [*links, TraceParent(trace_of(run_id), span_of(run_id))] if run_id else list(links)
    faults = {fault.phase: fault.kind for fault in record.faults}
    attributes = _operation("invoke_agent", record.agent) | {
        "gen_ai.conversation.id": record.session, "spar.cycle.id": id, "spar.cycle.outcome": record.outcome,
        "spar.perceptions": len(record.perceptions),
    }  # fmt: skip
    if run_id:
        attributes["spar.run.id"] = run_id
    if sources := tuple(dict.fromkeys(item.source for item in record.perceptions if item.source))[:20]:
        attributes["spar.sensors"] = sources
    error = next(iter(faults.values()), "")
    spans = [Span(f"invoke_agent {record.agent}", trace, cycle_span, "", began, ended,
                  attributes | _failed(error), error, links=tuple(linked[:MOST_LINKS]))]  # fmt: skip
    times = _phase_times(record, began, ended)
    for phase, (first, last) in times.items():
        name, extra = (f"plan {record.agent}", _operation("plan", record.agent)) if phase == "plan" else (
            f"spar.{phase}", {})  # fmt: skip
        kind = faults.get(phase, "")
        spans.append(Span(name, trace, span_of(id, phase), cycle_span, first, last,
                          {**extra, "spar.phase": phase, **_failed(kind)}, kind))  # fmt: skip
    planned = span_of(id, "plan") if "plan" in times else cycle_span
    spans += [_request(item, trace, span_of(id, "model", str(item.number)), planned, began, ended) for item in requests]
    results = record.result.results if record.result is not None else ()
    acted = span_of(id, "act") if "act" in times else cycle_span
    within = (*times.get("act", (began, ended)), ended)
    spans += [_call(item, id, trace, acted, within, with_content) for item in results[:MOST_CALLS]]
    if len(results) > MOST_CALLS:
        spans[0].attributes["spar.calls.untold"] = len(results) - MOST_CALLS
    return spans


def span_of_run(event: RunEnded, began: int, ended: int, cycles: Sequence[str], remote: TraceParent | None) -> Span:
    """Return the span of an ended run: a trace of its own with a link to each of its cycles."""
    links = [TraceParent(trace_of(cycle_id), span_of(cycle_id)) for cycle_id in cycles]
    attributes: dict[str, Value] = {
        "gen_ai.operation.name": "invoke_workflow", "spar.run.cycles": len(cycles), **span_attributes(event)
    }  # fmt: skip
    error = "" if event.status == "ok" else event.error[:200] or event.status
    all_links = [*([remote] if remote is not None else []), *links]
    return Span(f"run {event.agent}", trace_of(event.run_id), span_of(event.run_id), "", began, max(began, ended),
                attributes | _failed(error and event.status), scrub(error),
                links=tuple(all_links[:MOST_LINKS]))  # fmt: skip


def _phase_times(record: CycleRecord, began: int, ended: int) -> dict[str, tuple[int, int]]:
    """Return beginning and end of each phase, computed from both ends of the cycle."""
    durations = {phase: int(seconds * _NANO) for phase, seconds in record.phases.items()}
    times: dict[str, tuple[int, int]] = {}
    at = began
    for phase in ("sense", "plan"):
        if phase in durations:
            times[phase] = at, min(at + durations[phase], ended)
            at = times[phase][1]
    at = ended
    for phase in ("reflect", "act"):
        if phase in durations:
            times[phase] = max(at - durations[phase], began), at
            at = times[phase][0]
    return {phase: times[phase] for phase in durations if phase in times}


def _request(request: ModelAnswered, trace: str, span: str, parent: str, began: int, ended: int) -> Span:
    provider, _, model = request.model.rpartition(":")
    answered = request.answered_as or request.answered_by.rpartition(":")[2]
    at = min(max(_nanos(request.started_at), began), ended)
    attributes: dict[str, Value] = {
        "gen_ai.operation.name": "chat", "gen_ai.request.model": model, **span_attributes(request)
    }  # fmt: skip
    if model:  # a model without a prefix has its own address and OpenAI's protocol
        attributes["gen_ai.provider.name"] = _PROVIDERS.get(provider, provider) or "openai"
    if answered:
        attributes["gen_ai.response.model"] = answered
    if request.finish:
        attributes["gen_ai.response.finish_reasons"] = (request.finish,)
    last = max(at, min(at + int(request.duration * _NANO), ended))
    return Span(f"chat {model}".strip(), trace, span, parent, at, last, attributes | _failed(request.error),
                request.error, "client")  # fmt: skip


def _call(
    result: CallResult, cycle_id: str, trace: str, parent: str, within: tuple[int, int, int], with_content: bool
) -> Span:
    """Return the span of a call.

    Args: within: beginning and end of the phase act, and the end of the cycle.
    """
    call, fault = result.call, result.fault
    began, acted, ended = within
    at = began if result.started_at is None else min(max(_nanos(result.started_at), began), acted)
    attributes: dict[str, Value] = {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": call.tool, "gen_ai.tool.call.id": call.id,
        "gen_ai.tool.type": "function", "spar.call.status": result.status, "spar.call.attempts": result.attempts,
    }  # fmt: skip
    if with_content:
        attributes["gen_ai.tool.call.arguments"] = _content(call.params)
        attributes["gen_ai.tool.call.result"] = _content(result.output)
    error = "" if result.status in _GOOD else (fault.kind if fault is not None else result.status)
    return Span(f"execute_tool {call.tool}", trace, span_of(cycle_id, "call", call.id), parent, at,
                max(at, min(at + int(result.duration * _NANO), ended)), attributes | _failed(error), error)  # fmt: skip


def _operation(name: str, agent: str) -> dict[str, Value]:
    return {"gen_ai.operation.name": name, "gen_ai.agent.name": agent}


def _failed(error: str) -> dict[str, Value]:
    return {"error.type": error} if error else {}


def _content(value: Any) -> str:
    return scrub(msgspec.json.encode(plain(value)).decode())[:MOST_CONTENT]


def _nanos(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) * 1000


def batches(spans: Sequence[Span], size: int) -> Iterator[Sequence[Span]]:
    """Yield spans in order, at most `size` at a time."""
    for start in range(0, len(spans), size):
        yield spans[start : start + size]
