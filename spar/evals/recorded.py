"""Cases of what happened: of a run or a cycle in a store, with the tools that it was offered and recorded answers.

A case is made of the transcript of the run, which has its messages, calls and answer, and of the records of its cycles,
which have the tools as the model saw them. Secrets in it are masked.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from spar.data.reply import TOKEN
from spar.data.scrub import masked
from spar.data.text import one_line
from spar.decoding import convert
from spar.evals.conditions import is_rule
from spar.ports.any_part import has, offers
from spar.ports.store import DurableStore, InspectsExperiences, OptionalStore
from spar.records.approvals import Approval
from spar.records.runs import RunRow, known_status
from spar.records.transcript import Entry, still_read
from spar.types import Call, CycleRecord

#: Rows of a list of runs that are read at once, cycles of a run that are looked at, entries of a conversation.
_PAGE, _CYCLES, _ENTRIES = 1_000, 500, 10_000
#: Characters of the message in the name of a case.
_NAMED: Final = 60
_REFERENCE: Final = "†"


class RecordedCase(Struct, frozen=True):
    """Case as plain values, and sentences about its origin."""

    case: dict[str, Any]
    about: tuple[str, ...]


class Candidate(Struct, frozen=True):
    """Run or cycle that may become a case; `why` says why it is offered."""

    id: str
    at: datetime
    why: str


class _PastCall(Struct, frozen=True):
    """Call that was made, with what came of it."""

    tool: str
    params: Mapping[str, Any]
    status: str
    output: Any = None
    error: str = ""
    reason: str = ""


async def candidates(memory: Any, agent: str, limit: int = 20) -> list[Candidate]:
    """Return what a person marked bad, the newest first, then the runs that failed."""
    rows = list[Candidate]()
    if has(memory, OptionalStore.audit):
        judged = dict[str, Candidate | None]()
        for entry in await memory.audit.entries(_PAGE, action="run.feedback"):  # the last word counts
            why = one_line(str(entry.detail.get("why") or ""), 100)
            is_bad = entry.detail.get("good") is False
            row = Candidate(entry.subject, entry.at, f"{entry.actor}: bad{f', {why}' if why else ''}")
            judged.setdefault(entry.subject, row if is_bad else None)
        rows += [row for row in judged.values() if row is not None]
    known = {row.id for row in rows}
    for run in await memory.run_rows(agent, _PAGE) if has(memory, DurableStore.run_record) else ():
        if run.status == "error" and run.run_id not in known:
            status = known_status(run.run_id, *await memory.run_record(agent, run.run_id))
            rows.append(
                Candidate(run.run_id, run.ended_at or run.accepted_at, f"failed: {one_line(status.error, 100)}")
            )
        if len(rows) >= limit:
            break
    return rows[:limit]


async def case_of(memory: Any, agent: str, id: str) -> RecordedCase:
    """Return the case of a run, or of a cycle by a unique beginning of its id: that of its run, if it has one.

    Raises: LookupError for what is not known, has not ended or is not kept.
    """
    if not has(memory, DurableStore.cycle, DurableStore.run_record, DurableStore.transcripts):
        raise LookupError("this store keeps no runs and transcripts, of which a case is made")
    item, answer = await memory.run_record(agent, id)
    if item is None and answer is None:
        cycle = await memory.cycle(id)
        if cycle is None:
            raise LookupError(f"no run or cycle {id!r:.100}; spar runs list and spar cycles list show those that are")
        if (id := await _run_of(memory, agent, cycle)) == "":
            return _of_cycle(cycle)
        item, answer = await memory.run_record(agent, id)
    status = known_status(id, item, answer)
    if answer is None:
        raise LookupError(f"run {id} has not ended: add it when it has")
    row = await _row(memory, agent, id)
    entries = await memory.transcripts.tail(agent, row.session, _ENTRIES)
    first = next((at for at, entry in enumerate(entries) if entry.run_id == id and entry.kind == "user"), None)
    if first is None:
        raise LookupError(f"nothing of run {id} is in the transcript of session {row.session!r:.100} any more")
    own = [entry for entry in entries[first:] if entry.run_id == id]
    calls = _calls_of(own)
    cycles = [cycle async for cycle in _cycles(memory, row)]
    asked = [approval for approval in await _approvals(memory) if approval.run_id == id]
    case = {
        "name": _name(_texts(own)[0], id),
        "experiences": await _experiences(memory, own),
        "history": list(_history(entries[:first])),
        "messages": ["\n\n".join(_texts(own))],
        "tools": _tools(calls, cycles, asked),
        "expect": _expected(calls, asked, status.status, status.reply, is_silent=status.silent),
    }
    gaps = () if any(map(_has_request, cycles)) else (
        f"No request of it to a model is among the {_CYCLES} newest cycles of its session: the tools are known by "
        "their calls alone.",
    )  # fmt: skip
    origin = f"run {id} of {row.accepted_at.isoformat(timespec='seconds')}, session {row.session}"
    return _finished(case, origin, *gaps)


def _of_cycle(cycle: CycleRecord) -> RecordedCase:
    """Return the case of a cycle without a run: what it noticed is the message."""
    texts = [text for perception in cycle.perceptions if (text := perception.text.strip())]
    if not texts:
        raise LookupError(f"cycle {cycle.cycle_id} noticed nothing that could be a message")
    results = cycle.result.results if cycle.result is not None else ()
    calls = _decided(
        _PastCall(result.call.tool, result.call.params, result.status, result.output,
                  "" if result.fault is None else result.fault.message, result.reason)
        for result in results
    )  # fmt: skip
    output = None if cycle.action is None else cycle.action.output
    case = {
        "name": _name(texts[0], cycle.cycle_id),
        "messages": ["\n\n".join(texts)],
        "tools": _tools(calls, [cycle], ()),
        "expect": _expected(calls, (), "ok", output if isinstance(output, str) else None),
    }
    return _finished(
        case, f"cycle {cycle.cycle_id} of {cycle.started_at.isoformat(timespec='seconds')}, session {cycle.session}"
    )


def _finished(case: Mapping[str, Any], origin: str, *gaps: str) -> RecordedCase:
    """Return a case without empty parts and without secrets. Args: gaps: sentences about what is missing."""
    about = (f"Of {origin}.", *gaps, "`expect` is what happened: change it to what must happen.")
    return RecordedCase(masked(json.loads(json.dumps(_filled(**case)))), tuple(masked(list(about))))


def _filled(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value}


# -- reading


async def _run_of(memory: Any, agent: str, cycle: CycleRecord) -> str:
    """Return the run of a cycle, "" for none; a planner need not name it, but its entry in the transcript does."""
    if cycle.action is None or cycle.action.run_id is not None:
        return "" if cycle.action is None else cycle.action.run_id or ""
    results = cycle.result.results if cycle.result is not None else ()
    calls = tuple(result.call.id for result in results)
    entries: Sequence[Entry] = await memory.transcripts.tail(agent, cycle.session, _ENTRIES)
    turn = next((entry for entry in entries if entry.kind == "turn" and entry.at >= cycle.started_at), None)
    if turn is None or turn.call_ids != calls or turn.body.get("output") != cycle.action.output:
        return ""
    return turn.run_id


async def _row(memory: Any, agent: str, id: str) -> RunRow:
    """Return the row of a run."""
    before = None
    while page := await memory.run_rows(agent, _PAGE, before):
        rows: dict[str, RunRow] = {row.run_id: row for row in page}
        if id in rows:
            return rows[id]
        before = page[-1].run_id
    raise LookupError(f"run {id} is not kept any more")


async def _cycles(memory: Any, row: RunRow) -> AsyncIterator[CycleRecord]:
    """Yield the recorded cycles of a run, the newest first."""
    rows = await memory.cycles(_CYCLES, session=row.session, since=row.accepted_at)
    for summary in rows:
        cycle = await memory.cycle(summary["cycle_id"])
        if cycle is not None and cycle.action is not None and cycle.action.run_id == row.run_id:
            yield cycle


async def _approvals(memory: Any) -> list[Approval]:
    """Return the questions to people that are kept."""
    return [convert(record.value, Approval) for record in await memory.records("approval")]


async def _experiences(memory: Any, entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Return the experiences that the requests of a run showed, as far as they are known."""
    if not offers(memory, InspectsExperiences):
        return []
    ids = dict.fromkeys(
        str(id) for entry in entries for addition in entry.body.get("additions") or ()
        for id in addition.get("experiences") or ()
    )  # fmt: skip
    known = [detail.experience for id in ids if (detail := await memory.detail(id)) is not None]
    names = ("situation", "action", "outcome", "success", "lesson")
    return [
        {name: value for name in names if (value := getattr(experience, name)) not in (None, "")}
        for experience in known
    ]


