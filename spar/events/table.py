"""Table of what observers get of each event.

The feed of live events and the streams of runs read the fields, the terminal reads the sentence, the log the lines, the
traces the attributes. Values are bounded, and secrets are masked. A client reads a live event back as a value of its
class. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, Final, Literal

from msgspec import Struct

from spar import events
from spar.data.json_safe import plain, shown
from spar.data.scrub import scrub, scrubbed
from spar.data.text import safe_line
from spar.decoding import convert_leniently
from spar.events.event import Event
from spar.types import Action, ActionResult, Perception, Reflection

Stream = Literal["lifecycle", "assistant", "reasoning", "verbose", "tool", "compaction", "gap"]
Tone = Literal["good", "bad", "warn", "plain", "quiet", ""]

#: Characters of a value; of an answer or a piece of it; of a goal, an error message or a lesson.
PAYLOAD, ANSWER, LINE = 8_000, 1 << 18, 300
#: Perceptions and calls of a cycle that are named, and the kind of the perception that is a message.
NAMED, NAMED_CALLS, MESSAGE = 3, 8, "message"
#: Fields of an event that stand beside its data.
BESIDE: Final = ("agent", "seq", "at", "session", "cycle_id", "run_id")


class Field(Struct, frozen=True):
    """Field of an event's data: the attribute at `path`, converted; without a path always `value`."""

    path: str = ""
    convert: Callable[[Any], Any] = str
    value: str = ""


class LogRow(Struct, frozen=True):
    """Log line of an event. `fields` has the path of each field; `fault` is the path of a fault whose place is
    added."""

    logger: str
    level: Literal["info", "warning", "error"]
    message: str
    fields: Mapping[str, str]
    fault: str = ""


class Row(Struct, frozen=True, kw_only=True):
    """Row of a type of event.

    Attributes:
        fields: The fields of its data; None: all that do not stand beside the data.
        more: Returns further data, which depends on the event's values.
        sentence: The sentence for people, with the names of data as places.
        tone: The tone of the sentence; "" if a list of events leaves it out.
        stream: The stream of a run that has the event.
        log: The lines in the log.
        span: The attributes of its span, each with the path of its value. (The spans of a cycle, its phases and its
            calls are made from the record of the cycle.)
    """

    sentence: str
    tone: Tone = "quiet"
    fields: Mapping[str, Field] | None = None
    more: Callable[[Any], Mapping[str, Any]] | None = None
    stream: Stream | None = None
    log: tuple[LogRow, ...] = ()
    span: Mapping[str, str] = {}


class LiveEvent(Struct, frozen=True):
    """Event as it is sent to clients.

    `session`, `cycle_id` and `run_id` are "" if the event belongs to none; `data` has its other fields.
    """

    seq: int
    type: str
    at: datetime
    agent: str
    session: str
    cycle_id: str
    run_id: str
    data: dict[str, Any]


# -- values


def payload(value: Any) -> Any:
    """Return a value of at most about 8,000 characters with all secrets masked."""
    return scrubbed(shown(value, PAYLOAD)[0])


def _value(value: Any) -> Any:
    if value is None or type(value) in (bool, int, float):
        return value
    return value.isoformat() if isinstance(value, datetime) else payload(value)


def _text(text: str) -> str:
    return str(payload(text))


def _line(text: str) -> str:
    return safe_line(scrub(text[: 8 * LINE]), LINE)


def _answer(text: str | None) -> Any:
    return None if text is None else plain(text, ANSWER)


def _paths(names: str) -> dict[str, str]:
    """Return the path of each name: `kind=error.kind policy` has one of two parts, and one of one."""
    return {name: path or name for name, _, path in (word.partition("=") for word in names.split())}


def _fields(names: str = "", convert: Callable[[Any], Any] = _value) -> dict[str, Field]:
    return {name: Field(path, convert) for name, path in _paths(names).items()}


