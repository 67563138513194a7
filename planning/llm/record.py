"""Record of requests to models: their digest, all of them for the tape, an outline for the status; pure."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from planning.ports import Asked, Request


def digest(request: Request) -> str:
    """Return a digest of all that a model reads, independent of the asker and the time."""
    read = replace(request, cycle_id="", run_id=None, purpose="", context=(), models=(), room=None, traceparent="")
    return hashlib.blake2b(msgspec.json.encode(read), digest_size=8).hexdigest()


def kept(request: Request, named: str) -> dict[str, Any]:
    """A request as it is kept on the tape: all that the model read, and the schema that it had to fit."""
    return {
        "kind": "model.request",
        "digest": named,
        "purpose": request.purpose,
        "instructions": request.instructions,
        **({"preface": list(request.preface)} if request.preface else {}),
        "turns": [{"role": turn.role, "text": turn.text} for turn in request.turns],
        "texts": list(request.texts),
        **({"models": list(request.models)} if len(request.models) > 1 else {}),
        **({"thinking": request.thinking} if request.thinking is not None else {}),
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


def answered(asked: Asked, named: str) -> dict[str, Any]:
    """The settings with which a model was asked, as they are kept on the tape beside the request."""
    told = {name: value for name, value in asdict(asked).items() if value}
    return {"kind": "model.asked", "digest": named, **told}
