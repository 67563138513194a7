"""Events of models and their requests."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from spar.events.event import Event


class ModelStateChanged(Event):
    """A model gets no requests for `retry_after` seconds after faults of its provider (`open`), or it answers again
    (`closed`)."""

    model: str
    state: Literal["closed", "open"]
    reason: str = ""
    retry_after: float | None = None


class ModelRequested(Event):
    """A request to a model begins; `request` is the whole request as it is sent (`planning.Request`). `tokens` is an
    estimate, `attempt` counts from 1 within a cycle, `digest` identifies the text that the model reads."""

    cycle_id: str
    run_id: str | None = None
    digest: str = ""
    tokens: int = 0
    attempt: int = 1
    request: Any = None


class ModelAnswered(Event):
    """A request to a model has ended. `model` got the request, `answered_by` answered (`answered_as` is its provider's
    name for it), `finish` is the reason for the end in the provider's word, `error` is the kind of fault if there was
    no answer; `cost` is in millionths, None if no price is known. `digest` and `attempt` are those of its
    `ModelRequested`, `number` counts the requests of its planner."""

    cycle_id: str
    started_at: datetime
    duration: float
    run_id: str | None = None
    digest: str = ""
    attempt: int = 1
    purpose: str = ""
    model: str = ""
    answered_by: str = ""
    answered_as: str = ""
    finish: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: int | None = None
    error: str = ""
    number: int = 0