def _result(event: Any) -> dict[str, Any]:
    """Return the data of a call's result, shortened and without secrets."""
    result, data = event.result, {}
    if result.output is not None:
        output, is_cut = shown(result.output, PAYLOAD)
        data["output"] = scrubbed(output)
        if is_cut:
            data |= {"truncated": True, "whole": result.call.output_path or f"{event.cycle_id}/{result.call.id}"}
    if result.reason:
        data["reason"] = _text(result.reason)
    if result.fault is not None:
        data["error"] = _text(result.fault.message)
    return data


def _product(event: events.PhaseCompleted) -> dict[str, Any]:
    """Return a summary of the output of a phase: the recorded cycle has it in full."""
    match event.output:
        case Action() as action:
            return {"goal": _line(action.goal), "calls": len(action.calls)}
        case ActionResult() as result:
            return {"status": result.status, "results": len(result.results)}
        case Reflection() as reflection:
            return {"score": reflection.score}
        case list() | tuple() as perceptions:
            return {"perceptions": len(perceptions)}
    return {}


def _input(event: events.PhaseStarted) -> dict[str, Any]:
    """Return what a plan begins with: the perceptions in one line."""
    return {"noticed": _noticed(event.input)} if event.phase == "plan" and isinstance(event.input, list | tuple) else {}


def _noticed(perceptions: Sequence[Any]) -> str:
    shown = [
        ("" if perception.kind == MESSAGE else f"{perception.source or perception.kind}: ")
        + perception.text[: 8 * LINE]
        for perception in perceptions[:NAMED]
        if isinstance(perception, Perception)
    ]
    more = len(perceptions) - NAMED
    return _line("; ".join([*shown, f"and {more} more"] if more > 0 else shown))


def _story(event: events.CycleRecorded) -> dict[str, Any]:
    """Return a cycle in short: what was noticed, decided and done, when it began and how it ended."""
    record = event.record
    action, results = record.action or Action(), () if record.result is None else record.result.results
    fault = record.faults[0].message if record.faults else ""
    answer = "" if action.output is None else f"answer: {shown(action.output, LINE)[0]}"
    return {
        "cycle": record.cycle_id, "session": record.session,
        "noticed": _noticed(record.perceptions) or _line(action.goal),
        "decided": _line(action.deferred or answer or action.reason), "fault": _line(fault),
        "done": [{"tool": result.call.tool, "status": result.status} for result in results[:NAMED_CALLS]],
        "started_at": record.started_at.isoformat(), "duration": record.duration, "outcome": record.outcome,
    }  # fmt: skip


# -- rows


def _call(phase: str, sentence: str, tone: Tone, names: str = "", texts: str = "", state: str = "", words: str = "",
          **columns: Any) -> Row:  # fmt: skip
    """Return the row of an event of a call, whose data begin with the phase, the call and its tool."""
    fixed = {"state": Field(value=state)} if state else {}
    fields = {"phase": Field(value=phase)} | _fields(f"call=call.id tool=call.tool {words}", str) | fixed
    return Row(sentence=sentence, tone=tone, stream="tool", **columns,
               fields=fields | _fields(names) | _fields(texts, _text))  # fmt: skip


def _end(phase: str, tone: Tone, **columns: Any) -> Row:
    return _call(phase, "{tool}: {status}: {detail}", tone, words="status=result.status", more=_result, **columns)


def _log(logger: str, level: Any, message: str, names: str, fault: str = "") -> LogRow:
    return LogRow(f"spar.{logger}", level, message, _paths(names), fault)


#: Attributes that a span has only with a number above 0.
_COUNTS: Final = ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "gen_ai.usage.cache_read.input_tokens")
_TOKENS: Final = {"gen_ai.usage.input_tokens": "input_tokens", "gen_ai.usage.output_tokens": "output_tokens"}

