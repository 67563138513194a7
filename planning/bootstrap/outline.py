"""Outline of a request: what stands in it, by part, size and origin; pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any, Final

import msgspec

from planning.bootstrap.before_request import Shaped
from planning.bootstrap.sections import Prompt, PromptPart
from planning.ports import Request
from planning.prompt.token_budget import TokenEstimator

#: Where data of a kind is from; of every other kind it is from the run itself.
_ORIGINS: Final = {
    "ability": "reflection",
    "context": "hooks at before_request",
    "experience": "memory",
    "guard": "spar",
    "noticed": "sensors",
}
_DATA: Final = re.compile(r"## Data: ¶(\w+)")


def outline_of(
    request: Request, prompt: Prompt, shaped: Shaped, tools: Collection[str], estimator: TokenEstimator,
    session: str, *, with_text: bool = False
) -> dict[str, Any]:  # fmt: skip
    """Return the parts of a request in their order, with the size of each and of all.

    Args: tools: the names of those offered; with_text: texts as well.
    """
    told = list(_parts(request, prompt, shaped, tools, session))
    parts = [
        {
            "part": each.part,
            "origin": each.origin,
            "chars": len(each.text),
            "tokens": estimator.tokens(each.text),
            "note": each.note,
            **({"text": each.text} if with_text else {}),
        }
        for each in told
    ]
    return {
        "session": session,
        "parts": parts,
        "chars": sum(len(each.text) for each in told),
        "tokens": estimator.of(request),
        "trust": shaped.draft.trust,
        "hooks": list(shaped.did),
    }


def _parts(
    request: Request, prompt: Prompt, shaped: Shaped, tools: Collection[str], session: str
) -> Iterator[PromptPart]:
    material = set(prompt.preface)
    instructions = shaped.draft.instructions
    left = instructions
    for part in prompt.parts:
        if part.text not in material and part.text in left:
            left = left.replace(part.text, "", 1)
            yield part
    if left.strip():
        hooks = ", ".join(str(each["hook"]) for each in shaped.did if "instructions" in each)
        yield PromptPart("instructions", f"hooks at before_request: {hooks}", left.strip())
    if request.schema:
        names = ", ".join(tools) or "none"
        yield PromptPart("tools", f"{len(tools)}: {names}", msgspec.json.encode(request.schema).decode())
    if request.answer is not None:
        yield PromptPart("answer", "output", msgspec.json.encode(request.answer).decode())
    yield from (part for part in prompt.parts if part.text in material)
    if request.turns:
        said = "\n\n".join(f"[{each.role}] {each.text}" for each in request.turns)
        yield PromptPart("history", f"transcript of {session}", said, f"{len(request.turns)} turns")
    for text in request.texts:
        kind = found[1] if (found := _DATA.match(text)) else ""
        yield PromptPart(kind or "message", _ORIGINS.get(kind, "run"), text)
