"""Events of learning: from experiences, later feedback and examples."""

from __future__ import annotations

from spar.events.event import Event
from spar.types import Experience, FeedbackSource


class ExperienceStored(Event):
    """An experience was handed to the memory."""

    experience: Experience


class FeedbackTaken(Event):
    """Feedback on a run or a cycle was stored and is learnt from. `by` is its source: `person verify environment`."""

    about: str
    success: bool
    by: FeedbackSource
    why: str = ""


class ExampleTaught(Event):
    """A person has taught that a text has this label: `what` is "intent" or "kind"."""

    example: str
    what: str
    label: str
    text: str
    by: str = ""


class ExampleForgotten(Event):
    """A person has taken back an example that was taught."""

    example: str
    what: str
    label: str
    text: str
    by: str = ""