# -- what was said and done


def _name(message: str, id: str) -> str:
    return f"{one_line(message, _NAMED)} ({id[:30]})"


def _texts(entries: Iterable[Entry]) -> list[str]:
    return [str(entry.body.get("text") or "(empty)") for entry in entries if entry.kind == "user"]


def _calls_of(entries: Iterable[Entry]) -> list[_PastCall]:
    """Return the calls in entries of a transcript that were made or refused."""
    calls = []
    for entry in entries:
        for row in entry.body.get("calls") or () if entry.kind == "turn" else ():
            call = Call.from_wire(row["call"])
            calls.append(_PastCall(call.tool, call.params, row.get("status", "ok"), row.get("output"),
                                   row.get("error") or "", row.get("reason") or ""))  # fmt: skip
    return _decided(calls)


def _decided(calls: Iterable[_PastCall]) -> list[_PastCall]:
    """Return the calls without those that were left out."""
    return [call for call in calls if call.status not in ("skipped", "cancelled")]


def _history(entries: Sequence[Entry]) -> Iterator[dict[str, Any]]:
    """Yield the turns of a conversation that the model still read: since its reset, after its last summary."""
    by_run = dict[str, list[Entry]]()
    for entry in still_read(entries):
        if entry.kind == "compaction":
            yield {"user": "Sum up what we said before.", "agent": str(entry.body.get("summary") or "(empty)")}
        else:
            by_run.setdefault(entry.run_id, []).append(entry)
    for own in by_run.values():
        if not (texts := _texts(own)):
            continue
        end = next((entry.body for entry in own if entry.kind == "end"), {})
        calls = [_filled(tool=call.tool, params=dict(call.params)) | _outcome(call) for call in _calls_of(own)]
        agent = str(end.get("reply") or end.get("error") or TOKEN)
        yield _filled(user="\n\n".join(texts), calls=calls, agent=agent)


