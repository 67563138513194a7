"""Ledger: the states of all sessions of one agent, each folded from its facts."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import force_setattr

from spar.clock import Clock
from spar.facts.fact import Fact
from spar.state.apply import apply
from spar.state.work import SessionState


class Ledger:
    """States of the sessions of one agent by key."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.states: dict[str, SessionState] = {}

    def tell(self, fact: Fact) -> None:
        """Give a fact its place and time, and add it to the state of its session."""
        state = self.state_of(fact.session)
        force_setattr(fact, "seq", state.seq + 1)
        force_setattr(fact, "at", self._clock.now().timestamp())
        apply(state, fact)

    def decided(self, facts: list[Fact]) -> None:
        """Note the facts that a decision comes to. Nothing acts on them: the living objects decide for themselves."""

    def session_with(self, cycle_id: str) -> str:
        """Return the session whose current cycle this is; "" for none."""
        return next((state.key for state in self.states.values() if state.cycle and state.cycle.id == cycle_id), "")

    def state_of(self, session: str) -> SessionState:
        """Return the state of a session, an empty one for a session without facts."""
        state = self.states.get(session)
        if state is None:
            state = self.states[session] = SessionState(session)
        return state


def fold(session: str, facts: Iterable[Fact], state: SessionState | None = None) -> SessionState:
    """Return the state that these facts of a session add up to, after `state` if it is given."""
    state = SessionState(session) if state is None else state
    for fact in facts:
        apply(state, fact)
    return state
