"""Known state of an agent, from its events as they come, and from its status, runs and records as they were requested.

The module neither draws nor sends requests, and what it stores is bounded. Times are seconds of one monotonic clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from spar import events
from spar.cli.client import read_status
from spar.cli.tables import counted
from spar.cli.top.words import arguments, harmless, of_call, of_event
from spar.decoding import convert_leniently
from spar.events.calls import CallEvent
from spar.events.table import ROWS, LiveEvent, event_of
from spar.operations import review
from spar.operations.agent import AgentStatus, Status
from spar.operations.operation import Operation

#: Bounds: sessions, runs, cycles, lines of the log, characters of a run's text.
SESSIONS, RUNS, CYCLES, LINES, TEXT = 20_000, 500, 500, 2_000, 8_000
#: The events that are requested: those that say something to a person, and those of which the state is made.
WANTED: Final = tuple(
    kind for kind, row in ROWS.items() if row.tone not in ("", "quiet") or kind in (
        events.LoopStarted, events.PhaseStarted, events.LoopCompleted, events.AssistantDelta, events.CallStarted,
        events.CompactionStarted, events.SessionReset, events.CycleRecorded,
    )
)  # fmt: skip
#: What is requested: the status with all sessions and the runs, the status alone, the records that wait for people, the
#: past cycles, what comes next. Each with the seconds after which it is requested again.
REQUESTS: Final = {"whole": 30.0, "status": 3.0, "records": 15.0, "cycles": 300.0, "next": 15.0}
#: The events after which it is stale.
CHANGED_BY: Final = {
    "status": (
        events.StateChanged, events.HealthAlert, events.HealthRecovered, events.ModelStateChanged,
        events.SensorQuarantined, events.SensorRestored, events.BudgetEvent, events.ConfigReloaded,
        events.ChannelQuarantined, events.ChannelRestored, events.SenderMet, events.RunEnded,
    ),
    "records": (
        events.ApprovalRequested, events.ApprovalResolved, events.ApprovalExpired, events.CallInDoubt,
        events.DoubtResolved, events.DeadLettered,
    ),
}  # fmt: skip


class SessionFacts(Struct):
    """State of a session; `since` is the time when its phase, or else its rest, began; `noticed` what its plan is
    about."""

    key: str
    since: float
    phase: str = ""
    noticed: str = ""
    waiting: int = 0
    cycles: int = 0
    last: str = ""
    waits_for_model: bool = False
    stands: str = ""


class RunFacts(Struct):
    """State of a run: `state` is queued, running, or how it ended; `began_by` is the text that began it, `text` that of
    its answer, and `doing` the latest line about its calls."""

    id: str
    session: str
    since: float
    state: str = "queued"
    began_by: str = ""
    text: str = ""
    doing: str = ""


class CycleFacts(Struct):
    """Past cycle: what was noticed, decided and done (each call's tool and status), and how it ended."""

    id: str
    session: str
    at: datetime | None
    outcome: str
    seconds: float
    noticed: str
    decided: str = ""
    done: tuple[tuple[str, str], ...] = ()

    @property
    def is_bad(self) -> bool:
        """Return whether it failed, or one of its calls."""
        return self.outcome == "failed" or any(status not in ("ok", "skipped") for _, status in self.done)


class PlannedFacts(Struct):
    """Thing that will happen by itself."""

    at: datetime
    of: str
    what: str


class LogLine(Struct):
    """Line of the log: the time by the service's clock, the session, the text, and the tone in which it is drawn."""

    at: datetime | None
    session: str
    text: str
    tone: str


class RecordKind(NamedTuple):
    """Kind of records that wait for a person: its title, its sign with its tone, the words before its text in the list,
    the operation that lists them, and the one that returns one in full."""

    title: str
    sign: tuple[str, str]
    head: str
    listing: Operation[Any, Any]
    showing: Operation[review.RecordId, Any]


#: The kinds by their names, in the order of the list.
KINDS: Final = {
    "approval": RecordKind("Approval", ("?", "warn"), "", review.list_approvals, review.show_approval),
    "doubt": RecordKind("Call in doubt", ("‽", "bad"), "in doubt: ", review.list_doubts, review.show_doubt),
    "letter": RecordKind("Dead letter", ("✉", "quiet"), "put aside: ", review.list_letters, review.show_letter),
}


class WaitingRow(Struct):
    """Record that waits for a person: `kind` is one of `KINDS`; `row` is the service's JSON."""

    kind: str
    id: str
    text: str
    asked_at: datetime | None
    row: dict[str, Any]


class Picture:
    """The known state. Args: now: returns monotonic seconds; wall: returns the time of day.

    Attributes:
        service: The last status; status: that of its agent, without its sessions.
        waiting: The records that wait for people, by kind, the oldest first.
        stale: What has changed since it was requested, of `REQUESTS`.
        unsaid: The fields that the last status did not say, since the service is of another version.
        version: A number that grows with each change that is worth a drawing at once.
    """

    def __init__(self, now: Callable[[], float], wall: Callable[[], datetime]) -> None:
        self._now, self._wall = now, wall
        self.sessions: dict[str, SessionFacts] = {}
        self.runs: dict[str, RunFacts] = {}
        self.cycles: dict[str, CycleFacts] = {}  # by id, the newest last
        self.planned: list[PlannedFacts] = []  # the nearest first
        self.log: deque[LogLine] = deque(maxlen=LINES)
        self.service: Status | None = None
        self.status: AgentStatus | None = None
        self.waiting: list[WaitingRow] = []
        self.stale = set(REQUESTS)
        self.unsaid: list[str] = []
        self.version = self.forgotten = 0

    # -- changes

    def apply(self, event: Mapping[str, Any]) -> None:
        """Apply an event; one that cannot be read, for example of another release, leaves a line in the log."""
        self.version += not _is_quiet(event)
        try:
            self._apply(convert_leniently(event, LiveEvent)[0])
        except (LookupError, TypeError, ValueError) as error:
            self.log.append(LogLine(None, "", f"an event cannot be read: {harmless(str(error), 80)}", "warn"))

    def _apply(self, live: LiveEvent) -> None:
        session, now = live.session, self._now()
        if not live.type:
            raise ValueError("it has no type")
        if live.type == events.CycleRecorded.__name__:  # its record is shortened and is no value of its class any more
            self._record(live.data, live.run_id)
            return
        match event := event_of(live):
            case events.LoopStarted():
                self._enter(session, "sense")
            case events.PhaseStarted():
                facts = self._enter(session, event.phase)
                if noticed := harmless(live.data.get("noticed")):
                    facts.noticed = noticed
                    self._begin_run(session, noticed)
            case events.LoopCompleted():
                facts = self._enter(session, "")
                facts.last, facts.cycles, facts.noticed = harmless(event.outcome, 12), facts.cycles + 1, ""
            case events.RunAccepted() | events.RunStarted():
                run = self._run(event.run_id, session)
                run.session = session or run.session
                run.state, run.since = "queued" if isinstance(event, events.RunAccepted) else "running", now
            case events.RunEnded():
                run = self._run(event.run_id, session)
                run.state, run.since, run.doing = harmless(event.status, 10), now, ""
                run.text = (event.reply or event.error or run.text)[-TEXT:]
            case events.AssistantDelta():
                run = self._run(event.run_id, session)
                run.state, run.doing = "running" if run.state == "queued" else run.state, ""
                run.text = (("" if event.reset else run.text) + event.text)[-TEXT:]
            case events.BreakpointReached() | events.BreakpointLeft() if session in self.sessions:
                reached = isinstance(event, events.BreakpointReached)
                self.sessions[session].stands = harmless(event.where, 40) if reached else ""
            case events.Gap():
                self.mark_all_stale()
            case CallEvent() if "tool" in live.data and live.run_id in self.runs:
                self.runs[live.run_id].doing = of_call(live.data)
        self.stale |= {request for request, kinds in CHANGED_BY.items() if isinstance(event, kinds)}
        text, tone = of_event(live)
        is_idle = isinstance(event, events.LoopCompleted) and event.outcome == "idle"
        if text and not is_idle:
            self.log.append(LogLine(live.at, harmless(session, 40), text, tone))

    def take_status(self, status: Mapping[str, Any], asked_at: float, *, has_sessions: bool) -> None:
        """Apply a status. Changes by events since its request are newer than the status, and stay.

        Args: asked_at: the time of the request; has_sessions: whether the status contains the sessions.
        """
        self.version += 1
        self.service, self.unsaid = read_status(status)
        agent = self.service.agent
        self.status = replace(agent, lanes=[])
        if has_sessions:
            known, now, self.sessions = self.sessions, self._now(), {}
            for lane in agent.lanes:
                key, phase = lane.session, lane.phase or ""
                facts = self.sessions[key] = known.get(key) or SessionFacts(key, asked_at - 1e-9)
                if facts.since >= asked_at:
                    continue
                facts.waiting, facts.waits_for_model, facts.stands = lane.waiting, lane.waits_for_model, lane.stands
                if phase:
                    facts.since = now - (lane.phase_seconds or 0.0)
                elif facts.phase:
                    facts.since = now
                facts.phase = phase
            for key, facts in known.items():  # the service lists no resting sessions, but they are still shown
                if key not in self.sessions and len(self.sessions) < SESSIONS:
                    if facts.phase and facts.since < asked_at:
                        facts.phase, facts.since = "", now
                    facts.waiting, facts.waits_for_model = 0, False
                    self.sessions[key] = facts

    def take_runs(self, rows: Iterable[Mapping[str, Any]], asked_at: float) -> None:
        """Apply a list of runs, the newest first: all that have not ended, and some that have.

        Args: asked_at: the time of the request; changes by events since then stay.
        """
        self.version += 1
        by_id = {row["run_id"]: row for row in rows}
        for run in self.runs.values():
            if run.id not in by_id and run.state in ("queued", "running") and run.since < asked_at:
                run.state, run.since = "ended", self._now()
        for row in reversed(by_id.values()):
            run = self._run(row["run_id"], row["session"])
            if run.since >= asked_at and run.state != "queued":
                continue
            run.state = row["status"]
            at = datetime.fromisoformat(row["ended_at"] or row["started_at"] or row["accepted_at"])
            run.since = self._now() - max(self.age_of(at), 0.0)

    def take_records(self, rows: Mapping[str, Iterable[dict[str, Any]]]) -> None:
        """Apply the records that wait for people, by kind."""
        self.version += 1
        self.waiting = [_waiting(kind, row) for kind, records in rows.items() for row in records]
        self.waiting.sort(
            key=lambda record: ([*KINDS].index(record.kind), record.asked_at.timestamp() if record.asked_at else 0)
        )

    def take_next(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Apply what will happen by itself, the nearest first; common looks of sessions are left out."""
        self.version += 1
        self.planned = [
            PlannedFacts(datetime.fromisoformat(row["at"]), harmless(row["of"], 40), harmless(row["what"]))
            for row in rows if row["kind"] != "cycle"
        ]  # fmt: skip

    def take_cycles(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Apply a list of past cycles, the newest first; those that are known already stay."""
        self.version += 1
        for row in rows:
            if (id := row["cycle_id"]) not in self.cycles:
                calls = row["calls"] if isinstance(row["calls"], Mapping) else {}
                done = tuple((counted(number, "call"), status) for status, number in calls.items() if number)
                at = datetime.fromisoformat(row["started_at"]) if row["started_at"] else None
                self.cycles[id] = CycleFacts(id, harmless(row["session"], 40), at, harmless(row["outcome"], 12),
                                             float(row["duration"]), harmless(row["about"]), "", done)  # fmt: skip
        ordered = sorted(self.cycles.values(), key=lambda cycle: cycle.at.timestamp() if cycle.at else 0.0)
        self.cycles = {cycle.id: cycle for cycle in ordered[-CYCLES:]}

    def mark_all_stale(self) -> None:
        """Mark everything as stale: the service was away, or events were lost."""
        self.stale = set(REQUESTS)

    # -- questions

    def age_of(self, at: datetime) -> float:
        """Return the seconds since a time of day."""
        return (self._wall() - at).total_seconds()

    def by_activity(self) -> list[SessionFacts]:
        """Return the sessions: the working ones, the longest phase first; then the waiting ones; then the resting ones,
        the latest first."""
        return sorted(self.sessions.values(), key=_activity)

    def by_run(self) -> list[RunFacts]:
        """Return the runs: running ones, queued ones, then ended ones; the newest of each first."""
        return sorted(self.runs.values(), key=lambda run: (_RUN_ORDER.get(run.state, 2), -run.since))

    # -- events

    def _enter(self, key: str, phase: str) -> SessionFacts:
        """Note the phase that a session enters now, "" for its rest, and return its state."""
        facts = self.sessions.get(key)
        if facts is None:
            if len(self.sessions) >= SESSIONS:
                self._forget()
            facts = self.sessions[key] = SessionFacts(key, self._now())
        facts.phase, facts.since = phase, self._now()
        return facts

    def _begin_run(self, session: str, noticed: str) -> None:
        """Note what a plan is about as the text that began the run of its session."""
        for run in self.runs.values():
            if run.session == session and run.state == "running" and not run.began_by:
                run.began_by = noticed

    def _record(self, data: Mapping[str, Any], run_id: str) -> None:
        """Add a cycle that has ended; a later one of a run has the text that began it."""
        run = self.runs.get(run_id)
        noticed = harmless(data["noticed"]) or ("" if run is None else run.began_by)
        done = tuple((harmless(call["tool"], 40), harmless(call["status"], 12)) for call in data["done"])
        self.cycles.pop(data["cycle"], None)
        self.cycles[data["cycle"]] = CycleFacts(
            data["cycle"], harmless(data["session"], 40), datetime.fromisoformat(data["started_at"]),
            harmless(data["outcome"], 12), float(data["duration"]), noticed,
            harmless(data["fault"] or data["decided"]), done,
        )  # fmt: skip
        if len(self.cycles) > CYCLES:
            del self.cycles[next(iter(self.cycles))]

    def _forget(self) -> None:
        """Delete and count the sessions that have rested longest, enough to make room for some time."""
        resting = sorted((facts for facts in self.sessions.values() if not facts.phase), key=lambda facts: facts.since)
        for facts in resting[: SESSIONS // 20] or list(self.sessions.values())[:1]:
            del self.sessions[facts.key]
            self.forgotten += 1

    def _run(self, run_id: str, session: str) -> RunFacts:
        """Return the state of a run; a new one if it is unknown, in the place of an ended one if there are too many."""
        run = self.runs.get(run_id)
        if run is None:
            if len(self.runs) >= RUNS:
                ended = next((run for run in self.runs.values() if run.state not in ("queued", "running")), None)
                del self.runs[ended.id if ended is not None else next(iter(self.runs))]
            run = self.runs[run_id] = RunFacts(run_id, session, self._now())
        return run


_RUN_ORDER = {"running": 0, "queued": 1}


def _is_quiet(event: Mapping[str, Any]) -> bool:
    """Return whether an event is of a cycle that has noticed nothing so far: a loop at rest has several each second."""
    kind, data = event.get("type"), event.get("data") or {}
    return kind == "LoopStarted" or data.get("phase") == "sense" or data.get("outcome") == "idle"


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
        text = f"{harmless(call.get('tool'), 40)}({arguments(call.get('params'))})"
        at = row.get("asked_at") or row.get("at")
    return WaitingRow(kind, str(row["id"]), text, datetime.fromisoformat(at) if at else None, row)
