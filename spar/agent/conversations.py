"""Conversations of an agent: what only messages need. An agent that gets none makes none of it."""

from __future__ import annotations

from collections.abc import Callable

from spar.agent.attachments import Attachments
from spar.agent.lifecycle import Lifecycle
from spar.agent.submission import Submission
from spar.journal.feedback import GivenFeedback
from spar.protocols import Home
from spar.runs.outbox import RunMessages
from spar.runs.run import End, Run
from spar.runs.transcripts import SessionTranscripts
from spar.session.control.commands import Commands
from spar.session.control.resets import Resets
from spar.session.control.run_stops import RunStops
from spar.session.control.session_control import SessionControl
from spar.session.control.session_records import SessionRecords
from spar.session.parts import SessionParts
from spar.session.session_hooks import SessionHooks
from spar.session.sessions import Sessions


class Conversations:
    """Parts of one agent for its messages: their submission, commands, answers and transcripts, and its sessions as
    people see them."""

    __slots__ = ("commands", "control", "feedback", "hooks", "outbox", "parts", "records", "resets", "sessions",
                 "stops", "submission", "transcripts")  # fmt: skip

    def __init__(self, parts: SessionParts, sessions: Sessions, lifecycle: Lifecycle, attachments: Attachments,
                 home: Home | None, demand: Callable[[str], None]) -> None:  # fmt: skip
        core, state = parts.core, parts.agent_state
        self.parts, self.sessions = parts, sessions
        self.transcripts = SessionTranscripts(
            core.name, core.clock, parts.requests, lambda: state.transcripts, parts.setup
        )
        self.outbox = RunMessages(core, parts.requests, parts.reports, parts.runs, state)
        self.outbox.interim.wants_blocks = lambda run: not attachments.has_growing(run.id)
        self.hooks = SessionHooks(core, parts.requests, parts.reports, self.transcripts, sessions.by_key)
        self.feedback = GivenFeedback(core, parts.setup, state, parts.runs, parts.requests, sessions.by_key)
        self.stops = RunStops(parts, sessions)
        self.records = SessionRecords(core, state, self.transcripts)
        self.resets = Resets(parts, sessions, self.records, self.stops, demand)
        self.control = SessionControl(parts, self.records, self.resets, home)
        self.control.forgets = attachments.forget
        self.commands = Commands(parts, self.records, self.control, self.resets, self.stops, self.feedback)
        self.submission = Submission(parts, sessions, lifecycle, self.stops, self.records, self.resets, self.commands)

    async def open(self) -> None:
        """Read what an earlier process has left of its conversations. Raises: errors of the store."""
        self.records.begin()
        await self.outbox.interim.restore()

    def run_ended(self, run: Run, end: End) -> None:
        """Send and transcribe the end of a run, as far as that was not done."""
        if not run.is_told:
            self.outbox.ended(run, end)
        self.outbox.interim.forget(run)
        if not run.is_transcribed:
            self.transcripts.run_ended(run, end)
