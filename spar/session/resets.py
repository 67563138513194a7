"""Stops of runs; resets: a session begins a new conversation, and all work of the last one ends; deletion of sessions.

A run is stopped where it is: in the queue, in a phase, or between two cycles.

One journal transaction holds the whole reset: the ends of the session's runs, the transcript entries of the current
run, the reset entry, and the number of the next conversation. Then the current phase is cancelled and the reset is
published. If the process dies before the transaction is on disk, nothing has happened; if it dies after, no work of the
old conversation continues. Calls that wait for a person beyond the end of their run are voided before all that, so that
a later approval does not run them in the next conversation.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from spar import events, facts
from spar.data.reply import End
from spar.decisions.finish import Ended, ended_by_reset
from spar.errors import ConflictError, NoRoomError
from spar.failpoints import crashpoint
from spar.ports.any_part import KeepsSessions, has
from spar.ports.phases import OptionalActor
from spar.protocols.host import own_parts
from spar.records.session import Reset, SessionRecord
from spar.records.transcript import Entry
from spar.runs.ends import FORGOTTEN
from spar.runs.runs import Run
from spar.runs.transcripts import entries_of
from spar.session.parts import SessionParts
from spar.session.session_records import SessionRecords
from spar.session.sessions import Session, Sessions
from spar.state.apply import SessionState
from spar.threads import Threads

#: The end of the runs of a conversation that was reset.
_END = End("error", "reset")


class RunStops:
    """Stops of the runs of one agent."""

    __slots__ = ("_parts", "_sessions", "_setup")

    def __init__(self, parts: SessionParts, sessions: Sessions) -> None:
        self._parts, self._sessions, self._setup = parts, sessions, parts.setup

    async def abort(self, run: Run) -> None:
        """End a run that a person aborts, and have the actor drop its waiting calls."""
        parts = self._parts
        if run.ended is not None:
            return
        parts.recovery.demand_ready("abort a run")
        await self.end_with_error(run, "aborted")
        if run.ended is None and not parts.requests.is_inside:
            parts.recovery.demand_ready("abort a run")  # the agent may have stopped before the run ended
        await parts.core.request(self._setup.modules["act"], OptionalActor.abandon, run.id)

    async def forget_ended(self) -> None:
        """Have an actor that can do so close questions and drop waiting calls whose cycle or run ended before this
        process began.

        An earlier process may have died between that end and this step. Raises: errors of reading the ends of runs.
        """
        actor = self._parts.setup.modules["act"].part
        await actor.close_questions()
        for run_id in actor.waiting_runs():
            try:
                status = await self._parts.recovery.status_of(run_id)
            except LookupError:
                continue  # its end was deleted, or it belongs to another journal
            if status.status == "error" and status.error in FORGOTTEN:
                await actor.abandon(run_id)

    def late(self, run: Run, why: str) -> None:
        """End a run that has reached its time limit. While the agent is not running, the verdict after its next cycle
        does so."""
        if self._parts.core.state in ("running", "pausing"):
            self.in_background(run, why)

    def in_background(self, run: Run, reason: str) -> None:
        """Start to end a run, without waiting for its end."""
        self._parts.requests.in_background(self.end_with_error(run, reason), "ending of a run")

    async def end_with_error(self, run: Run, reason: str) -> None:
        """End a run with this error, wherever it is: in the queue, in a phase, between two cycles."""
        session = self._sessions.of(run.session)
        if session.is_answering(run):  # it has ended, and its answer cannot change
            if not self._parts.requests.is_inside:
                await self._parts.runs.wait(run.id, None)
            return
        await self.settle(run, reason, is_cut=self.take_out(run, reason))

    def take_out(self, run: Run, reason: str) -> bool:
        """Remove a run from the queue, or cancel the current phase if it works for the run; return whether a phase is
        cancelled."""
        session = self._sessions.of(run.session)
        is_waiting = run.state.place is not None
        if is_waiting and session.is_asking:  # a hook decides now about the cycle that would begin it
            session.cancel_phase(reason)
        if is_waiting or session.cycle is None or not session.is_pursuing(run):
            return False
        if session.stop_reason:
            session.stop_reason = reason  # already cancelled, for another reason
        else:
            session.cancel_phase(reason)
        return True

    async def settle(self, run: Run, reason: str, *, is_cut: bool) -> None:
        """Complete the end of a run after `take_out`. Args: is_cut: a phase that worked for it was cancelled."""
        parts, session, end = self._parts, self._sessions.of(run.session), End("error", reason)
        if is_cut and session.cycle is not None:
            grace = self._setup.steps[session.cycle.phase].grace
            if (await parts.runs.wait(run.id, grace)).status == "timeout" and not session.is_answering(run):
                session.runner.abandon()
                await parts.runs.wait(run.id, grace)
            if session.is_answering(run):  # its end waits for the disk
                await parts.runs.wait(run.id, None)
        if parts.runs.find(run.id) is not run and not parts.core.has(run.session):
            return  # another node goes on with it
        is_to_write = run.ended is None and run.id in parts.recovery.items(run.session)
        if is_to_write and not parts.recovery.is_ready:
            return  # a stop came first: without its end in the journal it continues at the next start
        session.leave(run, end)
        ending = self._end(run, end, session)
        if run.ended is not None:  # nothing to write
            await ending
        else:  # no session will end it, so it must end even if the caller stops waiting
            await asyncio.shield(parts.requests.in_background(ending, "ending of a run"))

    async def _end(self, run: Run, end: End, session: Session) -> None:
        """Wait until the end of a run that its session has left is on disk, then publish it."""
        await self._parts.recovery.safe()
        self._parts.runs.end(run, end)
        self._sessions.left(session)


class JournalledReset(Struct, frozen=True):
    """Reset that was given to the journal: the new record of the session, and the task that completes the reset."""

    record: SessionRecord
    settling: asyncio.Task[None] | None = None


class Resets:
    """Resets and deletions of the sessions of one agent.

    Args: forget: has what is attached delete what it keeps of a session, as channels the addresses it talked with.
    """

    __slots__ = ("_forget_attached", "_parts", "_records", "_resetting", "_sessions", "_stops")

    def __init__(self, parts: SessionParts, sessions: Sessions, records: SessionRecords, stops: RunStops,
                 forget: Callable[[str], Awaitable[None]]) -> None:  # fmt: skip
        self._parts, self._sessions, self._records, self._stops = parts, sessions, records, stops
        self._forget_attached = forget
        self._resetting: dict[str, asyncio.Task[JournalledReset]] = {}

    async def reset(self, key: str, by: str = "") -> SessionRecord:
        """Reset a session and return its record. A session without messages since the last reset stays as it is.

        Return once the reset is on disk and the current run has ended; inside a cycle or a handler do not wait for
        that.
        Raises: LookupError for a session without messages, ConflictError if the memory keeps no sessions.
        """
        self._parts.demand_open("reset a session")
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
        if has(actor, OptionalActor.end_conversation):
            await actor.end_conversation(key)

    # -- into the journal

    async def _begin(self, key: str, by: str) -> JournalledReset:
        """Give a reset to the journal, and cancel the current phase, in one step of the event loop."""
        parts, record = self._parts, await self._records.get(key)
        if not self._ended(key).runs and not await parts.conversations.transcripts.has(key):
            return JournalledReset(record)
        await self.void_calls(key)
        self._parts.demand_open("reset a session")  # the state may have changed during the waits
        ended = self._ended(key)
        runs = [parts.runs.get(run) for run in ended.runs]
        if parts.agent_state.has_journal and self._records.store is None:
            raise ConflictError("the memory keeps no sessions: none of them can begin anew")
        if refusal := parts.core.ledger.journal.refusal:
            raise NoRoomError(refusal)
        clock = parts.core.clock
        reset = Reset(clock.new_id(), key, record.ordinal, clock.now(), "reset", by)
        entries: list[Entry] = []
        for run in runs:
            if run.started_at is not None and not run.state.into:
                entries += entries_of(run, None, None, _END, parts.setup.tools, reset.at)
        parts.conversations.transcripts.keep(key, (*entries, reset.entry))
        for run in runs:
            parts.recovery.write_end(run, run.status_at(_END, reset.at))
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
            await parts.core.ledger.journal.safe()
            crashpoint("session.reset_kept")
        finally:
            await asyncio.gather(*[self._stops.settle(run, _END.error, is_cut=is_cut) for run, is_cut in unabsorbed])
            for run, _ in unabsorbed:
                if run.started_at is not None:
                    await parts.core.request(parts.setup.modules["act"], OptionalActor.abandon, run.id)
            await self.publish(reset, tuple(run.id for run in runs))
            if (session := self._sessions.by_key.get(reset.session)) is not None:
                self._sessions.retire(session)

    async def publish(self, reset: Reset, runs: tuple[str, ...] = ()) -> None:
        """Publish a reset, which ended these runs."""
        ordinal = reset.ordinal + 1
        parts = self._parts
        parts.core.log.info("session begins anew", agent=parts.core.name, session=reset.session, ordinal=ordinal,
                            reason=reset.reason, by=reset.by, runs=len(runs))  # fmt: skip
        if parts.core.events.wanted[events.SessionReset]:
            begun_id = f"{reset.session}#{ordinal}"
            parts.core.events.publish(events.SessionReset(session=reset.session, session_id=begun_id, ordinal=ordinal,
                                                          reason=reset.reason, by=reset.by, runs=runs))  # fmt: skip
        await parts.conversations.hooks.was_reset(reset.session, reset.reason)

    # -- deletion

    async def forget(self, key: str, by: str = "") -> int:
        """End the work of a session and delete its data; return how many rows were deleted.

        A deletion that was interrupted, for example by a kill, continues when it is requested again. Messages that come
        meanwhile are refused. An answer that waits to be sent on a channel is sent first, and deleted then.
        Raises: LookupError for a session without messages; ConflictError if a symbolic link stands in the place of the
        folders of sessions; TransientError.
        """
        await self._records.get(key)
        if (owner := self._parts.core.owner_of(key)) is not None:
            deleted: int = await owner.ask(key, "forget", by=by)
            self._parts.runs.forget(key)
            return deleted
        async with self._records.forgetting.refusing(key):
            await self._records.get(key)
            return await self._forget(key, by)

    async def _forget(self, key: str, by: str) -> int:
        """Delete a session while it refuses messages; return how many rows were deleted."""
        parts, store = self._parts, self._records.store
        if any(not run.state.is_command for run in parts.runs.open_in(key)):
            await self.reset(key, by)
        await self.void_calls(key)
        for module in parts.setup.modules.values():
            if has(module.part, KeepsSessions.forget_session):
                await module.part.forget_session(key)
        await self._forget_attached(key)
        if parts.home is not None:  # also files from a time when each session had a folder
            folder = Path(parts.home.workspace, *own_parts(key))
            await Threads("forgetting", parts.core.clock).run(_remove, folder)
        deleted = 0 if store is None else await store.forget(parts.core.name, key)
        self._records.forget(key)
        parts.conversations.transcripts.forget(key)
        parts.runs.forget(key)
        parts.core.log.info("session forgotten", agent=parts.core.name, session=key, by=by, rows=deleted)
        return deleted


def _remove(folder: Path) -> None:
    """Remove a folder with its contents; links are removed, not followed. Raises: OSError, ConflictError."""
    if folder.parent.is_symlink():  # perhaps put there by a tool, to the sessions of others
        raise ConflictError(f"{folder.parent} is a symbolic link, which is not followed: take it away first")
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)
