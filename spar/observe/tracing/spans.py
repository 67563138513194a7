"""Spans of a cycle that is over, and of a run that has ended, by the GenAI conventions of OpenTelemetry.

A record says when its cycle began and how long each phase took: sense begins with the cycle, plan when that ends,
reflect ends with the cycle, act ends when that begins (streamed calls begin before their plan is over). A span never
leaves its parent. Names of attributes are those of the semantic conventions, whose state is "Development"; what they
have no name for begins with `spar.`. Pure.
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
from spar.observe.tracing.trace_context import TraceParent, span_of, trace_of
from spar.types import CallResult, CycleRecord

#: Characters of an attribute that holds content.
MOST_CONTENT: Final = 8_000
#: Spans of calls that one cycle tells; of more, the number is told.
MOST_CALLS: Final = 500
#: Links of one span.
MOST_LINKS: Final = 128
_NANO: Final = 1_000_000_000
#: How the conventions call providers that model strings name otherwise.
_PROVIDERS: Final[Mapping[str, str]] = {
    "azure": "azure.ai.openai", "bedrock": "aws.bedrock", "google": "gcp.gemini", "google-gla": "gcp.gemini",
    "google-vertex": "gcp.vertex_ai", "grok": "x_ai", "mistral": "mistral_ai", "moonshotai": "moonshot_ai",
    "openai-chat": "openai", "openai-responses": "openai", "xai": "x_ai",
}  # fmt: skip
_GOOD: Final = frozenset({"ok", "skipped", "cancelled", "denied"})

Value = str | bool | int | float | tuple[str, ...]


class Span(Struct, frozen=True):
    """One span, times in nanoseconds since 1970; `error` is the reason of one that failed, "" for all others."""

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

    Args: requests: those to models that were made in it; links: the spans of others that caused it.
    """
    id, trace = record.cycle_id, record.trace_id or trace_of(record.cycle_id)
    began = _nanos(record.started_at)
    ended = began + max(int(record.duration * _NANO), 0)
    own = span_of(id)
    linked = [*links, TraceParent(trace_of(run_id), span_of(run_id))] if run_id else list(links)
    faults = {fault.phase: fault.kind for fault in record.faults}
    attributes = _operation("invoke_agent", record.agent) | {
        "gen_ai.conversation.id": record.session, "spar.cycle.id": id, "spar.cycle.outcome": record.outcome,
        "spar.perceptions": len(record.perceptions),
    }  # fmt: skip
    if run_id:
        attributes["spar.run.id"] = run_id
    if sources := tuple(dict.fromkeys(each.source for each in record.perceptions if each.source))[:20]:
        attributes["spar.sensors"] = sources
    error = next(iter(faults.values()), "")
    found = [Span(f"invoke_agent {record.agent}", trace, own, "", began, ended,
                  attributes | _failed(error), error, links=tuple(linked[:MOST_LINKS]))]  # fmt: skip
    times = _phase_times(record, began, ended)
    for phase, (first, last) in times.items():
        name, told = (f"plan {record.agent}", _operation("plan", record.agent)) if phase == "plan" else (
            f"spar.{phase}", {})  # fmt: skip
        kind = faults.get(phase, "")
        found.append(Span(name, trace, span_of(id, phase), own, first, last,
                          {**told, "spar.phase": phase, **_failed(kind)}, kind))  # fmt: skip
    planned = span_of(id, "plan") if "plan" in times else own
    found += [_request(each, trace, span_of(id, "model", str(each.number)), planned, began, ended) for each in requests]
    results = record.result.results if record.result is not None else ()
    acted = span_of(id, "act") if "act" in times else own
    within = (*times.get("act", (began, ended)), ended)
    found += [_call(each, id, trace, acted, within, with_content) for each in results[:MOST_CALLS]]
    if len(results) > MOST_CALLS:
        found[0].attributes["spar.calls.untold"] = len(results) - MOST_CALLS
    return found