def _outcome(call: _PastCall) -> dict[str, Any]:
    if call.status == "ok":
        return {"result": call.output}
    return {"error": call.error or call.reason or call.status}


# -- tools and what must hold


def _conditions(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that a call must have again: no references, and nothing that reads like a condition."""
    return {key: value for key, value in params.items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return not is_rule(value) and all(map(_is_plain, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return not (isinstance(value, str) and value.startswith(_REFERENCE))


def _tools(calls: Sequence[_PastCall], cycles: Iterable[CycleRecord], asked: Iterable[Approval]) -> dict[str, Any]:
    """Return the tools that were offered, and those that were called, each with its answers."""
    tools = {name: tool for cycle in cycles for name, tool in _offered(cycle)}
    refused = {call.tool: call.reason for call in calls if call.status == "denied"}
    questions = {approval.call.tool: approval for approval in asked}
    for name in {call.tool for call in calls} - tools.keys():  # it is known by its calls alone
        params: dict[str, Any] = {key: {} for call in calls if call.tool == name for key in call.params}
        tools[name] = _filled(description=name, params=params, optional=list(params))
    for name, tool in tools.items():
        if name in questions:
            tool["approval"] = "ask"
        if name in refused:
            tool.setdefault("approval", "deny")
            tool |= {"decision": "deny", "reason": refused[name]}
        if answers := _answers([call for call in calls if call.tool == name and call.status != "denied"]):
            tool["answers"] = answers
    return tools


def _answers(calls: Iterable[_PastCall]) -> list[dict[str, Any]]:
    """Return the answers of a tool: to calls with the same parameters in their order, the last one for good."""
    by_params = dict[str, list[_PastCall]]()
    for call in calls:
        by_params.setdefault(json.dumps(_conditions(call.params), sort_keys=True), []).append(call)
    answers = []
    for same in sorted(by_params.values(), key=lambda same: -len(_conditions(same[0].params))):
        when = {"when": conditions} if (conditions := _conditions(same[0].params)) else {}
        *earlier, last = same
        answers += [{**when, **_outcome(call), "times": 1} for call in earlier]
        answers.append({**when, **_outcome(last)})
    return answers


def _has_request(cycle: CycleRecord) -> bool:
    return any(note.get("kind") == "model.request" for note in cycle.notes)


def _offered(cycle: CycleRecord) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the tools in the recorded requests of a cycle, by name, with their parameters."""
    for note in cycle.notes:
        if note.get("kind") != "model.request":
            continue
        schema: Any = note.get("schema") or {}
        calls = schema.get("properties", {}).get("calls", {}).get("items", {}).get("anyOf", ())
        for call in calls:
            properties = call.get("properties", {})
            name = properties.get("_tool", {}).get("const")
            params = {key: _value(value) for key, value in properties.items() if not key.startswith("_")}
            optional = [key for key in params if key not in call.get("required", ())]
            if name:
                about = call.get("description") or str(name)
                yield str(name), _filled(description=about, params=params, optional=optional)


def _value(schema: Any) -> Any:
    """Return the schema of a parameter without the reference that may stand in its place; {} for one that is shared."""
    match schema:
        case {"anyOf": [inner, {"pattern": "^†"}], **others} if not others:
            schema = inner
    return {} if "$ref" in json.dumps(schema) else schema


def _expected(calls: Sequence[_PastCall], asked: Iterable[Approval], status: str, reply: str | None, *,
              is_silent: bool = False) -> dict[str, Any]:  # fmt: skip
    """Return what must hold: the calls that were made, the answer, the questions to people."""
    counts = Counter((call.tool, json.dumps(_conditions(call.params), sort_keys=True)) for call in calls)
    expected = [
        _filled(tool=tool, params=json.loads(params), times=number) for (tool, params), number in counts.items()
    ]
    answer = {"contains": [reply]} if reply and status == "ok" and not is_silent else None
    approvals = sorted({approval.call.tool for approval in asked})
    return {
        "status": status, "calls": expected, "only": True,
        **_filled(answer=answer, silent=is_silent, approvals=approvals),
    }  # fmt: skip
