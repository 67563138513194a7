"""Feedback on runs and cycles that have ended: taken from people and modules, made durable at once, and learnt from.

One transaction holds it all: the abilities that change, what the reflector keeps, and the experiences that came of the
run. It waits for no cycle but one that it is about and that is being reflected on: before its end there is nothing that
the word could change. Only doors that trust the speaker call this; a message is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from spar.data.text import safe_line
from spar.errors import ConflictError, NotReadyError
from spar.events import FeedbackTaken
from spar.journal.state.agent_state import AgentState
from spar.loop.core import Core
from spar.loop.cycle import Cycle
from spar.loop.setup import Setup
from spar.loop.tasks import Requests
from spar.ports.optional import HearsFeedback, offers
from spar.ports.store import ReadsCycles, TakesFeedback
from spar.protocols import Context
from spar.records.abilities import ReadAbilities
from spar.runs.runs import Runs
from spar.types import Feedback, FeedbackSource, Reflection

#: Characters of the reason that somebody gives.
LONGEST_WHY = 500


class TurningSession(Protocol):
    """A session, as far as its cycle in hand is looked at."""

    @property
    def cycle(self) -> Cycle | None: ...


class GivenFeedback:
    """Feedback on the runs of one agent, whose sessions are these, by their keys."""

    __slots__ = ("_agent_state", "_core", "_requests", "_runs", "_sessions", "_setup")

    def __init__(self, core: Core, setup: Setup, agent_state: AgentState, runs: Runs, requests: Requests,
                 sessions: Mapping[str, TurningSession]) -> None:  # fmt: skip
        self._core, self._setup, self._agent_state, self._runs = core, setup, agent_state, runs
        self._requests, self._sessions = requests, sessions

    async def give(self, about: str, success: bool, why: str = "", *, by: FeedbackSource = "person") -> Feedback:
        """Take a word on a run or a cycle; with a journal it is on disk when this returns.

        Raises: LookupError for what is not known; ConflictError while nothing is to be learnt; NotReadyError while the
        memory is closed; TransientError when it cannot be written.
        """
        core, state = self._core, self._agent_state
        if core.settings.memory.learning == "off":
            raise ConflictError('memory.learning is "off": nothing is learnt, from feedback either')
        journal = state.journal
        if journal is None and state.has_journal:
            raise NotReadyError("the agent's memory is not open: feedback could not be kept")
        word = Feedback(await self._known(about), success, by, safe_line(why, LONGEST_WHY))
        await self._take(word)
        return word

    def later(self, word: Feedback, done: Callable[[], None]) -> None:
        """Take a word of a module in the background; `done` is called once it is kept, not where it cannot be."""
        self._requests.in_background(self._take_later(word, done), "feedback for")

    async def _take_later(self, word: Feedback, done: Callable[[], None]) -> None:
        if self._core.settings.memory.learning != "off":
            await self._take(word)
        done()

    async def _take(self, word: Feedback) -> None:
        core, state = self._core, self._agent_state
        await self._until_closed(word.about)
        journal, read = state.journal, ReadAbilities(state.abilities.known, core.clock)
        reflector = self._setup.modules["reflect"].part
        reflection = Reflection(feedback=(word,))
        if offers(reflector, HearsFeedback):
            reflection = await reflector.hear_feedback((word,), self._context(read))
        changes = state.take(reflection, read)
        if journal is not None:
            journal.change(changes)
            if offers(journal, TakesFeedback):
                journal.judged(reflection.credits, reflection.feedback)
            await journal.safe()
        core.events.publish(FeedbackTaken(about=word.about, success=word.success, by=word.by, why=word.why))

    async def _until_closed(self, about: str) -> None:
        """Wait until the cycle in hand has ended, if the word is about it, or its run, and it is being reflected on.

        Inside of a cycle, e.g. in a hook, nothing is waited for.
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

    async def _known(self, about: str) -> str:
        """Return the id of a run, or of a cycle by its beginning. Raises: LookupError for what is neither."""
        try:
            return (await self._runs.wait(about, 0.0)).run_id
        except LookupError:
            memory = self._agent_state.memory
            record = await memory.cycle(about) if offers(memory, ReadsCycles) else None
            if record is None:
                raise
            return record.cycle_id

    def _context(self, read: ReadAbilities) -> Context:
        core, state = self._core, self._agent_state
        return Context(
            core.name,
            "",
            memory=state.memory,
            abilities=read,
            clock=core.clock,
            learning=core.settings.memory.learning,
        )
