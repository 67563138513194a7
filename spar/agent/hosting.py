"""Services that an agent lends to its parts, made for each part that uses some."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from spar.protocols import Home, Host
from spar.state.apply import Ledger
from spar.types import Feedback

if TYPE_CHECKING:
    from spar.agent.submission import Conversations
    from spar.ports.store import Journal
    from spar.session.parts import SessionParts
    from spar.session.sessions import Sessions


def host_of(part: Any, parts: SessionParts, sessions: Sessions, conversations: Conversations, budgets: Any,
            home: Home | None) -> Host:  # fmt: skip
    """Return the services for a part."""
    core, state, runs, models = parts.core, parts.agent_state, parts.runs, parts.health.models
    submission = conversations.submission
    calls = None if (journal := state.journal) is None else LedgerJournal(core.ledger, journal)

    def wake() -> None:
        parts.requests.in_loop(sessions.wake_standing)

    def is_current(cycle_id: str) -> bool:
        return sessions.cycle(cycle_id) is not None

    def count(run_id: str, tokens: Mapping[str, int]) -> None:
        """Add the tokens of a request to its run, and to the counts of its session."""
        runs.used(run_id, tokens)
        with suppress(LookupError):  # a run that is forgotten
            models.used(runs.get(run_id).session, tokens)

    def judge(feedback: Feedback, done: Callable[[], None]) -> None:
        """Apply later feedback of a part; nothing is learnt where learning is not installed."""
        done() if parts.learning is None else parts.learning.later(feedback, done)

    return Host(core.name, core.clock, core.events, core.hooks, wake, state.state_store, home, sessions.resume, calls,
                budgets, parts.setup.tools, conversations.transcripts, conversations.outbox.tell, submission.pursue,
                runs.used, sessions.note, state.rows_of, is_current, partial(models.update, id(part)), count,
                submission.accept, partial(models.problem, id(part)), conversations.records.conversation,
                judge, core.traceparent, *_of_nodes(state.memory, core.name))  # fmt: skip


def _of_nodes(memory: Any, agent: str) -> tuple[Any, ...]:
    """Return the last fields of a `Host` from `may_sense` on, as its open memory has the nodes."""
    if memory is not None:
        from spar.ports.nodes import nodes_of

        if (nodes := nodes_of(memory)) is not None:
            may_sense = partial(nodes.may_begin, agent, "main")
            return may_sense, partial(nodes.acquire, agent), partial(nodes.resources, agent), nodes.place
    return ()


class LedgerJournal:
    """Journal in which the actor of an agent records its calls: their facts go to the agent's ledger, which keeps them
    in `journal`."""

    __slots__ = ("append", "epoch", "is_open", "next_fence", "safe")

    def __init__(self, ledger: Ledger, journal: Journal) -> None:
        self.append, self.epoch = ledger.tell, journal.epoch
        self.is_open, self.next_fence, self.safe = journal.is_open, journal.next_fence, journal.safe
