"""Known state of an agent, from its events as they come, and from its status, runs and records as they were requested.

The module neither draws nor sends requests, and what it stores is bounded. Times are seconds of one monotonic clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from msgspec import Struct

from spar import events
from spar.cli.blocks import counted
from spar.cli.commands.status import read_status
from spar.cli.printer import arguments, harmless, of_call, of_event
from spar.decoding import convert_leniently
from spar.events.calls import CallEvent
from spar.events.table import ROWS, LiveEvent, event_of
from spar.operations import agent, history, review, runs
from spar.operations.agent import Status
from spar.operations.operation import Operation

#: Bounds: sessions, runs, cycles, lines of the log, characters of a run's text.
SESSIONS, RUNS, CYCLES, LINES, TEXT = 20_000, 500, 500, 2_000, 8_000
#: The events that are requested: those that say something to a person, and those of which the state is made.
WANTED: Final = tuple(
    kind for kind, row in ROWS.items() if row.tone not in ("", "quiet") or kind in (
        events.PhaseStarted, events.LoopCompleted, events.AssistantDelta, events.CallStarted, events.CompactionStarted,
        events.SessionReset, events.CycleRecorded,
    )
)  # fmt: skip


class RecordKind(NamedTuple):
    """Kind of records that wait for a person: its title, its sign with its tone, the words before its text, the
    operations that list them and return one in full, and the field of an answer that has the decision."""

    title: str
    sign: str
    tone: str
    head: str
    listing: Operation[Any, Any]
    showing: Operation[review.RecordId, Any]
    decision: str

    def text(self, row: Mapping[str, Any]) -> str:
        """Return a record in short."""
        if (call := row.get("call")) is None:
            return f"{self.head}{harmless(row.get('reason'), 120)}"
        return f"{self.head}{harmless(call.get('tool'), 40)}({arguments(call.get('params'))})"

    @staticmethod
    def asked_at(row: Mapping[str, Any]) -> datetime | None:
        """Return the time since which a record waits."""
        at = row.get("asked_at") or row.get("at") or row.get("put_aside_at")
        return datetime.fromisoformat(at) if at else None


#: The kinds by their names, in the order of the list.
KINDS: Final = {
    "approval": RecordKind("Approval", "?", "warn", "", review.list_approvals, review.show_approval, "decision"),
    "doubt": RecordKind("Call in doubt", "‽", "bad", "in doubt: ", review.list_doubts, review.show_doubt, "answer"),
    "letter": RecordKind("Dead letter", "✉", "quiet", "put aside: ", review.list_letters, review.show_letter, ""),
}


class Request(NamedTuple):
    """Request of several answers: the seconds after which it is made again, its operations with their inputs, and the
    events after which it is stale. `Picture` takes the answers."""

    every: float
    questions: tuple[tuple[Operation[Any, Any], Any], ...]
    changed_by: tuple[type[events.Event], ...] = ()


#: The requests by their names: all that is known of sessions and runs, the status alone, the records that wait for
#: people, the past cycles, what comes next.
REQUESTS: Final = {
    "whole": Request(30.0, ((agent.status, None), (runs.list_runs, runs.RunsChoice(RUNS - 50, open=True)),
                            (runs.list_runs, runs.RunsChoice(50)))),
    "status": Request(3.0, ((agent.status, agent.StatusChoice(lanes=False)),), (
        events.StateChanged, events.HealthAlert, events.HealthRecovered, events.ModelStateChanged,
        events.SensorQuarantined, events.SensorRestored, events.BudgetEvent, events.ConfigReloaded,
        events.ChannelQuarantined, events.ChannelRestored, events.SenderMet, events.RunEnded,
    )),
    "records": Request(15.0, tuple((kind.listing, None) for kind in KINDS.values()), (
        events.ApprovalRequested, events.ApprovalResolved, events.ApprovalExpired, events.CallInDoubt,
        events.DoubtResolved, events.DeadLettered,
    )),
    "cycles": Request(300.0, ((history.list_cycles, history.CyclesChoice(limit=200)),)),
    "next": Request(15.0, ((history.list_next, None),)),
}  # fmt: skip


class SessionFacts(Struct):
    """State of a session; `since` is the time when its phase, or else its rest, began; `noticed` what its plan is
    about."""

    key: str
    since: float
    phase: str = ""
    noticed: str = ""
    waiting: int = 0
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


class CycleFacts(NamedTuple):
    """Past cycle: what was noticed, decided and done (each call's tool and status), and how it ended."""

    id: str
    session: str
    at: datetime | None
    outcome: str
    seconds: float
    noticed: str
    decided: str
    done: tuple[tuple[str, str], ...]


class Picture:
    """The known state. Args: now: returns monotonic seconds; wall: returns the time of day.

    Attributes:
        service: The last status.
        cycles: The past cycles by their ids, the newest last.
        planned: What will happen by itself, the nearest first: when, of what, and what.
        waiting: The records that wait for people, each with its kind, the oldest of a kind first.
        log: The time, the session, the text and the tone of events, the newest last.
        stale: What has changed since it was requested, of `REQUESTS`.
        unsaid: The fields that the last status did not say, since the service is of another version.
        version: A number that grows with each change that is worth a drawing at once.
    """

    def __init__(self, now: Callable[[], float], wall: Callable[[], datetime]) -> None:
        self._now, self._wall = now, wall
        self.sessions: dict[str, SessionFacts] = {}
        self.runs: dict[str, RunFacts] = {}
        self.cycles: dict[str, CycleFacts] = {}
        self.planned: list[tuple[datetime, str, str]] = []
        self.log: deque[tuple[datetime | None, str, str, str]] = deque(maxlen=LINES)
        self.service: Status | None = None
        self.waiting: list[tuple[str, Mapping[str, Any]]] = []
        self.stale = set(REQUESTS)
        self.unsaid: list[str] = []
        self.version = self.forgotten = 0

    # -- events

    def apply(self, event: Mapping[str, Any]) -> None:
        """Apply an event; one that cannot be read, for example of another release, leaves a line in the log."""
        data = event.get("data") or {}
        self.version += data.get("phase") != "sense" and data.get("outcome") != "idle"  # else nothing was noticed
        try:
            self._apply(convert_leniently(event, LiveEvent)[0])
        except (LookupError, TypeError, ValueError) as error:
            self.log.append((None, "", f"an event cannot be read: {harmless(str(error), 80)}", "warn"))

    def _apply(self, live: LiveEvent) -> None:
        session, now = live.session, self._now()
        if not live.type:
            raise ValueError("it has no type")
        if live.type == events.CycleRecorded.__name__:  # its record is shortened and is no value of its class any more
            run = self.runs.get(live.run_id)
            noticed = live.data["noticed"] or (run.began_by if run is not None else "")
            self._add_cycles({**live.data, "noticed": noticed, "session": session})
            return
        match event := event_of(live):
            case events.PhaseStarted():
                facts = self._enter(session, event.phase)
                if noticed := harmless(live.data.get("noticed")):
                    facts.noticed = noticed
                    for run in self.runs.values():
                        if run.session == session and run.state == "running" and not run.began_by:
                            run.began_by = noticed
            case events.LoopCompleted():
                facts = self._enter(session, "")
                facts.last, facts.noticed = harmless(event.outcome, 12), ""
            case events.RunAccepted() | events.RunStarted():
                run = self._run(event.run_id, session)
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
        self.stale |= {name for name, request in REQUESTS.items() if isinstance(event, request.changed_by)}
        text, tone = of_event(live)
        if text:
            self.log.append((live.at, harmless(session, 40), text, tone))

    def _enter(self, key: str, phase: str) -> SessionFacts:
        """Note the phase that a session enters now, "" for its rest, and return its state."""
        if (facts := self.sessions.get(key)) is None:
            if len(self.sessions) >= SESSIONS:
                self._forget()
            facts = self.sessions[key] = SessionFacts(key, self._now())
        facts.phase, facts.since = phase, self._now()
        return facts

    def _forget(self) -> None:
        """Delete and count the sessions that have rested longest, enough to make room for some time."""
        for facts in self.by_activity()[-max(SESSIONS // 20, 1) :]:
            del self.sessions[facts.key]
            self.forgotten += 1

    def _run(self, run_id: str, session: str) -> RunFacts:
        """Return the state of a run; a new one if it is unknown, in the place of an ended one if there are too many."""
        run = self.runs.get(run_id)
        if run is None:
            if len(self.runs) >= RUNS:
                ended = (run.id for run in self.runs.values() if run.state not in _RUN_ORDER)
                del self.runs[next(ended, next(iter(self.runs)))]
            run = self.runs[run_id] = RunFacts(run_id, session, self._now())
        run.session = session or run.session
        return run

    def _add_cycles(self, *rows: Mapping[str, Any]) -> None:
        """Add cycles with the fields that are drawn: of another release they may be missing, after damage wrong."""
        for row in rows:
            calls = tuple((harmless(call["tool"], 40), harmless(call["status"], 12)) for call in row["done"])
            at = datetime.fromisoformat(row["started_at"]) if row["started_at"] else None
            self.cycles[row["cycle"]] = CycleFacts(
                row["cycle"], harmless(row["session"], 40), at, harmless(row["outcome"], 12), float(row["duration"]),
                harmless(row["noticed"]), harmless(row["fault"] or row["decided"]), calls,
            )  # fmt: skip
        newest = sorted(self.cycles.values(), key=lambda cycle: cycle.at.timestamp() if cycle.at else 0.0)[-CYCLES:]
        self.cycles = {cycle.id: cycle for cycle in newest}

    # -- answers

    def take_status(self, asked_at: float, status: Mapping[str, Any]) -> None:
        """Apply a status. Args: asked_at: the time of the request."""
        self.version += 1
        self.service, self.unsaid = read_status(status)

    def take_whole(self, asked_at: float, status: Mapping[str, Any], *rows: Iterable[Mapping[str, Any]]) -> None:
        """Apply a status with its sessions, and lists of runs, the newest first: all that have not ended, and some that
        have. Changes by events since they were requested stay."""
        self.take_status(asked_at, status)
        self._take_sessions(asked_at)
        self._take_runs(asked_at, {row["run_id"]: row for of_list in rows for row in of_list})
        self.stale.discard("status")

    def _take_sessions(self, asked_at: float) -> None:
        assert self.service is not None
        known, now, self.sessions = self.sessions, self._now(), {}
        for lane in self.service.agent.lanes:
            facts = self.sessions[lane.session] = known.pop(lane.session, SessionFacts(lane.session, asked_at - 1e-9))
            if facts.since < asked_at:
                facts.waiting, facts.waits_for_model, facts.stands = lane.waiting, lane.waits_for_model, lane.stands
                if lane.phase or facts.phase:
                    facts.since = now - (lane.phase_seconds or 0.0)
                facts.phase = lane.phase or ""
        for key, facts in known.items():  # the service lists no resting sessions, but they are still shown
            if len(self.sessions) < SESSIONS:
                if facts.phase and facts.since < asked_at:
                    facts.phase, facts.since = "", now
                facts.waiting, facts.waits_for_model = 0, False
                self.sessions[key] = facts

    def _take_runs(self, asked_at: float, by_id: dict[str, Mapping[str, Any]]) -> None:
        for run in self.runs.values():
            if run.id not in by_id and run.state in _RUN_ORDER and run.since < asked_at:
                run.state, run.since = "ended", self._now()
        for row in reversed(by_id.values()):
            run = self._run(row["run_id"], row["session"])
            if run.since < asked_at or run.state == "queued":
                run.state = row["status"]
                at = datetime.fromisoformat(row["ended_at"] or row["started_at"] or row["accepted_at"])
                run.since = self._now() - max(self.age_of(at), 0.0)

    def take_records(self, asked_at: float, *rows: Iterable[Mapping[str, Any]]) -> None:
        """Apply the records that wait for people, of each kind."""
        self.version += 1
        self.waiting = [
            (name, row) for (name, kind), of_kind in zip(KINDS.items(), rows, strict=True)
            for row in sorted(of_kind, key=lambda row: (str(kind.asked_at(row)), row["id"]))
        ]  # fmt: skip

    def take_next(self, asked_at: float, rows: Iterable[Mapping[str, Any]]) -> None:
        """Apply what will happen by itself, the nearest first; common looks of sessions are left out."""
        self.version += 1
        self.planned = [(datetime.fromisoformat(row["at"]), harmless(row["of"], 40), harmless(row["what"]))
                        for row in rows if row["kind"] != "cycle"]  # fmt: skip

    def take_cycles(self, asked_at: float, rows: Iterable[Mapping[str, Any]]) -> None:
        """Apply a list of past cycles; those that are known already stay."""
        self.version += 1
        self._add_cycles(*(
            {**row, "cycle": row["cycle_id"], "noticed": row["about"], "decided": "", "fault": "",
             "done": [{"tool": counted(number, "call"), "status": status}
                      for status, number in (row["calls"] or dict[str, int]()).items() if number]}
            for row in rows if row["cycle_id"] not in self.cycles
        ))  # fmt: skip

    def mark_all_stale(self) -> None:
        """Mark everything as stale: the service was away, or events were lost."""
        self.stale = set(REQUESTS)

    # -- questions

    @property
    def now(self) -> float:
        """Return the present time."""
        return self._now()

    def age_of(self, at: datetime) -> float:
        """Return the seconds since a time of day."""
        return (self._wall() - at).total_seconds()

    def by_activity(self) -> list[SessionFacts]:
        """Return the sessions: the working ones, the longest phase first; then the waiting ones; then the resting ones,
        the latest first."""
        return sorted(self.sessions.values(), key=lambda facts: (
            (0, facts.since) if facts.phase else (1, facts.since) if facts.waiting else (2, -facts.since)
        ))  # fmt: skip

    def by_run(self) -> list[RunFacts]:
        """Return the runs: running ones, queued ones, then ended ones; the newest of each first."""
        return sorted(self.runs.values(), key=lambda run: (_RUN_ORDER.get(run.state, 2), -run.since))


_RUN_ORDER = {"running": 0, "queued": 1}
