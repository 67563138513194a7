"""What a model was asked, for the record: a digest that names a request, an outline for people."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from msgspec.structs import replace

from planning.ports import Request


def digest(request: Request) -> str:
    """The same for what a model reads the same of, whoever asks it and when."""
    read = replace(request, cycle_id="", run_id=None, purpose="", context=())
    return hashlib.blake2b(msgspec.json.encode(read), digest_size=8).hexdigest()


def kept(request: Request, named: str) -> dict[str, Any]:
    """A request as it is kept on the tape: all that the model read, and the schema that it had to fit."""
    return {
        "kind": "model.request",
        "digest": named,
        "purpose": request.purpose,
        "instructions": request.instructions,
        "turns": [{"role": turn.role, "text": turn.text} for turn in request.turns],
        "texts": list(request.texts),
        "schema": request.schema,
    }


def outline(request: Request, tokens: int) -> dict[str, Any]:
    """A request as a status tells of it: what it was for and how large. Not what was said: that is on the tape, and
    for those only who may read that."""
    return {
        "digest": digest(request),
        "purpose": request.purpose,
        "run_id": request.run_id,
        "cycle_id": request.cycle_id,
        "tokens": tokens,
        "turns": len(request.turns),
        "texts": len(request.texts),
    }