ROWS: Final[Mapping[type[Event], Row]] = {
    events.Gap: Row(sentence="{missed} events were missed", tone="warn"),
    # -- a cycle
    events.LoopStarted: Row(sentence="", tone="", fields={}),
    events.PhaseStarted: Row(sentence="", tone="", fields=_fields("phase"), more=_input),
    events.PhaseCompleted: Row(sentence="", tone="", fields=_fields("phase duration"), more=_product),
    events.LoopCompleted: Row(
        sentence="cycle {outcome}", tone="plain", fields=_fields("outcome duration calls deferred")
    ),
    events.CycleRecorded: Row(sentence="", tone="", more=_story),
    events.ErrorOccurred: Row(
        sentence="{phase} failed: {message}", tone="bad",
        fields=_fields("phase policy kind=error.kind") | _fields("message=error.message", _line),
        log=(
            _log("sensors", "warning", "sensor failed", "sensor=error.part reason=error.message policy", "error"),
            _log("agent", "warning", "hook failed",
                 "cycle=cycle_id hook=error.part point=policy reason=error.message", "error"),
            _log("tools", "warning", "tool failed", "part=error.part reason=error.message policy", "error"),
        ),
    ),
    events.BreakpointReached: Row(sentence="stands {where}: spar attach {session}", tone="warn",
                                  fields=_fields("name stop where session")),
    events.BreakpointLeft: Row(sentence="goes on {where}", tone="plain"),
    events.BreakpointEnded: Row(sentence="breakpoint {name} {state}: {reason}", tone="warn"),
    # -- the agent's state
    events.StateChanged: Row(sentence="agent {old} → {new}", tone="warn"),
    events.ConfigReloaded: Row(sentence="configuration read again", tone="plain"),
    events.HealthAlert: Row(sentence="alert {kind}: {message}", tone="bad"),
    events.HealthRecovered: Row(sentence="alert {kind} is over", tone="good"),
    events.RecoveryStep: Row(sentence="{step} {part}: {reason}", tone="warn"),
    events.NotifierFailed: Row(sentence="notifier {notifier} failed: {reason}", tone="bad"),
    events.NotifierRestored: Row(sentence="notifier {notifier} works again", tone="good"),
    events.Recovered: Row(sentence="{cycles} cycles continue, {items} items are handed out again", tone="warn"),
    events.DeadLettered: Row(sentence="{item} put aside: {reason}", tone="bad"),
    events.ContractViolation: Row(
        sentence="{part} broke its contract: {message}", tone="warn",
        log=(_log("tools", "warning", "contract violated", "part reason=message"),)
    ),
    # -- sensors and incidents
    events.SensorQuarantined: Row(
        sentence="sensor {sensor} is in quarantine: {reason}", tone="bad",
        log=(_log("sensors", "error", "sensor quarantined", "sensor reason"),)
    ),
    events.SensorRestored: Row(
        sentence="sensor {sensor} is back", tone="good",
        log=(_log("sensors", "info", "sensor restored", "sensor"),)
    ),
    events.TriggerMissed: Row(
        sentence="{trigger} did not run at {due_at}: {reason}", tone="warn",
        log=(_log("sensors", "warning", "trigger missed", "sensor=trigger due_at reason"),)
    ),
    events.IncidentOpened: Row(sentence="incident {incident} opened, {severity}: {why}", tone="warn"),
    events.IncidentChanged: Row(sentence="incident {incident} changed, {severity}: {why}", tone="warn"),
    events.IncidentClosed: Row(sentence="incident {incident} closed: {why}", tone="good"),
    # -- budgets
    events.BudgetWarned: Row(sentence="budget {budget}: {measure}", tone="warn"),
    events.BudgetExceeded: Row(sentence="budget {budget} exceeded by {what}", tone="bad"),
    events.BudgetRenewed: Row(sentence="budget {budget} is free again", tone="good"),
    # -- runs and their answers
    events.RunAccepted: Row(sentence="run {run_id} accepted", tone="plain"),
    events.RunStarted: Row(sentence="run {run_id} begins", tone="plain"),
    events.RunEnded: Row(
        sentence="run {run_id} {status}: {error} {reply}", tone="good",
        fields=_fields("status") | _fields("error", _line) | _fields("reply", _answer) | _fields("silent output usage"),
        span={
            "spar.run.id": "run_id", "spar.run.status": "status", "gen_ai.agent.name": "agent",
            **{name: f"usage.{path}" for name, path in _TOKENS.items()}
        },
    ),
    events.MessageOutcome: Row(sentence="the message was {outcome}", tone=""),
    events.AssistantDelta: Row(
        sentence="", tone="", stream="assistant", fields=_fields("text", _answer) | _fields("reset ends")
    ),
    events.ReasoningDelta: Row(
        sentence="", tone="", stream="reasoning", fields=_fields("text", _answer) | _fields("reset request")
    ),
    events.MessageSent: Row(sentence="told {route}: {text}", tone="plain"),
    events.RepetitionNoticed: Row(sentence="run {run_id} repeats itself: {message}", tone="warn"),
    events.CompactionStarted: Row(
        sentence="the conversation is summed up", stream="compaction",
        fields={"phase": Field(value="start")} | _fields("reason")
    ),
    events.CompactionCompleted: Row(
        sentence="the summing up has ended: {error}", stream="compaction",
        fields={"phase": Field(value="end")} | _fields("completed will_retry") | _fields("error", _text)
    ),
    events.SessionReset: Row(sentence="a conversation begins anew: {reason} {by}"),
    # -- models
    events.ModelStateChanged: Row(sentence="model {model} {state} {reason}", tone="warn"),
    events.ModelRequested: Row(
        sentence="request {attempt} of about {tokens} tokens", fields=_fields("digest tokens attempt")
    ),
    events.ModelAnswered: Row(
        sentence="model {model} {finish}: {input_tokens} tokens in, {output_tokens} out {error}",
        span={
            "spar.request.digest": "digest", "spar.request.attempt": "attempt", **_TOKENS,
            "gen_ai.usage.cache_read.input_tokens": "cached_tokens", "spar.cost.micros": "cost"
        },
    ),
    # -- channels
    events.SenderMet: Row(sentence="a message of {sender}, who is {verdict}", tone="warn"),
    events.SenderDecided: Row(sentence="sender {sender} {status} by {by}", tone="plain"),
    events.MessageDelivered: Row(sentence="message sent on {channel}"),
    events.MessageUndeliverable: Row(sentence="message on {channel} put aside: {reason}", tone="bad"),
    events.ChannelQuarantined: Row(sentence="channel {channel} cannot {part}: {reason}", tone="bad"),
    events.ChannelRestored: Row(sentence="channel {channel} can {part} again", tone="good"),
    # -- calls
    events.CallProposed: _call("proposed", "{tool}", "", "params=call.params"),
    events.CallStarted: _call("start", "{tool} …", "quiet", "attempt"),
    events.CallProgressed: _call("progress", "{tool}: {progress}", "", "progress"),
    events.CallCompleted: _end("result", "good"),
    events.CallFailed: _end("error", "bad", log=(
        _log("tools", "warning", "call failed",
             "cycle=cycle_id tool=call.tool call=call.id reason=result.fault.message", "result.fault"),
    )),
    events.CallSkipped: _end("skipped", "warn"),
    events.CallInDoubt: _call("in_doubt", "{tool}: in_doubt: {why}", "warn", "doubt", "why"),
    events.ApprovalRequested: _call("approval", "{tool}: waits for approval", "warn", state="requested"),
    events.ApprovalResolved: _call(
        "approval", "{tool}: approval {decision}", "warn", "decision", "reason", state="resolved"
    ),
    events.ApprovalExpired: _call("approval", "{tool}: approval {state}", "warn", state="expired"),
    events.DoubtResolved: Row(sentence="call in doubt {doubt}: {answer} {by}", tone="plain"),
    events.WriteConflict: Row(sentence="several calls wrote to {path}", tone="warn"),
    # -- learning
    events.ExperienceStored: Row(
        sentence="remembered: {situation}",
        fields=_fields("id=experience.id success=experience.success")
        | _fields("situation=experience.situation lesson=experience.lesson", _line)
    ),
    events.FeedbackTaken: Row(sentence="feedback on {about} by {by}: {why}"),
    events.ExampleTaught: Row(sentence="taught: {what} {label}"),
    events.ExampleForgotten: Row(sentence="forgotten: {what} {label}"),
}  # fmt: skip
BY_NAME: Final[Mapping[str, Row]] = {kind.__name__: row for kind, row in ROWS.items()}


