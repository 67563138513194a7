"""Which experiences are alike, so that they are one row with a count; pure.

Alike are those of one session and one situation (`Experience.key`) in which the same was called with the same
parameters, ended equally well, and of which the same was told, but for numbers, and people had said the same. Trusted
and untrusted ones are never alike, nor what was imported and what was lived. One without a key is like no other: nobody
knows its situation.
"""

from __future__ import annotations

from hashlib import blake2b
from operator import itemgetter

from memory.codec.encoding import encode
from spar.records.abilities import wording
from spar.types import Experience

#: Bytes of a body; what is larger is cut, and marked.
MOST_BYTES = 32 << 20


def digest_of(experience: Experience, apart: str = "") -> bytes | None:
    """Return a digest that is equal for like experiences; None for one that is like no other.

    Args: apart: where it comes from, if that keeps it from being like what was lived.
    """
    if not experience.key:
        return None
    said = blake2b(experience.said.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    calls = [(call.tool, sorted(call.params.items(), key=itemgetter(0))) for call in experience.calls]
    same = (
        experience.session,
        experience.key,
        experience.success,
        experience.trust,
        said,
        wording(experience.situation),
        calls,
        [call.success for call in experience.calls],
        apart,
    )
    return blake2b(encode(same, limit=MOST_BYTES).encode(), digest_size=16).digest()
