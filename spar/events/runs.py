"""Events of runs, their answers, and the conversations that they belong to."""

from __future__ import annotations

from typing import Any, Literal

from spar.events.event import Event
from spar.types import RunUsage


class RunAccepted(Event):
    """A message was accepted and has a run."""

    run_id: str
    session: str


class RunStarted(Event):
    """A run has begun its first cycle."""

    run_id: str
    session: str


class RunEnded(Event):
    """A run has ended; this event comes once and last. `reply` is the text for people, `silent` is True if the run
    decided to send no reply, `usage` is the amount it used."""

    run_id: str
    status: str
    error: str = ""
    output: Any = None
    reply: str | None = None
    silent: bool = False
    usage: RunUsage = RunUsage()


class MessageOutcome(Event):
    """A message was assigned to a run: `outcome` is `started queued steered collected interrupting dropped`."""

    run_id: str
    outcome: str


class AssistantDelta(Event):
    """A piece of an answer was written; after `reset` the earlier pieces are void and the answer is written anew. With
    `ends` (and no text) the text so far is complete: calls follow."""

    run_id: str
    text: str
    reset: bool = False
    ends: bool = False


class ReasoningDelta(Event):
    """A piece of a model's reasoning before its answer, if `runs.reasoning` enables it; `request` counts the run's
    requests. After `reset` the earlier pieces of this request are void."""

    run_id: str
    text: str
    request: int = 1
    reset: bool = False


class MessageSent(Event):
    """People were sent a text; `route` is the destination. `kind`: "answer" of a run; "note" of a tool; "verbose", a
    line about a call; "reasoning", the model's reasoning before the answer that follows. `part` numbers the blocks of
    an answer that is sent in several (0: it is sent whole); all of them are `is_answer`."""

    run_id: str
    session: str
    route: str
    text: str
    is_answer: bool = False
    kind: Literal["answer", "note", "verbose", "reasoning"] = "note"
    part: int = 0


class RepetitionNoticed(Event):
    """A run did the same `times` times without anything new."""

    run_id: str
    message: str
    times: int = 0


class CompactionStarted(Event):
    """A transcript is being shortened by a summary; `reason` is `overflow` or `threshold`."""

    session: str
    run_id: str = ""
    reason: str = ""


class CompactionCompleted(Event):
    """The summary of a transcript has ended; `completed` is False if it failed; `will_retry`: the request is made
    again."""

    session: str
    run_id: str = ""
    completed: bool = True
    will_retry: bool = False
    error: str = ""


class SessionReset(Event):
    """A conversation of a session has ended, and the next message begins a new one. `session_id` is that of the new one
    (the session's key and the `ordinal` of the conversation); `reason` is "reset" (by somebody, `by`), "idle" or
    "daily"; `runs` are those that were ended with it."""

    session: str
    session_id: str
    ordinal: int
    reason: str = "reset"
    by: str = ""
    runs: tuple[str, ...] = ()
