"""Closed sets of words: phases, outcomes, states of calls and actions, modes of messages, kinds of alerts."""

from __future__ import annotations

from typing import Literal

#: Readers of a model's reasoning: nobody; subscribers of a run's stream; these and the receiver of the reply.
Reasoning = Literal["off", "stream", "reply"]


Phase = Literal["sense", "plan", "act", "reflect"]
PHASES: tuple[Phase, ...] = ("sense", "plan", "act", "reflect")
Trust = Literal["trusted", "untrusted"]
Outcome = Literal["acted", "idle", "skipped", "degraded", "failed", "interrupted"]
OUTCOMES: tuple[Outcome, ...] = ("acted", "idle", "skipped", "degraded", "failed", "interrupted")
CallStatus = Literal["ok", "failed", "timeout", "denied", "skipped", "in_doubt", "cancelled"]
CALL_STATUSES: tuple[CallStatus, ...] = ("ok", "failed", "timeout", "denied", "skipped", "in_doubt", "cancelled")
ActionStatus = Literal["ok", "partial", "failed", "interrupted"]
ACTION_STATUSES: tuple[ActionStatus, ...] = ("ok", "partial", "failed", "interrupted")
OutputMethod = Literal["set", "merge", "assign", "push", "concat"]
METHODS: tuple[OutputMethod, ...] = ("set", "merge", "assign", "push", "concat")
QueueMode = Literal["followup", "steer", "collect", "interrupt"]
QUEUE_MODES: tuple[QueueMode, ...] = ("followup", "steer", "collect", "interrupt")
#: Kinds of alerts.
AlertKind = Literal[
    "stuck", "slow", "failing", "runs", "stalled", "blocked", "memory", "disk", "budget", "provider", "prompt",
    "cache", "sensor", "channel", "approval",
]  # fmt: skip
