"""The hooks at the start and the end of sessions. A session can outlast cycles and processes.

A session starts with its first run that will have a transcript entry. It ends when its transcript is deleted, when it
had no message for `sessions.idle` seconds, when it is reset, or when the agent stops. A session that an earlier process
started does not start again. Without such hooks this module does nothing.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Literal

from spar.clock import Timer
from spar.health.error_reporting import ErrorReporter
from spar.hooks import HookContext
from spar.loop.core import Core, Requests
from spar.runs.transcripts import SessionTranscripts

#: The most started sessions that are remembered. Beyond it the one that was quiet longest ends as idle.
MOST = 10_000

Reason = Literal["stop", "idle", "forgotten", "reset", "daily"]


class SessionHooks:
    """The start and end hooks of one agent's sessions. Args: is_at_work: whether a session exists and has work."""

    __slots__ = ("_begun", "_core", "_is_at_work", "_reports", "_requests", "_timer", "_transcripts", "_written")

    def __init__(self, core: Core, requests: Requests, reports: ErrorReporter, transcripts: SessionTranscripts,
                 is_at_work: Callable[[str], bool]) -> None:  # fmt: skip
        self._core, self._requests, self._reports = core, requests, reports
        self._transcripts, self._is_at_work = transcripts, is_at_work
        #: The started sessions with the time of their last message (monotonic seconds), the quietest first; and those
        #: of them that have a transcript.
        self._begun: OrderedDict[str, float] = OrderedDict()
        self._written: dict[str, None] = {}
        self._timer: Timer | None = None

    async def run_begins(self, session: str) -> None:
        """Call the hooks at `session_start` if this run is the first of its session."""
        if self._core.hooks.used.isdisjoint(("session_start", "session_end")):
            return
        has_transcript = await self._transcripts.has(session)
        if session in self._written and not has_transcript:
            await self._end(session, "forgotten")
        is_new = session not in self._begun and not has_transcript
        if has_transcript:
            self._written[session] = None
        self._touch(session)
        if is_new:
            await self._ask(HookContext("session_start", self._core.name, session, session))
        while len(self._begun) > MOST:
            await self._end(next(iter(self._begun)), "idle")

    def run_ended(self, session: str) -> None:
        """Note the time of activity in a session."""
        if session in self._begun:
            self._touch(session)

    async def was_reset(self, session: str, reason: Reason) -> None:
        """Call the hooks at `session_end` after a reset: the next run begins a new conversation.

        After an automatic reset (idle, daily) nothing is called for a session that is not known here: an idle timeout
        or the stop of an earlier process may have called the hooks already.
        """
        is_known = session in self._begun
        self._drop(session)
        if is_known or reason == "reset":
            await self._tell_end(session, reason)

    async def end_all(self) -> None:
        """Call the hooks at `session_end` for all started sessions, because the agent stops."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await asyncio.gather(*[self._end(session, "stop") for session in list(self._begun)])

    def _touch(self, session: str) -> None:
        self._begun[session] = self._core.clock.monotonic()
        self._begun.move_to_end(session)
        self._arm()

    def _arm(self) -> None:
        idle = self._core.settings.sessions.idle
        if not idle or self._timer is not None or not self._begun:
            return
        due = next(iter(self._begun.values())) + idle
        self._timer = self._core.clock.call_at(due, self._look)

    def _look(self) -> None:
        """End the sessions that were idle for long enough and have no work."""
        self._timer = None
        idle = self._core.settings.sessions.idle
        now = self._core.clock.monotonic()
        while idle and self._begun:
            session, last = next(iter(self._begun.items()))
            if last + idle > now:
                break
            if self._is_at_work(session):
                self._begun[session] = now
                self._begun.move_to_end(session)
                continue
            self._drop(session)
            self._requests.in_background(self._tell_end(session, "idle"), "end of a session of")
        self._arm()

    async def _end(self, session: str, reason: Reason) -> None:
        self._drop(session)
        await self._tell_end(session, reason)

    def _drop(self, session: str) -> None:
        self._begun.pop(session, None)
        self._written.pop(session, None)

    async def _tell_end(self, session: str, reason: Reason) -> None:
        await self._ask(HookContext("session_end", self._core.name, session, session, reason=reason))

    async def _ask(self, ctx: HookContext) -> None:
        if ctx.point in self._core.hooks.used:
            await self._reports.run_hooks(ctx)
