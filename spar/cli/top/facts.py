"""Keeps what is known of an agent: from its events as they come, and from its status and records as they were asked.

It draws nothing and asks nobody, and what it keeps is bounded. Times are seconds of one monotonic clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from spar.cli.top.words import harmless, of_call, of_event

#: What is kept at most: sessions, runs, lines of the log, characters of a run's text.
SESSIONS, RUNS, LINES, TEXT = 20_000, 500, 2_000, 8_000
#: The events that are asked for; bases stand for all below them.
WANTED = (
    "LoopStarted", "PhaseStarted", "LoopCompleted", "ErrorOccurred", "StateChanged", "HealthAlert", "HealthRecovered",
    "ModelStateChanged", "RecoveryStep", "ConfigReloaded", "SensorQuarantined", "SensorRestored", "TriggerMissed",
    "BudgetEvent", "DeadLettered", "Recovered", "RunAccepted", "RunStarted", "RunEnded", "MessageOutcome",
    "AssistantDelta", "MessageSent", "MessageUndeliverable", "ChannelQuarantined", "ChannelRestored", "SenderMet",
    "SessionReset", "CompactionStarted", "CallStarted", "CallCompleted", "CallFailed", "CallSkipped", "CallInDoubt",
    "DoubtResolved", "ApprovalRequested", "ApprovalResolved", "ApprovalExpired", "ContractViolation",
    "RepetitionNoticed",
)  # fmt: skip
#: After which events the status, or the records that wait for people, are to be asked for again.
CHANGES_STATUS = frozenset({
    "StateChanged", "HealthAlert", "HealthRecovered", "ModelStateChanged", "SensorQuarantined", "SensorRestored",
    "BudgetWarned", "BudgetExceeded", "BudgetRenewed", "ConfigReloaded", "ChannelQuarantined", "ChannelRestored",
    "SenderMet", "RunEnded",
})  # fmt: skip
CHANGES_RECORDS = frozenset({
    "ApprovalRequested", "ApprovalResolved", "ApprovalExpired", "CallInDoubt", "DoubtResolved", "DeadLettered",
})  # fmt: skip


class SessionFacts(Struct):
    """Facts of a session; `since`: when its phase, or else its rest, began."""

    key: str
    since: float
    phase: str = ""
    waiting: int = 0
    cycles: int = 0
    last: str = ""
    waits_for_model: bool = False


class RunFacts(Struct):
    """Facts of a run: `state` is queued, running, ok or error; `doing` is the last word on its calls."""

    id: str
    session: str
    since: float
    state: str = "queued"
    text: str = ""
    doing: str = ""


class LogLine(Struct):
    """A line of the log: when (the service's clock), whose, what, how it is meant."""

    at: str
    session: str
    text: str
    tone: str


class WaitingRow(Struct):
    """Something that waits for a person: `kind` is approval, doubt or letter; `row` as the service tells it."""

    kind: str
    id: str
    text: str
    asked_at: datetime | None
    row: dict[str, Any]


class Picture:
    """All that is known. Args: now: returns monotonic seconds; wall: returns the time of day.

    Attributes: status: the agent of the last status; waiting: what waits for people, the oldest first; is_stale,
        are_records_stale: events say that these have changed; version: grows with each change.
    """

    def __init__(self, now: Callable[[], float], wall: Callable[[], datetime]) -> None:
        self._now, self._wall = now, wall
        self.sessions: dict[str, SessionFacts] = {}
        self.runs: dict[str, RunFacts] = {}
        self.log: deque[LogLine] = deque(maxlen=LINES)
        self.status: dict[str, Any] = {}
        self.service: dict[str, Any] = {}
        self.waiting: list[WaitingRow] = []
        self.is_stale = self.are_records_stale = self.is_whole_stale = True
        self.version = self.forgotten = 0

    # -- what is told

    def apply(self, event: Mapping[str, Any]) -> None:
        """Take an event; one that cannot be read, as of another release, is told of in the log."""
        self.version += 1
        try:
            self._apply(event)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            self.log.append(LogLine("", "", f"an event cannot be read: {harmless(repr(error), 80)}", "warn"))

    def _apply(self, event: Mapping[str, Any]) -> None:
        kind = event["type"]
        if (take := _TAKE.get(kind)) is not None:
            take(self, event)
        elif (data := event["data"]).get("tool") and (run := self.runs.get(event["run_id"])) is not None:
            run.doing = of_call(data)
        if kind in CHANGES_STATUS:
            self.is_stale = True
        if kind in CHANGES_RECORDS:
            self.are_records_stale = True
        self._note(event)

    def take_status(self, status: Mapping[str, Any], asked_at: float, *, has_sessions: bool) -> None:
        """Take a status that was asked for then; with sessions it says which there are. What events have said since
        is newer than it."""
        self.version += 1
        self.service, self.status = dict(status), dict(status["agents"][0])
        if has_sessions:
            known, now, self.sessions = self.sessions, self._now(), {}
            for lane in self.status.pop("lanes", ()):
                key, phase = lane["session"], lane["phase"] or ""
                facts = self.sessions[key] = known.get(key) or SessionFacts(key, asked_at - 1e-9)
                if facts.since >= asked_at:
                    continue
                facts.waiting, facts.waits_for_model = lane["waiting"], lane["waits_for_model"]
                if phase:
                    facts.since = now - (lane["phase_seconds"] or 0.0)
                elif facts.phase:
                    facts.since = now
                facts.phase = phase
            for key, facts in known.items():  # what rests is no lane of the service any more, but was seen
                if key not in self.sessions and len(self.sessions) < SESSIONS:
                    if facts.phase and facts.since < asked_at:
                        facts.phase, facts.since = "", now
                    facts.waiting, facts.waits_for_model = 0, False
                    self.sessions[key] = facts

    def take_runs(self, rows: Iterable[Mapping[str, Any]], asked_at: float) -> None:
        """Take runs that were asked for then, the newest first: all that have not ended, and some that have."""
        self.version += 1
        listed = {row["run_id"]: row for row in rows}
        for run in self.runs.values():
            if run.id not in listed and run.state in ("queued", "running") and run.since < asked_at:
                run.state, run.since = "ended", self._now()
        for row in reversed(listed.values()):
            run = self._run(row["run_id"], row["session"])
            if run.since >= asked_at and run.state != "queued":
                continue
            run.state = row["status"]
            at = datetime.fromisoformat(row["ended_at"] or row["started_at"] or row["accepted_at"])
            run.since = self._now() - max(self.age_of(at), 0.0)

    def take_records(self, rows: Mapping[str, Iterable[dict[str, Any]]]) -> None:
        """Take what waits for people, by kind."""
        self.version += 1
        self.waiting = [_waiting(kind, row) for kind, each in rows.items() for row in each]
        self.waiting.sort(
            key=lambda found: (_ORDER.index(found.kind), found.asked_at.timestamp() if found.asked_at else 0)
        )

    def mark_all_stale(self) -> None:
        """The service was away, or events were lost: nothing that is known need be so."""
        self.is_stale = self.are_records_stale = self.is_whole_stale = True

    # -- what is asked

    def age_of(self, at: datetime) -> float:
        """Return how many seconds ago that was."""
        return (self._wall() - at).total_seconds()

    def by_activity(self) -> list[SessionFacts]:
        """Return the sessions: those at work first, the longest phase first; then those that wait; then by recency."""
        return sorted(self.sessions.values(), key=_activity)

    def by_run(self) -> list[RunFacts]:
        """Return the runs: those that go on, the newest first; then those that have ended."""
        return sorted(self.runs.values(), key=lambda run: (_RUN_ORDER.get(run.state, 2), -run.since))

    # -- events

    def _session(self, event: Mapping[str, Any]) -> SessionFacts:
        key = event["session"]
        facts = self.sessions.get(key)
        if facts is None:
            if len(self.sessions) >= SESSIONS:
                self._forget()
            facts = self.sessions[key] = SessionFacts(key, self._now())
        return facts

    def _forget(self) -> None:
        """Make room for some time: sessions that have rested longest go, and are counted."""
        resting = sorted((each for each in self.sessions.values() if not each.phase), key=lambda each: each.since)
        for each in resting[: SESSIONS // 20] or list(self.sessions.values())[:1]:
            del self.sessions[each.key]
            self.forgotten += 1

    def _run(self, run_id: str, session: str) -> RunFacts:
        run = self.runs.get(run_id)
        if run is None:
            if len(self.runs) >= RUNS:
                over = next((each for each in self.runs.values() if each.state not in ("queued", "running")), None)
                del self.runs[over.id if over is not None else next(iter(self.runs))]
            run = self.runs[run_id] = RunFacts(run_id, session, self._now())
        return run

    def _loop_started(self, event: Mapping[str, Any]) -> None:
        facts = self._session(event)
        facts.phase, facts.since = "sense", self._now()

    def _phase_started(self, event: Mapping[str, Any]) -> None:
        facts = self._session(event)
        facts.phase, facts.since = harmless(event["data"]["phase"], 10), self._now()

    def _loop_completed(self, event: Mapping[str, Any]) -> None:
        facts = self._session(event)
        facts.phase, facts.since, facts.last = "", self._now(), harmless(event["data"]["outcome"], 12)
        facts.cycles += 1

    def _run_state(self, event: Mapping[str, Any]) -> None:
        run = self._run(event["run_id"], event["session"])
        run.session = event["session"] or run.session
        run.state, run.since = {"RunAccepted": "queued", "RunStarted": "running"}[event["type"]], self._now()

    def _run_ended(self, event: Mapping[str, Any]) -> None:
        run, data = self._run(event["run_id"], event["session"]), event["data"]
        run.state, run.since, run.doing = harmless(data["status"], 10), self._now(), ""
        run.text = str(data.get("reply") or data.get("error") or run.text)[-TEXT:]

    def _written(self, event: Mapping[str, Any]) -> None:
        run, data = self._run(event["run_id"], event["session"]), event["data"]
        if run.state == "queued":
            run.state = "running"
        run.doing = ""
        run.text = (("" if data["reset"] else run.text) + data["text"])[-TEXT:]

    def _missed(self, event: Mapping[str, Any]) -> None:
        self.mark_all_stale()

    def _note(self, event: Mapping[str, Any]) -> None:
        text, tone = of_event(event)
        is_idle = event["type"] == "LoopCompleted" and event["data"]["outcome"] == "idle"
        if text and not is_idle:
            self.log.append(LogLine(str(event["at"]), harmless(event["session"], 40), text, tone))


_ORDER = ("approval", "doubt", "letter")
_RUN_ORDER = {"running": 0, "queued": 1}
_TAKE: dict[str, Callable[[Picture, Mapping[str, Any]], None]] = {
    "LoopStarted": Picture._loop_started,
    "PhaseStarted": Picture._phase_started,
    "LoopCompleted": Picture._loop_completed,
    "RunAccepted": Picture._run_state,
    "RunStarted": Picture._run_state,
    "RunEnded": Picture._run_ended,
    "AssistantDelta": Picture._written,
    "Gap": Picture._missed,
}


def _activity(facts: SessionFacts) -> tuple[int, float]:
    if facts.phase:
        return 0, facts.since
    return (1, facts.since) if facts.waiting else (2, -facts.since)


def _waiting(kind: str, row: dict[str, Any]) -> WaitingRow:
    call = row.get("call") or {}
    if kind == "letter":
        text = f"{harmless(row.get('reason'), 120)}"
        at = row.get("at") or row.get("put_aside_at")
    else:
        params = call.get("params") or {}
        given = ", ".join(f"{harmless(key, 30)}={harmless(value, 80)}" for key, value in list(params.items())[:8])
        text = f"{harmless(call.get('tool'), 40)}({given})"
        at = row.get("asked_at") or row.get("at")
    return WaitingRow(kind, str(row["id"]), text, datetime.fromisoformat(at) if at else None, row)
