"""Feedback on runs and cycles that have ended: accepted from people and modules, made durable at once, and learnt from.

One transaction holds the changed abilities, the reflector's own rows, and the changes to the run's experiences.
Feedback on a cycle that is being reflected on waits for the end of that cycle, since before it nothing could change.
Only interfaces that trust the speaker accept feedback; a message is no feedback.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from spar.data.text import safe_line
from spar.errors import ConflictError, NotReadyError
from spar.events import FeedbackTaken
from spar.facts import Judged, RowsChanged
from spar.journal.state.agent_state import AgentState
from spar.journal.work import Work
from spar.loop.core import Core, Requests
from spar.loop.cycle import WorkingSession
from spar.loop.setup import Setup
from spar.ports.any_part import has, offers
from spar.ports.phases import HearsFeedback
from spar.ports.store import DurableStore
from spar.protocols import Context
from spar.runs.runs import Runs
from spar.types import Feedback, FeedbackSource, Reflection

#: The most characters of the reason.
LONGEST_WHY = 500


class GivenFeedback:
    """Feedback on the runs of one agent. Args: sessions: its sessions by key."""

    __slots__ = ("_agent_state", "_core", "_requests", "_runs", "_sessions", "_setup", "_work")

    def __init__(self, core: Core, setup: Setup, agent_state: AgentState, work: Work, runs: Runs, requests: Requests,
                 sessions: Mapping[str, WorkingSession]) -> None:  # fmt: skip
        self._core, self._setup, self._agent_state, self._work, self._runs = core, setup, agent_state, work, runs
        self._requests, self._sessions = requests, sessions

    async def give(self, about: str, success: bool, why: str = "", *, by: FeedbackSource = "person") -> Feedback:
        """Apply feedback on a run or a cycle, and return it. With a journal it is on disk on return.

        Args: about: the id of a run, or the id of a cycle or a prefix of it.
        Raises: LookupError for an unknown id; ConflictError if learning is off; NotReadyError while the memory is
        closed; TransientError if it cannot be written.
        """
        core = self._core
        if core.settings.memory.learning == "off":
            raise ConflictError('memory.learning is "off": nothing is learnt, from feedback either')
        if refusal := self._core.ledger.journal.refusal:
            raise NotReadyError(refusal)
        feedback = Feedback(await self._full_id(about), success, by, safe_line(why, LONGEST_WHY))
        session = None if core.shared is None else await core.shared.session_of(feedback.about)
        if session is not None and (owner := core.owner_of(session)) is not None:
            await owner.ask(session, "feedback", about=feedback.about, success=success, why=feedback.why, by=by)
        else:
            await self._apply(feedback)
        return feedback

    def later(self, feedback: Feedback, done: Callable[[], None]) -> None:
        """Apply feedback of a module in the background. `done` is called once it is kept; on an error it is not
        called."""
        self._requests.in_background(self._apply_later(feedback, done), "feedback for")

    async def _apply_later(self, feedback: Feedback, done: Callable[[], None]) -> None:
        if self._core.settings.memory.learning != "off":
            await self._apply(feedback)
        done()

    async def _apply(self, feedback: Feedback) -> None:
        """Let the reflector learn from feedback, write the changes in one transaction, and publish it."""
        core, state = self._core, self._agent_state
        await self._until_closed(feedback.about)
        journal, read = self._core.ledger.journal, state.abilities.read()
        reflector = self._setup.modules["reflect"].part
        reflection = Reflection(feedback=(feedback,))
        if offers(reflector, HearsFeedback):
            context = Context(core.name, "", memory=state.memory, abilities=read, clock=core.clock,
                              learning=core.settings.memory.learning)  # fmt: skip
            reflection = await reflector.hear_feedback((feedback,), context)
        changes = state.abilities.changes(state.abilities.learn(reflection, read))
        journal.append(RowsChanged(changes=tuple(changes)))
        journal.append(Judged(credits=tuple(reflection.credits), feedback=tuple(reflection.feedback)))
        await journal.safe()
        core.events.publish(
            FeedbackTaken(about=feedback.about, success=feedback.success, by=feedback.by, why=feedback.why)
        )

    async def _until_closed(self, about: str) -> None:
        """Wait for the end of the cycle that is being reflected on, if the feedback is about it or its run.

        Inside a cycle, for example in a hook, do not wait.
        """
        if self._requests.is_inside:
            return
        for session in tuple(self._sessions.values()):
            cycle = session.cycle
            if cycle is None or cycle.phase != "reflect" or cycle.is_stepped:
                continue
            if about == cycle.id or (cycle.run is not None and about == cycle.run.id):
                closed = asyncio.Event()
                cycle.when_closed = (*cycle.when_closed, closed.set)
                await closed.wait()
                return

    async def _full_id(self, about: str) -> str:
        """Return the id of a run, or of a cycle by a prefix of its id. Raises: LookupError for any other text."""
        try:
            return (await self._runs.wait(about, 0.0)).run_id
        except LookupError:
            memory: DurableStore = self._agent_state.memory
            record = await memory.cycle(about) if has(memory, DurableStore.cycles, DurableStore.cycle) else None
            if record is None:
                raise
            return record.cycle_id
