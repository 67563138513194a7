"""Outline of a request: its parts with size and origin. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any, Final

import msgspec

from planning.bootstrap.before_request import Shaped
from planning.bootstrap.sections import Prompt, PromptPart
from planning.ports import Request
from planning.prompt.history import heading_of, text_of
from planning.prompt.observations import FAILING, MEMORY, NOTICED, UNASKED
from planning.prompt.token_budget import TokenEstimator

#: The origin of data by its kind. Data of every other kind comes from the run.
_ORIGINS: Final = {
    "ability": "reflection",
    "context": "hooks at before_request",
    "experience": "memory",
    "noticed": "sensors",
}
_PARTS: Final = {"user": "message", "assistant": "answer"}
#: The kind of a text about the moment that is no data, by its first line.
_KINDS: Final = {MEMORY: "experience", FAILING: "ability", NOTICED: "noticed", UNASKED: "noticed"}
_DATA: Final = re.compile(r"## Data: ¶(\w+)")


def outline_of(
    request: Request, prompt: Prompt, shaped: Shaped, tools: Collection[str], estimator: TokenEstimator,
    session: str, *, with_text: bool = False
) -> dict[str, Any]:  # fmt: skip
    """Return the parts of a request in their order, with the size of each part and of the whole.

    Args: tools: the names of the offered tools; with_text: whether each part has its text too.
    """
    parts = list(_parts(request, prompt, shaped, tools, session))
    rows = [
        {
            "part": part.part,
            "origin": part.origin,
            "chars": len(part.text),
            "tokens": estimator.tokens(part.text),
            "note": part.note,
            **({"text": part.text} if with_text else {}),
        }
        for part in parts
    ]
    return {
        "session": session,
        "parts": rows,
        "chars": sum(len(part.text) for part in parts),
        "tokens": estimator.of(request),
        "trust": shaped.draft.trust,
        "hooks": list(shaped.changes),
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
        hooks = ", ".join(str(entry["hook"]) for entry in shaped.changes if "instructions" in entry)
        yield PromptPart("instructions", f"hooks at before_request: {hooks}", left.strip())
    if request.schema:
        names = ", ".join(tools) or "none"
        yield PromptPart("tools", f"{len(tools)}: {names}", msgspec.json.encode(request.schema).decode())
    if request.answer is not None:
        yield PromptPart("answer", "output", msgspec.json.encode(request.answer).decode())
    yield from (part for part in prompt.parts if part.text in material)
    border = len(request.turns) - request.own
    if earlier := request.turns[:border]:
        history = "\n\n".join(map(text_of, earlier))
        yield PromptPart("history", f"transcript of {session}", history, f"{len(earlier)} turns")
    for turn in request.turns[border:]:
        if turn.role == "context":
            yield from map(_context_part, turn.text.split("\n\n"))
        else:
            yield PromptPart(_PARTS[turn.role], "run", text_of(turn) if turn.calls else turn.text)


def _context_part(block: str) -> PromptPart:
    """Return a text about the moment as a part, by its first line."""
    kind = match[1] if (match := _DATA.match(block)) else _KINDS.get(heading_of(block), "context")
    return PromptPart(kind, _ORIGINS.get(kind, "run"), block)
