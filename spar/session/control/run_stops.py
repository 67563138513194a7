"""Stops of runs: each run is aborted where it is, in the queue, in a phase, or between two cycles."""

from __future__ import annotations

import asyncio

from spar.ports.optional.act import HoldsCalls
from spar.ports.optional.any_part import offers
from spar.runs.run import FORGOTTEN, End, Run
from spar.session.parts import SessionParts
from spar.session.session import Session
from spar.session.sessions import Sessions


class RunStops:
    """Stops of the runs of one agent."""

    __slots__ = ("_parts", "_sessions", "_setup")

    def __init__(self, parts: SessionParts, sessions: Sessions) -> None:
        self._parts, self._sessions, self._setup = parts, sessions, parts.setup

    async def abort(self, run: Run) -> None:
        """End a run that a person aborts, and have the actor drop its waiting calls."""
        parts = self._parts
        if run.status is not None:
            return
        parts.recovery.demand_ready("abort a run")
        session = self._sessions.of(run.session)
        await self.end_with_error(run, "aborted")
        if run.status is None and not parts.requests.is_inside:
            parts.recovery.demand_ready("abort a run")  # the agent may have stopped before the run ended
        await session.abandon(run.id)

    async def forget_ended(self) -> None:
        """Have the actor close questions and drop waiting calls whose cycle or run ended before this process began.

        An earlier process may have died between that end and this step. Raises: errors of reading the ends of runs.
        """
        actor = self._parts.setup.modules["act"].part
        if not offers(actor, HoldsCalls):
            return
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
            if (await parts.runs.wait(run.id, grace)).status == "timeout":
                session.runner.abandon()
                await parts.runs.wait(run.id, grace)
            if run.status is None and not parts.recovery.is_ready:
                return  # a stop came first: without its end in the journal it continues at the next start
        session.leave(run, end)
        ending = self._end(run, end, session)
        if run.status is not None:  # nothing to write
            await ending
        else:  # no session will end it, so it must end even if the caller stops waiting
            await asyncio.shield(parts.requests.in_background(ending, "ending of a run"))

    async def _end(self, run: Run, end: End, session: Session) -> None:
        """Wait until the end of a run that its session has left is on disk, then publish it."""
        await self._parts.recovery.safe()
        self._parts.runs.end(run, end)
        self._sessions.left(session)
