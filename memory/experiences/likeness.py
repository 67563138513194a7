"""Likeness of experiences, by which they are merged into one row with a count; pure functions.

Experiences are alike if they have the same session, situation (`Experience.key`), calls with their parameters, success,
texts apart from numbers, and words of people. Trusted and untrusted ones are never alike, nor imported ones and those
of this agent. An experience without a key is like no other, since its situation is unknown.
"""

from __future__ import annotations

from hashlib import blake2b
from operator import itemgetter

from memory.codec import encode
from spar.records.situations import wording
from spar.types import Experience

#: Most bytes of a body; a larger one is cut and marked.
MOST_BYTES = 32 << 20


def digest_of(experience: Experience, apart: str = "") -> bytes | None:
    """Return a digest that is equal for like experiences; None for one that is like no other.

    Args: apart: the origin of an imported experience, which keeps it apart from those of this agent; else "".
    """
    if not experience.key:
        return None
    words = blake2b(experience.said.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    calls = [(call.tool, sorted(call.params.items(), key=itemgetter(0))) for call in experience.calls]
    same = (
        experience.session,
        experience.key,
        experience.success,
        experience.trust,
        words,
        wording(experience.situation),
        calls,
        [call.success for call in experience.calls],
        apart,
    )
    return blake2b(encode(same, limit=MOST_BYTES).encode(), digest_size=16).digest()