# -- readers


def data_of(event: Event) -> dict[str, Any]:
    """Return the data of an event as JSON values; of a type without a row, all fields that do not stand beside."""
    kind = type(event)
    constants, readers, more = _READERS.get(kind) or _READERS.setdefault(kind, _readers_of(kind))
    data: dict[str, Any] = constants.copy()
    for name, read, convert in readers:
        data[name] = convert(read(event))
    return data if more is None else data | more(event)


_READERS: dict[type[Event], tuple[Any, ...]] = {}


def _readers_of(kind: type[Event]) -> tuple[Any, ...]:
    """Return all fields of a type of event with the constant ones set, what reads each of the others, and what returns
    further data."""
    fields = _fields_of(kind)
    constants = {name: None if field.path else field.convert(field.value) for name, field in fields.items()}
    readers = [(name, attrgetter(field.path), field.convert) for name, field in fields.items() if field.path]
    return constants, readers, None if (row := ROWS.get(kind)) is None else row.more


def _fields_of(kind: type[Event]) -> Mapping[str, Field]:
    """Return the fields of an event's data; of a type without a row, all that do not stand beside."""
    row = ROWS.get(kind)
    if row is not None and row.fields is not None:
        return row.fields
    return _fields(" ".join(name for name in kind.__struct_fields__ if name not in BESIDE))


