"""Resets: a session begins a new conversation, and all work of the last one ends.

One journal transaction holds the whole reset: the ends of the session's runs, the transcript entries of the current
run, the reset entry, and the number of the next conversation. Then the current phase is cancelled and the reset is
published. If the process dies before the transaction is on disk, nothing has happened; if it dies after, no work of the
old conversation continues. Calls that wait for a person beyond the end of their run are voided before all that, so that
a later approval does not run them in the next conversation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct

from spar import events, facts
from spar.decisions.finish import Ended, ended_by_reset
from spar.errors import ConflictError, NoRoomError
from spar.failpoints import crashpoint
from spar.ports.optional.act import EndsConversations
from spar.ports.optional.any_part import offers
from spar.records.session import Reset, SessionRecord
from spar.records.transcript import Entry
from spar.runs.run import End, Run
from spar.runs.transcripts import entries_of
from spar.session.control.run_stops import RunStops
from spar.session.control.session_records import SessionRecords
from spar.session.parts import SessionParts
from spar.session.sessions import Sessions
from spar.state.work import SessionState

#: The end of the runs of a conversation that was reset.
_END = End("error", "reset")


class JournalledReset(Struct, frozen=True):
    """Reset that was given to the journal: the new record of the session, and the task that completes the reset."""

    record: SessionRecord
    settling: asyncio.Task[None] | None = None


class Resets:
    """Resets of the sessions of one agent.

    Args: demand: raises if the agent accepts no requests now.
    """

    __slots__ = ("_demand", "_parts", "_records", "_resetting", "_sessions", "_stops")

    def __init__(self, parts: SessionParts, sessions: Sessions, records: SessionRecords, stops: RunStops,
                 demand: Callable[[str], None]) -> None:  # fmt: skip
        self._parts, self._sessions, self._records, self._stops = parts, sessions, records, stops
        self._demand = demand
        self._resetting: dict[str, asyncio.Task[JournalledReset]] = {}

    async def reset(self, key: str, by: str = "") -> SessionRecord:
        """Reset a session and return its record. A session without messages since the last reset stays as it is.

        Return once the reset is on disk and the current run has ended; inside a cycle or a handler do not wait for
        that.
        Raises: LookupError for a session without messages, ConflictError if the memory keeps no sessions.
        """
        self._demand("reset a session")
        if (owner := self._parts.core.owner_of(key)) is not None:
            await owner.ask(key, "reset", by=by)
            return await self._records.get(key)
        is_inside = self._parts.requests.is_inside
        task = self._resetting.get(key)
        if task is None:
            task = self._parts.requests.in_background(self._begin(key, by), "reset of a session of")
            self._resetting[key] = task
            task.add_done_callback(lambda _: self._resetting.pop(key))
        reset = await asyncio.shield(task)
        if reset.settling is not None and not is_inside:
            await asyncio.shield(reset.settling)
        return reset.record

    async def void_calls(self, key: str) -> None:
        """Have the actor drop the waiting calls of a session's runs. Raises: errors of the actor."""
        actor = self._parts.setup.modules["act"].part
        if offers(actor, EndsConversations):
            await actor.end_conversation(key)

    async def publish_automatic_reset(self, reset: Reset) -> None:
        """Publish a reset that a message caused because its conversation was over by itself."""
        await self._publish(reset, ())

    # -- into the journal

    async def _begin(self, key: str, by: str) -> JournalledReset:
        """Give a reset to the journal, and cancel the current phase, in one step of the event loop."""
        parts, record = self._parts, await self._records.get(key)
        if not self._ended(key).runs and not await parts.conversations.transcripts.has(key):
            return JournalledReset(record)
        await self.void_calls(key)
        self._demand("reset a session")  # the state may have changed during the waits
        ended = self._ended(key)
        runs = [parts.runs.get(run) for run in ended.runs]
        if parts.agent_state.has_journal and parts.agent_state.sessions is None:
            raise ConflictError("the memory keeps no sessions: none of them can begin anew")
        if refusal := parts.recovery.journal.refusal:
            raise NoRoomError(refusal)
        clock = parts.core.clock
        reset = Reset(clock.new_id(), key, record.ordinal, clock.now(), "reset", by)
        entries: list[Entry] = []
        for run in runs:
            if run.started_at is not None and not run.state.into:
                entries += entries_of(run, None, _END, parts.setup.tools(), reset.at)
        parts.conversations.transcripts.keep(key, (*entries, reset.entry))
        for run in runs:
            parts.recovery.write_end(run, _END)
        parts.core.ledger.tell(facts.ConversationReset(session=key, reset=reset, entries=tuple(entries), cut=ended.cut))
        record = self._records.record_reset(record, reset)
        unabsorbed = [(run, self._stops.take_out(run, _END.error)) for run in runs if not run.state.into]
        for run, is_cut in unabsorbed:
            if not is_cut:  # its session must not continue it in the next cycle
                self._sessions.of(key).leave(run, _END)
        crashpoint("session.reset_told")
        settling = parts.requests.in_background(self._settle(reset, unabsorbed, runs), "reset of a session of")
        return JournalledReset(record, settling)

    def _ended(self, key: str) -> Ended:
        """Return the work that ends with the conversation of a session."""
        return ended_by_reset(self._parts.core.ledger.states.get(key) or SessionState(key))

    # -- after the journal

    async def _settle(self, reset: Reset, unabsorbed: list[tuple[Run, bool]], runs: list[Run]) -> None:
        """Wait until a reset is on disk, then end its runs and publish it.

        Raises: SparError if the journal fails; the reset is published also then.
        """
        parts = self._parts
        try:
            await parts.recovery.journal.safe()
            crashpoint("session.reset_kept")
        finally:
            await asyncio.gather(*[self._stops.settle(run, _END.error, is_cut=is_cut) for run, is_cut in unabsorbed])
            session = self._sessions.of(reset.session) if unabsorbed else None
            for run, _ in unabsorbed:
                if session is not None and run.started_at is not None:
                    await session.abandon(run.id)
            await self._publish(reset, tuple(run.id for run in runs))
            if (session := self._sessions.by_key.get(reset.session)) is not None:
                self._sessions.retire(session)

    async def _publish(self, reset: Reset, runs: tuple[str, ...]) -> None:
        ordinal = reset.ordinal + 1
        parts = self._parts
        parts.core.log.info("session begins anew", agent=parts.core.name, session=reset.session, ordinal=ordinal,
                            reason=reset.reason, by=reset.by, runs=len(runs))  # fmt: skip
        if parts.core.events.wanted[events.SessionReset]:
            begun_id = f"{reset.session}#{ordinal}"
            parts.core.events.publish(events.SessionReset(session=reset.session, session_id=begun_id, ordinal=ordinal,
                                                          reason=reset.reason, by=reset.by, runs=runs))  # fmt: skip
        await parts.conversations.hooks.was_reset(reset.session, reset.reason)
