"""Shadow of each agent of a test: a second fold of its facts, compared with the state that the agent acts on.

The comparison follows each step of the event loop in which a fact was told. A difference fails the test: something
changed a state without a fact, or a part of the agent goes another way than the state says.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any
from weakref import ref

from msgspec.structs import asdict

from spar.agent.parts import AgentParts
from spar.facts import CycleClosed, Fact
from spar.state.apply import ADDITIONS, Ledger, SessionState, apply

#: Facts that a report shows, and the entries of one session up to which each step is compared; of a larger one every
#: hundredth is, since a comparison takes as long as the session is large.
SHOWN, LARGE, SELDOM = 30, 60, 100


class Shadow(Ledger):
    """Ledger of one agent that folds each fact twice. Args: report: called with the description of a difference."""

    def __init__(self, parts: AgentParts, name: str, report: Any) -> None:
        super().__init__(name)
        self._parts, self._report = ref(parts), report
        self._folded: dict[str, SessionState] = {}
        self._told = deque[Fact](maxlen=SHOWN)
        self._changed = set[str]()
        self._turn = 0
        self.is_wrong = False

    def add(self, *facts: Fact) -> None:
        """Add facts, and compare their sessions at the end of this step of the event loop."""
        for fact in facts:
            if type(fact) in ADDITIONS:
                self._add(fact)

    def _add(self, fact: Fact) -> None:
        if isinstance(fact, CycleClosed):
            self._compare_calls(fact)
        super().add(fact)
        apply(self._folded.setdefault(fact.session, SessionState(fact.session)), fact)
        if fact.session not in self.states:  # nothing of it is open
            self._changed.discard(fact.session)
            self._forget(fact.session)
            return
        self._told.append(fact)
        if not self._changed:
            try:
                asyncio.get_running_loop().call_soon(self._compare)
            except RuntimeError:  # told outside of an event loop: the next step compares it
                return
        self._changed.add(fact.session)

    def release(self, session: str) -> None:
        super().release(session)
        if session not in self.states:
            self._forget(session)

    def drop(self, session: str) -> None:
        super().drop(session)
        self._folded.pop(session, None)

    def _forget(self, session: str) -> None:
        """Drop the second fold of a session, which the agent has dropped."""
        folded = self._folded.pop(session, None)
        if folded is not None and not folded.is_empty:
            self._differ(f"session {session!r} was dropped, and is open: {folded!r:.500}")

    def _compare_calls(self, fact: CycleClosed) -> None:
        """Compare the started calls of a cycle with its result, if its actor journals calls."""
        cycle = self.state_of(fact.session).cycle
        if cycle is None or cycle.action is None or cycle.effect or (cycle.opened and cycle.opened.is_stepped):
            return
        if fact.plan in ("cut", "none") and not fact.calls:  # it has perhaps no result, or no run
            return
        is_resumed = cycle.piece is not None and cycle.piece.cycle is not None
        ends = [cycle.ended.get(call) for call in cycle.started]  # one may be skipped between its start and the tool's
        if not is_resumed and sum(end is None or end.attempts > 0 for end in ends) != fact.calls:
            self._differ(f"session {fact.session!r}: {fact.calls} calls were made, told: {list(cycle.started)}")

    def _differ(self, what: str) -> None:
        self.is_wrong = True
        facts = "\n".join(f"  {_shown(fact)}" for fact in self._told)
        self._report(f"{what}\nafter\n{facts}")

    def _compare(self) -> None:
        changed, self._changed = self._changed, set()
        parts = self._parts()
        if parts is None or self.is_wrong:
            return
        self._turn += 1
        for key in sorted(changed):
            if (folded := self._folded.get(key)) is None:
                continue
            if len(folded.runs) + len(folded.pushed) > LARGE and self._turn % SELDOM:
                continue
            differences = list(self._differences(parts, folded))
            if differences:
                self._differ(f"session {key!r}:\n" + "\n".join(differences))

    def _differences(self, parts: AgentParts, folded: SessionState) -> Any:
        """Yield a line for each difference between a folded state and what acts on it."""
        state, session = self.state_of(folded.key), parts.sessions.by_key.get(folded.key)
        yield from _unequal("", asdict(state), asdict(folded))
        open_runs = {run.id: run.state for run in parts.runs.open_in(folded.key)}
        for run_id, run in folded.runs.items():
            if run_id not in open_runs:
                yield f"  run {run_id} is open in the state alone"
            else:
                yield from _unequal(f"run {run_id}.", asdict(open_runs[run_id]), asdict(run))
        if session is not None:
            yield from _unequal(
                "session.",
                {"handed_out": sorted(session.handed_out), "arrived": list(session.arrived),
                 "state": id(session.state)},
                {"handed_out": sorted(piece.work for piece in folded.pieces), "arrived": list(folded.pushed),
                 "state": id(state)},
            )  # fmt: skip
        elif folded.pushed or folded.waiting or folded.interrupted or folded.suspects:
            yield "  work waits in the state of a session that is not there"
        if len(self.states) <= LARGE or self._turn % SELDOM == 0:
            yield from self._unequal_in_agent(parts)

    def _unequal_in_agent(self, parts: AgentParts) -> Any:
        """Yield a line for each difference in what the agent keeps for all sessions together."""
        recovery = parts.recovery
        if recovery.has_begun:
            retries = {item for state in self.states.values() for item in state.retries}
            yield from _unequal("", {"retries": sorted(recovery.restart.retries._timers)}, {"retries": sorted(retries)})


def _unequal(where: str, living: dict[str, Any], folded: dict[str, Any]) -> Any:
    for name, value in living.items():
        if folded[name] != value:
            yield f"  {where}{name}: living {value!r:.300}, folded {folded[name]!r:.300}"


def _shown(fact: Fact) -> str:
    values = {name: getattr(value, "id", value) for name, value in asdict(fact).items() if value}
    return f"{type(fact).__name__} {values!r:.300}"