def event_of(live: LiveEvent) -> Event | None:
    """Return a live event as a value of its class; None for a class of another version.

    A field that no live event of the class has gets its default, else the empty value of its type.
    Raises: ValueError for an event that lacks a field, or has another value in it, because its service is of another
    version.
    """
    if (kind := _KINDS.get(live.type)) is None:
        return None
    paths = {name: field.path for name, field in _fields_of(kind).items() if field.path}
    values: dict[str, Any] = {name: getattr(live, name) for name in BESIDE if name in kind.__struct_fields__}
    for name, path in paths.items():
        if name in live.data:
            *outer, last = path.split(".")
            place = values
            for key in outer:
                place = place.setdefault(key, {})
            place[last] = live.data[name]
    if "result" in values:
        values["result"]["call"] = values.get("call")
    event, unsaid = convert_leniently(values, kind)
    if wrong := sorted({*paths.values(), *BESIDE} & set(unsaid)):
        raise ValueError(f"{live.type} without {', '.join(wrong)}")
    return event


_KINDS: Final = {kind.__name__: kind for kind in ROWS}


def span_attributes(event: Event) -> dict[str, Any]:
    """Return the attributes of the span of an event; counts of tokens only if there are any."""
    values = {name: attrgetter(path)(event) for name, path in ROWS[type(event)].span.items()}
    return {name: value for name, value in values.items() if value is not None and (value or name not in _COUNTS)}


def row_of_call(data: Mapping[str, Any]) -> Row | None:
    """Return the row of an event of a call by its data in the stream of a run; None for an unknown phase."""
    return _BY_PHASE.get((data.get("phase"), data.get("state")))


_BY_PHASE: Final = {
    tuple(row.fields[name].value if name in row.fields else None for name in ("phase", "state")): row
    for row in ROWS.values()
    if row.stream == "tool" and row.fields is not None
}


def sentence_of(row: Row, data: Mapping[str, Any], show: Callable[[Any], str] = str) -> str:
    """Return the sentence of an event with its data; a missing value is left out.

    Args: show: returns a value as it is shown.
    """
    detail = data.get("error") or data.get("reason") or data.get("why") or ""
    values = _Shown({"detail": detail, **data})
    values.show = show
    return " ".join(row.sentence.format_map(values).split()).rstrip(": ")


class _Shown(dict[str, Any]):
    """Values of a sentence, as they are shown; "" for a missing one."""

    show: Callable[[Any], str]

    def __getitem__(self, key: str) -> str:
        value = self.get(key)
        return "" if value is None else self.show(value)