def span_of_run(event: RunEnded, began: int, ended: int, cycles: Sequence[str], remote: TraceParent | None) -> Span:
    """Return the span of a run that has ended, a trace of its own with a link to each of its cycles."""
    links = [TraceParent(trace_of(each), span_of(each)) for each in cycles]
    told: dict[str, Value] = {
        "gen_ai.operation.name": "invoke_workflow", "spar.run.id": event.run_id, "spar.run.status": event.status,
        "spar.run.cycles": len(cycles), "gen_ai.agent.name": event.agent,
    }  # fmt: skip
    if event.usage.input_tokens or event.usage.output_tokens:
        told |= {"gen_ai.usage.input_tokens": event.usage.input_tokens,
                 "gen_ai.usage.output_tokens": event.usage.output_tokens}  # fmt: skip
    error = "" if event.status == "ok" else event.error[:200] or event.status
    every = [*([remote] if remote is not None else []), *links]
    return Span(f"run {event.agent}", trace_of(event.run_id), span_of(event.run_id), "", began, max(began, ended),
                told | _failed(error and event.status), scrub(error), links=tuple(every[:MOST_LINKS]))  # fmt: skip


def _phase_times(record: CycleRecord, began: int, ended: int) -> dict[str, tuple[int, int]]:
    """Return beginning and end of each phase, found from both ends of the cycle."""
    took = {phase: int(seconds * _NANO) for phase, seconds in record.phases.items()}
    found: dict[str, tuple[int, int]] = {}
    at = began
    for phase in ("sense", "plan"):
        if phase in took:
            found[phase] = at, min(at + took[phase], ended)
            at = found[phase][1]
    at = ended
    for phase in ("reflect", "act"):
        if phase in took:
            found[phase] = max(at - took[phase], began), at
            at = found[phase][0]
    return {phase: found[phase] for phase in took if phase in found}


def _request(request: ModelAnswered, trace: str, span: str, parent: str, began: int, ended: int) -> Span:
    provider, _, model = request.model.rpartition(":")
    answered = request.answered_as or request.answered_by.rpartition(":")[2]
    at = min(max(_nanos(request.started_at), began), ended)
    told: dict[str, Value] = {
        "gen_ai.operation.name": "chat", "gen_ai.request.model": model, "spar.request.digest": request.digest,
        "spar.request.attempt": request.attempt,
    }  # fmt: skip
    if model:  # one without a prefix has an address of its own, and is spoken to as OpenAI's are
        told["gen_ai.provider.name"] = _PROVIDERS.get(provider, provider) or "openai"
    if answered:
        told["gen_ai.response.model"] = answered
    if request.finish:
        told["gen_ai.response.finish_reasons"] = (request.finish,)
    if request.input_tokens or request.output_tokens:
        told["gen_ai.usage.input_tokens"] = request.input_tokens
        told["gen_ai.usage.output_tokens"] = request.output_tokens
    if request.cached_tokens:
        told["gen_ai.usage.cache_read.input_tokens"] = request.cached_tokens
    if request.cost is not None:
        told["spar.cost.micros"] = request.cost
    last = max(at, min(at + int(request.duration * _NANO), ended))
    return Span(f"chat {model}".strip(), trace, span, parent, at, last, told | _failed(request.error), request.error,
                "client")  # fmt: skip


def _call(
    result: CallResult, cycle_id: str, trace: str, parent: str, within: tuple[int, int, int], with_content: bool
) -> Span:
    """Return the span of a call. Args: within: beginning and end of the phase act, and the end of the cycle."""
    call, fault = result.call, result.fault
    began, acted, ended = within
    at = began if result.started_at is None else min(max(_nanos(result.started_at), began), acted)
    told: dict[str, Value] = {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": call.tool, "gen_ai.tool.call.id": call.id,
        "gen_ai.tool.type": "function", "spar.call.status": result.status, "spar.call.attempts": result.attempts,
    }  # fmt: skip
    if with_content:
        told["gen_ai.tool.call.arguments"] = _content(call.params)
        told["gen_ai.tool.call.result"] = _content(result.output)
    error = "" if result.status in _GOOD else (fault.kind if fault is not None else result.status)
    return Span(f"execute_tool {call.tool}", trace, span_of(cycle_id, "call", call.id), parent, at,
                max(at, min(at + int(result.duration * _NANO), ended)), told | _failed(error), error)  # fmt: skip


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
