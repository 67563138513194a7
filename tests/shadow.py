"""Shadow of each agent of a test: the state that its facts add up to, compared with the living objects.

The comparison follows each step of the event loop in which a fact was told. A difference fails the test: either a fact
is missing where something changed, or the addition is wrong.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any
from weakref import ref

from msgspec.structs import asdict

from spar.agent.parts import AgentParts
from spar.decisions.take import Turn, piece_to_take
from spar.facts import CallEnded, CycleClosed, DroppedTold, Fact, RunFinished, WorkTaken
from spar.runs.run import Run
from spar.state.ledger import Ledger
from spar.state.work import RunState, SessionState

#: Facts that a report shows, and the entries of one session up to which each step is compared; of a larger one every
#: hundredth is, since a comparison takes as long as the session is large.
SHOWN, LARGE, SELDOM = 30, 60, 100


class Shadow(Ledger):
    """Ledger of one agent whose states are compared with the agent's living objects.

    Args: report: called with the description of a difference.
    """

    def __init__(self, parts: AgentParts, report: Any) -> None:
        super().__init__(parts.core.clock)
        self._parts, self._report = ref(parts), report
        self._told = deque[Fact](maxlen=SHOWN)
        self._changed = set[str]()
        self._ended = set[str]()
        self._decided = deque[Fact]()
        self._turn = 0
        self.is_wrong = False

    def tell(self, fact: Fact) -> None:
        """Add a fact, and compare the session at the end of this step of the event loop."""
        if isinstance(fact, CycleClosed):
            self._compare_calls(fact)
        if isinstance(fact, WorkTaken) and fact.work:
            self._compare_piece(fact)
        if self._decided and not isinstance(fact, CallEnded):  # calls that a message keeps from starting end meanwhile
            decided = self._decided.popleft()
            if _plain(decided) != _plain(fact):
                self._decided.clear()
                self._differ(f"decided: {_shown(decided)}\ndone:    {_shown(fact)}")
        super().tell(fact)
        self._told.append(fact)
        if isinstance(fact, RunFinished):
            self._ended.add(fact.run)
        self._soon(fact.session)

    def _soon(self, session: str) -> None:
        """Compare a session at the end of this step."""
        if not self._changed:
            try:
                asyncio.get_running_loop().call_soon(self._compare)
            except RuntimeError:  # told outside of an event loop: the next step compares it
                return
        self._changed.add(session)

    def decided(self, facts: list[Fact]) -> None:
        """Expect these facts as the next ones."""
        self._decided.extend(facts)
        if facts:
            self._soon(facts[0].session)

    def _compare_piece(self, fact: WorkTaken) -> None:
        """Compare the interrupted work that a cycle takes with the decision. What it takes may be tried."""
        parts = self._parts()
        session = None if parts is None else parts.sessions.by_key.get(fact.session)
        if session is None:
            return
        turn = Turn(session.has_slot or not session.is_standing)
        piece = piece_to_take(self.state_of(fact.session), turn)
        if piece is None or piece.work != fact.work:
            self._differ(f"session {fact.session!r}: {piece} goes before {fact.work}")

    def _compare_calls(self, fact: CycleClosed) -> None:
        """Compare the started calls of a cycle with its result, if its actor journals calls."""
        cycle = self.state_of(fact.session).cycle
        is_told = cycle is not None and cycle.is_planned and not (cycle.piece is not None and cycle.piece.is_cycle)
        if cycle is not None and is_told and fact.has_result and not cycle.is_stepped:
            started = sum(call.attempt > 0 for call in cycle.calls.values())
            if started != fact.calls:
                self._differ(f"session {fact.session!r}: {fact.calls} calls were made, {started} told: {cycle.calls}")

    def _differ(self, what: str) -> None:
        self.is_wrong = True
        facts = "\n".join(f"  {_shown(fact)}" for fact in self._told)
        self._report(f"{what}\nafter\n{facts}")

    def _compare(self) -> None:
        changed, self._changed = self._changed, set()
        parts = self._parts()
        if parts is None or self.is_wrong:
            return
        if self._decided:
            missing, self._decided = [_shown(fact) for fact in self._decided], deque()
            self._differ(f"decided and not done: {missing}")
            return
        self._turn += 1
        for key in sorted(changed):
            state = self.state_of(key)
            if len(state.runs) + len(state.pushed) > LARGE and self._turn % SELDOM:
                continue
            differences = list(self._differences(parts, state))
            if differences:
                self._differ(f"session {key!r}:\n" + "\n".join(differences))

    def _differences(self, parts: AgentParts, state: SessionState) -> Any:
        """Yield a line for each difference between a state and the living session."""
        session = parts.sessions.by_key.get(state.key)
        living: dict[str, Any] = {"pushed": [], "waiting": [], "steers": [], "interrupting": "", "dropped": [],
                                  "run": "", "interrupted": []}  # fmt: skip
        if session is not None:
            inbox = session.inbox
            living = {
                "pushed": [perception.id for perception, _ in inbox.pushed or ()],
                "waiting": [run.id for run in inbox.runs or ()],
                "steers": [run.id for run in inbox.steers or ()],
                "interrupting": inbox._interrupting.id if inbox._interrupting else "",
                "dropped": [message.text for message in inbox.dropped or ()],
                "run": session.run.id if session.run is not None and session.run.id not in self._ended else "",
                "interrupted": [
                    (piece.id, piece.run.id if piece.run else "", piece.cycle is not None, piece.is_suspect)
                    for piece in session.interrupted
                ],
            }
        usual = [piece for piece in state.interrupted.values() if not piece.is_suspect]
        suspects = [piece for piece in state.interrupted.values() if piece.is_suspect]
        folded = {
            "pushed": list(state.pushed),
            "waiting": list(state.waiting),
            "steers": list(state.steers),
            "interrupting": state.interrupting,
            "dropped": [message.text for message in state.dropped],
            "run": state.run,
            "interrupted": [(p.work, p.run, p.is_cycle, p.is_suspect) for p in (*usual, *suspects)],
        }
        yield from _unequal("", living, folded)
        cycle = session.cycle if session is not None else None
        has_work = cycle is not None and bool(cycle.items or cycle.interrupted or cycle.is_journalled)
        if cycle is not None and has_work and not cycle.is_stepped:
            if state.cycle is None:
                yield f"  cycle: {cycle.id} is not in the state"
            else:
                run_id = "" if cycle.run is None else cycle.run.id
                yield from _unequal(
                    "cycle.", {"id": cycle.id, "run": run_id, "items": cycle.items},
                    {"id": state.cycle.id, "run": state.cycle.run, "items": state.cycle.items},
                )  # fmt: skip
        elif state.cycle is not None and not state.cycle.is_stepped:
            yield f"  cycle: {state.cycle.id} is over"
        open_runs = {run.id: run for run in parts.runs.open_in(state.key) if run.id not in self._ended}
        yield from _unequal("", {"runs": sorted(open_runs)}, {"runs": sorted(state.runs)})
        for run_id, run in open_runs.items():
            folded_run = state.runs.get(run_id)
            if folded_run is None:
                continue
            yield from _unequal(f"run {run_id}.", _of_living(run), _of_folded(folded_run))
        if len(self.states) <= LARGE or self._turn % SELDOM == 0:
            yield from self._unequal_in_agent(parts)

    def _unequal_in_agent(self, parts: AgentParts) -> Any:
        """Yield a line for each difference in what the agent keeps for all sessions together."""
        states, recovery = self.states.values(), parts.recovery
        if recovery.has_begun:
            retries = {item for state in states for item in state.retries}
            yield from _unequal("", {"retries": sorted(recovery.retries._timers)}, {"retries": sorted(retries)})
        yield from _unequal(
            "",
            {"doubts": sorted(recovery.doubts._known), "put_aside": sorted(recovery.letters._known)},
            {"doubts": sorted(doubt for state in states for doubt in state.doubts),
             "put_aside": sorted(item for state in states for item in state.put_aside)},
        )  # fmt: skip


def _of_living(run: Run) -> dict[str, Any]:
    return {
        "message": run.message.id, "later": [message.id for message in run.later_messages],
        "new": [message.id for message in run.new], "outcome": run.outcome,
        "absorbed": [other.id for other in run.absorbed], "into": run.into.id if run.into else "",
        "number": run.number, "failures": run.failures, "is_planned": run.is_planned, "verifies": run.is_to_verify,
        "output": repr(run.output)[:200], "results": len(run.results), "used": _not_zero(run.used),
        "waited": run.waited, "is_started": run.started_at is not None,
    }  # fmt: skip


def _of_folded(run: RunState) -> dict[str, Any]:
    return {
        "message": run.message.id, "later": [message.id for message in run.later], "new": run.new,
        "outcome": run.outcome, "absorbed": run.absorbed, "into": run.into, "number": run.number,
        "failures": run.failures, "is_planned": run.is_planned, "verifies": run.verifies,
        "output": repr(run.output)[:200], "results": run.results, "used": _not_zero(run.used), "waited": run.waited,
        "is_started": run.is_started,
    }  # fmt: skip


def _not_zero(amounts: dict[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if amount}


def _unequal(where: str, living: dict[str, Any], folded: dict[str, Any]) -> Any:
    for name, value in living.items():
        if folded[name] != value:
            yield f"  {where}{name}: living {value!r:.300}, folded {folded[name]!r:.300}"


def _plain(fact: Fact) -> tuple[type[Fact], dict[str, Any]]:
    """Return the kind and the fields of a fact, without its place and the new id of a message that tells of others."""
    values = {name: value for name, value in asdict(fact).items() if name not in ("seq", "at")}
    return type(fact), values | ({"message": None} if isinstance(fact, DroppedTold) else {})


def _shown(fact: Fact) -> str:
    values = {name: getattr(value, "id", value) for name, value in asdict(fact).items() if value and name != "at"}
    return f"{type(fact).__name__} {values!r:.300}"
