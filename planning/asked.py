"""What a model was asked, for the record: a digest that names a request, an outline for people."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from msgspec.structs import replace

from planning.ports import Request
from planning.showing import head_and_tail

_SHOWN = 2_000  # characters of one text in an outline


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
    """A request as people look it over: what it was for, how large, and its texts, long ones without their middle."""
    return {
        "digest": digest(request),
        "purpose": request.purpose,
        "run_id": request.run_id,
        "cycle_id": request.cycle_id,
        "tokens": tokens,
        "turns": len(request.turns),
        "texts": [head_and_tail(text, _SHOWN) for text in request.texts],
    }
