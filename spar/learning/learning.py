"""Learning of an agent: the abilities of its tools, their rows in the memory, and feedback on what has ended.

The abilities of a reflection are written with the end of its cycle. Feedback comes from people and modules, about runs
and cycles that have ended: it is made durable at once, and one transaction holds the changed abilities, the reflector's
own rows, and the changes to the run's experiences. Feedback on a cycle that is being reflected on waits for the end of
that cycle, since before it nothing could change. Only interfaces that trust the speaker accept feedback; a message is
no feedback.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from spar.attaching import Attaching, Services
from spar.data.learning.abilities import AgedAbilities, KnownAbilities, ReadAbilities, ability_key
from spar.data.text import safe_line
from spar.decoding import convert
from spar.errors import ConflictError, NotReadyError, SparError
from spar.events import FeedbackTaken
from spar.facts import Judged, RowsChanged
from spar.ports.any_part import has, offers
from spar.ports.phases import HearsFeedback
from spar.ports.rows import in_time, rows_of
from spar.ports.store import DurableStore
from spar.protocols import Context
from spar.records.journal import RowChange
from spar.session.parts import SessionParts
from spar.threads import OTHERS_TURN, SLICE
from spar.types import Ability, Feedback, FeedbackSource, Reflection

#: Most kinds of failures with a count of their own; the others share one count.
MOST_KINDS = 50
OTHER_KINDS = "other"
#: The most characters of the reason of feedback.
LONGEST_WHY = 500
#: Seconds between two looks at what other nodes have learnt.
_LEARNT_EVERY = 60.0


class LearningCounts:
    """Counts of one agent.

    `failures` are by kind of cause, `feedback` by its source and by good or bad, `advised` by the result of asking a
    model.
    """

    __slots__ = ("advised", "failures", "feedback", "trials")

    def __init__(self) -> None:
        self.trials = 0
        self.failures: Counter[str] = Counter()
        self.feedback: Counter[tuple[str, str]] = Counter()
        self.advised: Counter[str] = Counter()

    def add(self, reflection: Reflection) -> None:
        """Count what a reflection contains besides the trials."""
        for failure in reflection.failures:
            kind = failure.kind or OTHER_KINDS
            self.failures[kind if kind in self.failures or len(self.failures) < MOST_KINDS else OTHER_KINDS] += 1
        for word in reflection.feedback:
            self.feedback[word.by, "good" if word.success else "bad"] += 1
        if reflection.advised:
            self.advised[reflection.advised] += 1


class Learning:
    """Abilities of one agent, and the feedback that changes them.

    Attributes: known: the abilities by tool and kind of task; learnt: counts of what was learnt in this process; read:
    returns the abilities as they are now for a reflector, and they note what it reads.
    """

    def __init__(self, services: Services) -> None:
        core = self._core = services.core
        self._services, self._rows = services, rows_of(services.state.state_store)
        self.known = KnownAbilities()
        services.state.abilities = AgedAbilities(self.known, core.clock.now)
        self.read = partial(ReadAbilities, self.known, core.clock.now)
        self.learnt = LearningCounts()
        self._owner = f"ability:{core.name}"  # of the rows
        self._has_loaded = False
        self._written: dict[str, Ability] = {}  # the abilities as the rows have them
        self._written_at: dict[str, float] = {}  # and the time in each

    def learn(self, reflection: Reflection, read: ReadAbilities | None) -> list[str]:
        """Apply the abilities of a reflection, and count them; return the keys of changed and forgotten abilities.

        Args: read: the abilities as the reflector read them.
        """
        self.learnt.add(reflection)
        if not reflection.abilities:
            return []
        keys, trials = self.known.learn(reflection.abilities, read)
        self.learnt.trials += trials
        return keys

    # -- rows

    def changes(self, keys: Iterable[str]) -> tuple[RowChange, ...]:
        """Return the row changes for these keys, for the caller to write."""
        changes, known, written = [], self.known.stored, self._written
        for key in keys:
            if (ability := known.get(key)) is None:
                written.pop(key, None)
                self._written_at.pop(key, None)
                changes.append(RowChange(self._owner, key, is_dropped=True))
            else:
                written[key] = ability
                changes.append(self._row_of(key, ability))
        return tuple(changes)

    def unwritten(self) -> list[RowChange]:
        """Return the row changes that bring the rows up to date."""
        known, written = self.known.stored, self._written
        changes = [RowChange(self._owner, key, is_dropped=True) for key in written.keys() - known.keys()]
        return changes + [self._row_of(key, item) for key, item in known.items() if written.get(key) is not item]

    async def load(self) -> None:
        """Take over what earlier and other processes have learnt. Raises: errors of the store."""
        if self._rows is not None:
            await self.refresh(await in_time(self._rows.rows(self._owner)))
            self._has_loaded = True

    async def refresh(self, rows: Mapping[str, Any]) -> None:
        """Take over what other processes have learnt or forgotten. Args: rows: the present ones by key."""
        for key in self._written_at.keys() - rows.keys():
            del self._written_at[key]
            self._written.pop(key, None)
            self.known.pop(key, None)
        new = [row for key, row in rows.items() if _tried_at(row) != self._written_at.get(key)]
        for count, item in enumerate(sorted(new, key=_tried_at), 1):
            if (ability := self._read(item)) is not None:
                key = ability_key(ability.tool, ability.task)
                self._written[key], self._written_at[key] = ability, _tried_at(item)
            if count % SLICE == 0:
                await OTHERS_TURN

    async def follow(self) -> None:
        """Take over what other nodes learn."""
        while self._core.shared is not None:
            await self._core.clock.sleep(_LEARNT_EVERY)
            with suppress(SparError):
                await self.load()

    async def save(self) -> None:
        """Write the abilities that the end of no cycle has written. A failure is logged and does not keep the agent
        from stopping."""
        if self._rows is None or not self._has_loaded:
            return
        known, changes = dict(self.known.stored), self.unwritten()
        try:
            await in_time(self._rows.change(changes))
            self._written = known
        except Exception as error:
            self._core.log.error("abilities not saved", agent=self._core.name, reason=str(error))

    def _row_of(self, key: str, ability: Ability) -> RowChange:
        at = self._written_at[key] = self._core.clock.now().timestamp()  # keeps the order of trials across restarts
        return RowChange(self._owner, key, {**msgspec.structs.asdict(ability), "tried_at": at})

    def _read(self, item: Any) -> Ability | None:
        try:
            ability = convert(item, Ability)
        except msgspec.ValidationError as error:  # written by another version; it is learnt again
            self._core.log.warning("ability not taken over", agent=self._core.name, reason=str(error))
            return None
        self.known.know(ability)
        return ability

    # -- feedback

    @property
    def _parts(self) -> SessionParts:
        parts: SessionParts = self._services.conversations().parts
        return parts

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
        self._services.in_background(self._apply_later(feedback, done), "feedback for")

    async def _apply_later(self, feedback: Feedback, done: Callable[[], None]) -> None:
        if self._core.settings.memory.learning != "off":
            await self._apply(feedback)
        done()

    async def _apply(self, feedback: Feedback) -> None:
        """Let the reflector learn from feedback, write the changes in one transaction, and publish it."""
        core = self._core
        await self._until_closed(feedback.about)
        reflector, read = self._services.setup.modules["reflect"].part, self.read()
        reflection = Reflection(feedback=(feedback,))
        if offers(reflector, HearsFeedback):
            context = Context(core.name, "", memory=self._services.memory, abilities=read, clock=core.clock,
                              learning=core.settings.memory.learning)  # fmt: skip
            reflection = await reflector.hear_feedback((feedback,), context)
        journal, changes = self._core.ledger.journal, self.changes(self.learn(reflection, read))
        journal.append(RowsChanged(changes=changes))
        journal.append(Judged(credits=tuple(reflection.credits), feedback=tuple(reflection.feedback)))
        await journal.safe()
        core.events.publish(
            FeedbackTaken(about=feedback.about, success=feedback.success, by=feedback.by, why=feedback.why)
        )

    async def _until_closed(self, about: str) -> None:
        """Wait for the end of the cycle that is being reflected on, if the feedback is about it or its run.

        Inside a cycle, for example in a hook, do not wait.
        """
        if self._parts.requests.is_inside:
            return
        for session in tuple(self._services.sessions.by_key.values()):
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
            return str((await self._services.runs.wait(about, 0.0)).run_id)
        except LookupError:
            memory: DurableStore = self._services.memory
            record = await memory.cycle(about) if has(memory, DurableStore.cycles, DurableStore.cycle) else None
            if record is None:
                raise
            return record.cycle_id


def _tried_at(item: Any) -> float:
    at = item.get("tried_at", item.get("at")) if isinstance(item, dict) else None  # "at" in rows of earlier versions
    return float(at) if isinstance(at, (int, float)) else 0.0


def attach(agent: Attaching) -> Learning:
    """Attach what the agent learns, and return it."""
    learning = Learning(agent.services)
    agent.load(learning.load)
    agent.close(learning.save)
    agent.task("abilities", learning.follow)
    return learning
