"""Perceptions that were sent through a pipeline for a look: what became of each, and why."""

from __future__ import annotations

from msgspec import Struct

from spar.types import Perception


class Examined(Struct, frozen=True):
    """One perception and what became of it.

    `result` is what came out in its place, None if it did not come out by itself; then `stage` took it out, for this
    `reason`, and `into` is the id of the one that stands for it, if one does.
    """

    given: Perception
    result: Perception | None = None
    stage: str = ""
    reason: str = ""
    into: str = ""
