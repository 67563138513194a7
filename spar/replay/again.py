"""A recorded cycle decided again: the same, or what differs.

The cycles before it are read first. Those of its run are decided again as well, and rules that fired rest as long as
they did, so that the planner knows what it knew then.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from spar.config.in_force import ROWS, differing, digest_of, readable
from spar.config.tables.settings import Loaded
from spar.decoding import encode
from spar.ports.costs import Cost
from spar.ports.planners import RecordedAnswer
from spar.ports.rows import rows_in
from spar.replay.deciding import Decider
from spar.replay.difference import Change, changes_of, request_changes, results_of
from spar.replay.tape import DAMAGE, Inputs, Tape, by_hand, planned
from spar.types import Action, CycleRecord

Verdict = Literal["same", "differs", "unknown"]
#: The kind of the notes about requests, and the purpose of those whose answer is the plan.
_REQUEST, _PLAN = "model.request", "plan"
#: Bytes of a token, about; keys of settings that are named at most.
_BYTES, _MOST_KEYS = 4, 20


class Again(Struct, frozen=True):
    """Recorded cycle, decided again.

    `why` says why nothing can be said about it ("unknown"), or what is to be known of the answer. `calls` are those of
    the new plan, each with its recorded result. `asked` counts the requests that are not those of the record, `tokens`
    is about their size.
    """

    cycle_id: str
    at: datetime
    session: str
    verdict: Verdict
    why: str = ""
    changes: list[Change] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    asked: int = 0
    tokens: int = 0


class AnswersOfRecord:
    """Answers of models in the record of one cycle after another, by the digest of the request.

    Attributes: others: the requests of the current decision that its record does not have; is_past: whether any
        request is answered as recorded: an earlier cycle is decided, so that the planner knows what it knew then.
    """

    def __init__(self) -> None:
        self._digest, self._answer = "", RecordedAnswer()
        self.others: list[Mapping[str, Any]] = []
        self.is_past = False

    def take(self, cycle: CycleRecord, *, is_past: bool = False) -> None:
        """Answer with the plan of this cycle, which was the answer to its last request."""
        action, note = planned(cycle) or Action(), request_of(cycle)
        self._digest = "" if note is None or action.deferred else str(note.get("digest"))
        calls = tuple(call.to_wire() for call in action.calls) if self._digest or is_past else ()
        self._answer = RecordedAnswer(action.said, calls, action.output)
        self.is_past, self.others = is_past, []

    def __call__(self, note: Mapping[str, Any]) -> RecordedAnswer | None:
        """Return the answer to a request."""
        if self.is_past or note["digest"] == self._digest:
            return self._answer
        self.others.append(note)
        return None


def request_of(cycle: CycleRecord) -> Mapping[str, Any] | None:
    """Return the note about the request whose answer is the plan of a cycle; None if no model planned it."""
    notes = (note for note in reversed(cycle.notes) if note.get("kind") == _REQUEST and note.get("purpose") == _PLAN)
    return next(notes, None)


async def again(tape: Tape, cycle_id: str, loaded: Loaded, *, is_asked: bool = False) -> Again:
    """Decide a recorded cycle again.

    Args: loaded: the configuration that decides; is_asked: whether models are asked what no record answers.
    Raises: LookupError for an unknown cycle, ConfigError.
    """
    cycle = await tape.cycle(cycle_id)
    if cycle.agent != tape.agent:
        raise LookupError(f"cycle {cycle.cycle_id} is of agent {cycle.agent!r}, and this is {tape.agent!r}")
    answers = AnswersOfRecord()
    async with Decider(loaded, tape.memory, tape.agent, answer_to=answers, is_asked=is_asked) as decider:
        await prepare(tape, decider, answers, cycle)
        inputs = tape.history.inputs(cycle)
        answers.take(cycle)
        answer = (await judged(decider, inputs, answers))[0]
    return replace(answer, remarks=[*await _other_configuration(tape, cycle, loaded), *answer.remarks])


async def _other_configuration(tape: Tape, cycle: CycleRecord, loaded: Loaded) -> list[str]:
    """Return the sentence about how the configuration differs from that by which a cycle was decided; none if it does
    not."""
    now = readable(loaded)
    if cycle.configuration in ("", digest_of(now)):
        return []
    row = (await rows_in(tape.memory, f"{ROWS}:{tape.agent}")).get(cycle.configuration)
    if row is None:
        return ["it was decided by another configuration, which is not kept any more"]
    keys = differing(row["settings"], now)
    more = ", …" if len(keys) > _MOST_KEYS else ""
    return [f"settings that differ from those it was decided by: {', '.join(keys[:_MOST_KEYS])}{more}"]


async def prepare(tape: Tape, decider: Decider, answers: AnswersOfRecord, cycle: CycleRecord, *,
                  is_continued: bool = False) -> None:  # fmt: skip
    """Read the cycles before a cycle: rules that fired in them rest as they did, those of its run are decided again.

    Args: is_continued: whether the decider knows which rules rest.
    """
    run_id = None if cycle.action is None else cycle.action.run_id
    for earlier in await tape.before(cycle):
        inputs = tape.history.inputs(earlier)
        if run_id is not None and earlier.action is not None and earlier.action.run_id == run_id and not inputs.gaps:
            answers.take(earlier, is_past=True)
            await decider.decide(inputs)
        elif not is_continued and cycle.started_at - earlier.started_at < timedelta(seconds=decider.reach):
            decider.recall(earlier)
        tape.history.add(earlier)


async def judged(decider: Decider, inputs: Inputs, answers: AnswersOfRecord) -> tuple[Again, Action | None]:
    """Return how a decision on recorded inputs differs from the recorded one, and the new plan."""
    cycle = inputs.cycle
    head: dict[str, Any] = {"cycle_id": cycle.cycle_id, "at": cycle.started_at, "session": cycle.session}
    if inputs.gaps:
        return Again(**head, verdict="unknown", why=inputs.gaps[0]), None
    decided = await decider.decide(inputs)
    recorded, now = inputs.decided, decided.action
    remarks = [*_remarks(cycle, decider), *(f"a run would begin: {about.text}" for about in decided.pursued)]
    note, changes = request_of(cycle), list[Change]()
    for other in answers.others:
        changes += request_changes(note or {}, other)
    tokens = sum(len(encode(other)) for other in answers.others) // _BYTES
    head |= {"remarks": remarks, "asked": len(answers.others), "tokens": tokens}
    if decided.error:
        why = decided.error
        if answers.others:
            why = "the request to the model differs, so its answer is not known" if note else (
                "a model would be asked, and no answer of one is recorded")  # fmt: skip
        return Again(**head, verdict="unknown", why=why, changes=changes), None
    changes += changes_of(recorded, now)
    results = cycle.result.results if cycle.result is not None else ()
    calls = results_of(results, () if recorded is None else recorded.calls, () if now is None else now.calls)
    if never := sum(call["status"] == "unknown" for call in calls):
        what = "1 call was" if never == 1 else f"{never} calls were"
        changes.append(Change("outcome", "outcome", cycle.outcome, f"unknown: {what} never made"))
    return Again(**head, verdict="differs" if changes else "same", changes=changes, calls=calls), now


def _remarks(cycle: CycleRecord, decider: Decider) -> list[str]:
    """Return sentences about what was not decided again."""
    remarks = [fault.message for fault in cycle.faults if fault.kind in DAMAGE]
    if any(note.get("kind") == "hooks" for note in cycle.notes):
        remarks.append("hooks changed something in it; they are not called again")
    if changes := by_hand(cycle):
        parts = ", ".join(dict.fromkeys(f"{change['part']} by {change['by']}" for change in changes))
        remarks.append(f"changed by hand in it: {parts}; a plan is compared as it was before")
    missing = {call.tool for call in (cycle.action.calls if cycle.action is not None else ())} - decider.tools.keys()
    if missing:
        remarks.append(f"tools that this configuration does not have (now): {', '.join(sorted(missing))}")
    return remarks


def price_of(tokens: int, requests: int, whole: Cost) -> str:
    """Return the sentence about what new requests cost, by the costs of recorded ones."""
    many = f"{requests} request{'s' * (requests != 1)}"
    priced = whole.requests - whole.unpriced - whole.unmeasured
    if priced <= 0 or not whole.money:
        return f"{many} of about {tokens} tokens: no price is recorded (spar cost)"
    per_token = whole.money / max(whole.input_tokens + whole.output_tokens, 1)
    money = per_token * (tokens + requests * whole.output_tokens / max(whole.requests, 1))
    return f"{many} of about {tokens} tokens: about {money / 1e6:.4f}, by the {priced} requests of the last 31 days"
