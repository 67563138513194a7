"""What must hold at every moment of a simulation, seen from outside: by the events, the ledger and the agent's account.

`Watch` outlives the agents that it watches, as a person would who reads along. Breaches are kept, and raised where the
simulation stands (`demand`): an event handler that raised would only be turned off.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Container

from spar import Agent
from spar.agent.lifecycle import FOLLOWS
from spar.events import (
    CallEvent,
    ErrorOccurred,
    Event,
    LoopCompleted,
    LoopStarted,
    MessageOutcome,
    PhaseCompleted,
    PhaseStarted,
    RunAccepted,
    RunEnded,
    RunStarted,
    StateChanged,
)
from spar.runs.ends import CALLED_OFF

TAIL = 60
#: What may be told of a message after what, in one process; a message of an earlier process is "again" in the next one.
AFTER = {
    "": ("queued", "interrupting", "started", "dropped"),
    "queued": ("started", "steered", "collected", "dropped"),
    "interrupting": ("started", "dropped"),
    "again": ("queued", "started", "steered", "collected", "dropped"),
}


class Trace:
    """What happened, in lines that have no identifier of chance in them: a digest of all, and the last ones."""

    def __init__(self) -> None:
        self.tail: deque[str] = deque(maxlen=TAIL)
        self.lines = 0
        self.now: Callable[[], float] = lambda: 0.0
        self._sum = hashlib.sha256()
        self._names: dict[str, str] = {}
        self.all: list[str] | None = None

    def __call__(self, line: str) -> None:
        line = f"{self.now():.6f} {line}"
        self._sum.update(f"{line}\n".encode("utf-8", "backslashreplace"))
        self.tail.append(line)
        self.lines += 1
        if self.all is not None:
            self.all.append(line)

    def name(self, kind: str, id: str | None) -> str:
        """What an identifier is called here: by the order in which they came."""
        if not id:
            return "-"
        return self._names.setdefault(id, f"{kind}{len(self._names)}")

    @property
    def digest(self) -> str:
        return self._sum.hexdigest()[:16]


class Watch:
    """See the module. `is_journaled`: what was accepted outlives a killed process.

    `accepted` holds the runs that were accepted and not ended by now; `ended` counts ends of runs, `ends` holds the
    last one of each. `began` holds the runs of each session in the order in which they first began.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.breaches: list[str] = []
        self.is_journaled = False
        self.accepted: dict[str, str] = {}
        self.has_died = False
        self._unpromised: set[str] = set()  # of processes that are gone: whether they come back is not said
        self.ended: Counter[str] = Counter()
        self.ends: dict[str, RunEnded] = {}
        self.began: defaultdict[str, list[str]] = defaultdict(list)
        self._outcomes: dict[str, str] = {}
        self._called_off: dict[str, float] = {}  # runs of this process, and when that was told
        self.counts: Counter[str] = Counter()
        self._seq = self._seq_here = 0
        self._agent: Agent | None = None
        self._state = ""
        self._open: dict[str, str] = {}
        self._stepped = ""  # the last cycle that ended while the agent did not run
        self._completed = 0
        self._before: int | None = None  # cycles that earlier processes made, once they are known

    def breach(self, sentence: str) -> None:
        self.trace(f"BREACH {sentence}")
        self.breaches.append(sentence)

    def demand(self) -> None:
        """Raises: AssertionError for what was breached."""
        if self.breaches:
            raise AssertionError("; ".join(self.breaches))

    # -- one agent after the other

    def follow(self, agent: Agent) -> None:
        """Read along with a new process's agent."""
        self._agent, self._state, self._open, self._completed = agent, agent.state, {}, 0
        self._before, self._seq_here = None, 0
        agent.events.connect(Event, lambda event: self._seen(event, agent), only_keeps=True)

    def died(self, promised: Container[str] = ()) -> None:
        """The process is gone, and what it had accepted: all but what was promised.

        Who calls a run off is answered when its end is on disk; the event may come a moment before.
        """
        untold = [run_id for run_id, at in self._called_off.items() if at == self.trace.now()]
        self.ended -= Counter(untold)
        for run_id in untold:
            self.ends.pop(run_id, None)
        self._called_off.clear()
        self.has_died = True
        self._unpromised |= {run_id for run_id in self.accepted if run_id not in promised}
        self.accepted = {run_id: session for run_id, session in self.accepted.items() if run_id in promised}
        self._outcomes.clear()
        self._agent = None

    def check(self, effects: Counter[str]) -> None:
        """What must hold between two steps. Raises: AssertionError."""
        agent = self._agent
        assert agent is not None
        for key, times in effects.items():
            if times > 1:
                self.breach(f"{key} was done {times} times")
        if self._before is None and agent.agent_state.has_loaded:
            self._before = agent.stats.total_cycles - self._completed
        total = agent.stats.total_cycles - (self._before or 0)
        if agent.state == "running" and total != self._completed:
            self.breach(f"{self._completed} cycles were told of, {total} are counted")
        if sum(agent.stats.outcomes.values()) != agent.stats.total_cycles:
            self.breach("the outcomes do not add up to the cycles")
        unended = sum(run.ended is None for run in agent.runs._runs.values())
        if unended != agent.runs.open:
            self.breach(f"{unended} runs have not ended, {agent.runs.open} are counted")
        for session, lane in agent.sessions.by_key.items():
            if (lane.cycle is not None) != (session in self._open) and agent.stepper._chain is None:
                self.breach(f"session {session} has {'a' if lane.cycle else 'no'} cycle, {self._open} were told of")
        if agent.agent_state.account["lost"]:
            self.breach(f"{agent.agent_state.account['lost']} experiences were lost")
        self.demand()

    # -- events

    def _seen(self, event: Event, agent: Agent) -> None:
        if agent is not self._agent:  # the last breath of a process that was killed
            return
        # Before its state is loaded an agent cannot know which numbers were used.
        last = self._seq if agent.agent_state.has_loaded else self._seq_here
        if event.seq <= last:
            self.breach(f"{type(event).__name__} has seq {event.seq} after {last}")
        self._seq_here = event.seq
        if agent.agent_state.has_loaded:
            self._seq = max(self._seq, event.seq)
        self.counts[type(event).__name__] += 1
        self.trace(self._line(event))
        match event:
            case LoopStarted():
                if event.session in self._open:
                    self.breach(f"session {event.session} has two cycles at once")
                self._open[event.session] = event.cycle_id
            case LoopCompleted():
                is_again = self._stepped == event.cycle_id  # a chain of steps is recorded again with later steps
                if self._open.pop(event.session, None) != event.cycle_id and not is_again:
                    self.breach(f"a cycle of session {event.session} completed that was not the one in hand")
                if agent.state != "running":
                    self._stepped = event.cycle_id
                self._completed += 1
            case StateChanged():
                if event.old != self._state or event.new not in FOLLOWS[event.old]:  # type: ignore[index]
                    self.breach(f"{event.old} became {event.new} when it was {self._state}")
                self._state = event.new
                if event.new == "stopped":
                    self._outcomes.clear()
            case RunAccepted():
                self.accepted[event.run_id], self._outcomes[event.run_id] = event.session, ""
            case RunStarted():
                if event.run_id not in self.accepted:  # kept, and its sender not told before the process died
                    self._unpromised.add(event.run_id)
                if event.run_id not in self.began[event.session]:
                    self.began[event.session].append(event.run_id)
            case MessageOutcome():
                before, self._outcomes[event.run_id] = self._outcomes.get(event.run_id, "again"), event.outcome
                if event.outcome not in AFTER.get(before, ()):
                    self.breach(f"{event.outcome} was told of a message after {before!r}")
            case RunEnded():
                self.ended[event.run_id] += 1
                self.ends[event.run_id] = event
                if event.error in CALLED_OFF:
                    self._called_off[event.run_id] = self.trace.now()
                if self.ended[event.run_id] > 1:
                    self.breach(f"run {self.trace.name('r', event.run_id)} ended {self.ended[event.run_id]} times")
                if self.has_died and self.ended[event.run_id] == 1 and event.error.startswith("dropped"):
                    self._unpromised.add(event.run_id)  # it was kept, too, and others came before it began
                if self.accepted.pop(event.run_id, None) is None and event.run_id not in self._unpromised:
                    self.breach(f"run {self.trace.name('r', event.run_id)} ended and was not under way")

    def _line(self, event: Event) -> str:
        kind, name = type(event).__name__, self.trace.name
        match event:
            case LoopStarted():
                return f"{kind} {event.session} {name('k', event.cycle_id)}"
            case LoopCompleted():
                return f"{kind} {event.session} {name('k', event.cycle_id)} {event.outcome} {event.duration:.6f}"
            case PhaseStarted() | PhaseCompleted():
                return f"{kind} {name('k', event.cycle_id)} {event.phase}"
            case RunAccepted() | RunStarted():
                return f"{kind} {name('r', event.run_id)} {event.session}"
            case RunEnded():
                return f"{kind} {name('r', event.run_id)} {event.status} {event.error[:40]}"
            case StateChanged():
                return f"{kind} {event.old} {event.new}"
            case ErrorOccurred():
                return f"{kind} {event.phase} {event.error.kind} {event.error.part} {event.policy}"
            case CallEvent():
                result = getattr(event, "result", None)
                end = "" if result is None else f" {result.status} {result.reason} {result.fault and result.fault.kind}"
                return f"{kind} {event.call.tool} {event.call.params.get('key')}{end}"
            case _:
                return kind
