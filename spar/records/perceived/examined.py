"""Results of sending perceptions through a pipeline for inspection."""

from __future__ import annotations

from msgspec import Struct

from spar.types import Perception


class Examined(Struct, frozen=True):
    """Perception and its result.

    `result` is the perception that came out, None if none came out for it alone; then `stage` removed it, for this
    `reason`, and `into` is the id of the perception that replaces it, if there is one.
    """

    given: Perception
    result: Perception | None = None
    stage: str = ""
    reason: str = ""
    into: str = ""
