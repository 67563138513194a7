"""Resets: a session begins anew, and what was begun in its last conversation ends.

First it is told to the journal, in one piece: the runs of the session have ended, what the run in hand adds to the
transcript, the entry of the reset, the number of the next conversation. Then the phase in hand is cut and people are
told. If the process dies before that is on disk, nothing of it has happened; if it dies after, nothing of the old
conversation goes on. Calls that wait for a person beyond the end of their run are void before all that: an approval
that comes later must not have them run in the next conversation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct

from spar import events
from spar.errors import ConflictError, NoRoomError
from spar.failpoints import crashpoint
from spar.journal.closing import begun
from spar.ports.optional import EndsConversations, offers
from spar.records.journal import Unfinished
from spar.records.session import Reset, SessionRecord
from spar.records.transcript import Entry
from spar.runs.commands import is_command
from spar.runs.run import End, Run
from spar.runs.transcripts import entries_of
from spar.session.control.run_stops import RunStops
from spar.session.control.session_records import SessionRecords
from spar.session.parts import SessionParts
from spar.session.session import Session
from spar.session.sessions import Sessions
from spar.types import replace

#: How the runs of a conversation end that is over.
_END = End("error", "reset")


class ToldReset(Struct, frozen=True):
    """A reset that the journal was told of: the session as it is then, and what is still to settle."""

    record: SessionRecord
    settling: asyncio.Task[None] | None = None


class Resets:
    """Resets of the sessions of one agent.

    Args: demand: raises where nothing can be asked of the agent now.
    """

    __slots__ = ("_demand", "_going", "_parts", "_records", "_sessions", "_stops")

    def __init__(self, parts: SessionParts, sessions: Sessions, records: SessionRecords, stops: RunStops,
                 demand: Callable[[str], None]) -> None:  # fmt: skip
        self._parts, self._sessions, self._records, self._stops = parts, sessions, records, stops
        self._demand = demand
        self._going: dict[str, asyncio.Task[ToldReset]] = {}

    async def reset(self, key: str, by: str = "") -> SessionRecord:
        """Begin a session anew, and return it; where nothing was said since it was begun, it stays as it is.

        Returns once all of it is on disk and the run in hand has ended; inside a cycle or a handler it does not wait.
        Raises: LookupError for a session that nothing was said in, ConflictError where the memory keeps no sessions.
        """
        self._demand("reset a session")
        is_inside = self._parts.requests.is_inside
        task = self._going.get(key)
        if task is None:
            task = self._parts.requests.in_background(self._tell(key, by), "reset of a session of")
            self._going[key] = task
            task.add_done_callback(lambda _: self._going.pop(key))
        told = await asyncio.shield(task)
        if told.settling is not None and not is_inside:
            await asyncio.shield(told.settling)
        return told.record

    async def make_void(self, key: str) -> None:
        """Have the actor forget what runs of a session have left for later. Raises: what the actor raises."""
        actor = self._parts.setup.modules["act"].part
        if offers(actor, EndsConversations):
            await actor.end_conversation(key)

    async def renewed(self, reset: Reset) -> None:
        """Say that a message has found its conversation over, and has begun a new one."""
        await self._say(reset, ())

    # -- telling it

    async def _tell(self, key: str, by: str) -> ToldReset:
        """Tell the journal of a reset, and cut what is in hand: in one step of the event loop."""
        parts, record = self._parts, await self._records.get(key)
        if not self._runs(key) and not await parts.transcripts.has(key):
            return ToldReset(record)
        await self.make_void(key)
        self._demand("reset a session")  # time has passed
        runs, journal = self._runs(key), parts.work.journal
        if journal is not None and parts.agent_state.sessions is None:
            raise ConflictError("the memory keeps no sessions: none of them can begin anew")
        if journal is not None and journal.refusal:
            raise NoRoomError(journal.refusal)
        clock = parts.core.clock
        reset = Reset(clock.new_id(), key, record.ordinal, clock.now(), "reset", by)
        session = self._sessions.by_key.get(key)
        entries: list[Entry] = []
        for run in runs:
            if run.started_at is not None and run.into is None:
                entries += entries_of(run, None, _END, parts.setup.tools(), reset.at)
        if journal is None:
            parts.transcripts.keep(key, (*entries, reset.entry))
        else:
            answers = {run.id: run.status_at(_END, reset.at) for run in runs if run.id in parts.work.in_hand}
            cut = None if session is None else _without_words(session, runs)
            journal.reset(parts.core.name, reset, entries, answers, cut)
        record = self._records.begin_anew(record, reset)
        whole = [(run, self._stops.take_out(run, _END.error)) for run in runs if run.into is None]
        for run, is_cut in whole:
            if not is_cut:  # the next cycle of its session is not its any more
                self._sessions.of(key).leave(run)
        if session is not None:
            session.inbox.take_dropped()
        crashpoint("session.reset_told")
        settling = parts.requests.in_background(self._settle(reset, whole, runs), "reset of a session of")
        return ToldReset(record, settling)

    def _runs(self, key: str) -> list[Run]:
        """Return the runs of a session that a reset ends; what people command is no part of a conversation."""
        session = self._sessions.by_key.get(key)
        return [
            run for run in self._parts.runs.open_in(key)
            if not is_command(run.message) and (session is None or not session.is_answering(run))
        ]  # fmt: skip

    # -- what follows

    async def _settle(self, reset: Reset, whole: list[tuple[Run, bool]], runs: list[Run]) -> None:
        """Wait until a reset is on disk, then see its runs end and tell people. Raises: SparError when the disk fails;
        what it takes from the disk again is told all the same."""
        parts = self._parts
        try:
            if parts.work.journal is not None:
                await parts.work.journal.safe()
            crashpoint("session.reset_kept")
        finally:
            await asyncio.gather(*[self._stops.settle(run, _END.error, is_cut=is_cut) for run, is_cut in whole])
            phases = self._sessions.of(reset.session).phases if whole else None
            for run, _ in whole:
                if phases is not None and run.started_at is not None:
                    await phases.abandon(run.id)
            await self._say(reset, tuple(run.id for run in runs))
            if (session := self._sessions.by_key.get(reset.session)) is not None:
                self._sessions.retire(session)

    async def _say(self, reset: Reset, runs: tuple[str, ...]) -> None:
        ordinal = reset.ordinal + 1
        parts = self._parts
        parts.core.log.info("session begins anew", agent=parts.core.name, session=reset.session, ordinal=ordinal,
                            reason=reset.reason, by=reset.by, runs=len(runs))  # fmt: skip
        if parts.core.events.wanted[events.SessionReset]:
            begun_id = f"{reset.session}#{ordinal}"
            parts.core.events.publish(events.SessionReset(session=reset.session, session_id=begun_id, ordinal=ordinal,
                                                          reason=reset.reason, by=reset.by, runs=runs))  # fmt: skip
        await parts.session_hooks.was_reset(reset.session, reset.reason)


def _without_words(session: Session, runs: list[Run]) -> Unfinished | None:
    """Return the cycle in hand of a run that ends, as it is to be found should the process die: what people said in the
    run is not dealt with again, what sensors brought is."""
    cycle = session.cycle
    if cycle is None or not cycle.is_journalled or not any(session.is_pursuing(run) for run in runs):
        return None
    said = {each.id for run in runs for each in (run.message, *run.said)} | {each.id for each in cycle.new_messages}
    said |= {part.id for run in runs for part in run.message.evidence}
    left = tuple(each for each in cycle.perceptions if each.id not in said)
    return replace(cycle.resumed, perceptions=left) if cycle.resumed is not None else begun(cycle, left)
