"""Hooks at `before_request`: what they may change of a request, and what they did.

They may change the instructions, add context and choose another allowed model. Of the tools they may only leave some
out: whoever adds one is refused and told, and the request goes on with the narrower set. Each hook is shown what the
one before it has left, and what each did is kept with the cycle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from planning.prompt.shorten import to_json
from spar.checks import shorten
from spar.data.json_safe import UNBOUNDED, plain
from spar.errors import PermanentError
from spar.events import ErrorOccurred
from spar.hooks import HookContext
from spar.protocols import Context, Host
from spar.records.prompt import RequestDraft
from spar.types import Fault

POINT: Final = "before_request"
#: Characters of the instructions, and of what all hooks add, that a request may carry.
LONGEST: Final = 200_000
#: Kinds of data that a planner tells of itself; those of other messages than data decide what may be called.
_RESERVED: Final = frozenset({
    "ability", "advisor", "called", "correction", "done", "error", "experience", "goal", "guard", "input", "meta",
    "noticed", "pending", "plan", "result", "skipped", "spoken", "state", "tool",
})  # fmt: skip


class Shaped(Struct, frozen=True):
    """A draft after its hooks, with what they did: one entry for each that changed anything."""

    draft: RequestDraft
    did: tuple[dict[str, Any], ...] = ()


class _Acceptance:
    """Judges what each hook made of a draft."""

    def __init__(self) -> None:
        self.did: list[dict[str, Any]] = []
        self.refused: list[tuple[str, str]] = []

    def __call__(self, hook: str, before: RequestDraft, after: RequestDraft) -> RequestDraft:
        """Return the draft as it may be. Raises: TypeError, ValueError for what cannot stand there at all."""
        _check(after)
        did: dict[str, Any] = {"point": POINT, "hook": hook}
        refused: list[str] = []
        if widened := [each for each in after.tools if each not in before.tools]:
            refused.append(f"it may only leave tools out, and added {', '.join(map(shorten, widened))}")
        tools = tuple(each for each in before.tools if each in after.tools)
        model = after.model
        if model and model != before.model and model not in before.models:
            refused.append(f"model {shorten(model)} is not allowed; allowed: {', '.join(before.models) or 'none'}")
            model = before.model
        trust = "untrusted" if "untrusted" in (before.trust, after.trust) else "trusted"
        told = after.instructions.encode("utf-8", "replace").decode()  # a half of a sign cannot be sent
        made = replace(after, instructions=told, tools=tools, model=model, models=before.models, trust=trust)
        did |= _changes(before, made)
        if refused:
            did["refused"] = refused
            self.refused += [(hook, each) for each in refused]
        if len(did) > 2:
            self.did.append(did)
        return made


async def shaped(host: Host | None, context: Context, draft: RequestDraft, *, reason: str = "") -> Shaped:
    """Return a draft as its hooks leave it. Args: reason: "preview" where no request is sent.

    Raises: PermanentError when a hook is against the request.
    """
    if host is None or host.hooks is None or POINT not in host.hooks.used:
        return Shaped(draft)
    accept = _Acceptance()
    run_id = context.run.id if context.run is not None else None
    asked = HookContext(POINT, context.agent, draft, context.session, run_id, context.cycle_id, reason)
    outcome = await host.hooks.run(asked, accept)
    faults = [*outcome.faults, *[Fault("contract", why, hook, "plan", False) for hook, why in accept.refused]]
    for fault in faults:
        host.events.publish(ErrorOccurred(cycle_id=context.cycle_id, phase="plan", error=fault, policy=POINT))
    if outcome.denied:
        raise PermanentError(f"a hook is against the request: {outcome.reason or 'it did not say why'}")
    return Shaped(outcome.value, tuple(accept.did))


def messages_of(draft: RequestDraft) -> list[dict[str, Any]]:
    """Return the context that hooks added as messages: texts as one list, data each under its kind."""
    texts = [each for each in draft.context if isinstance(each, str)]
    data = [{"type": "data", **each} for each in draft.context if not isinstance(each, str)]
    return [{"type": "data", "kind": "context", "data": texts}, *data] if texts else data


def _check(draft: RequestDraft) -> None:
    """Raises: TypeError, ValueError."""
    for name in ("instructions", "model", "trust"):
        if not isinstance(value := getattr(draft, name), str):
            raise TypeError(f"{name} of a draft is a text, found {type(value).__name__}")
    for name in ("context", "tools"):
        if not isinstance(value := getattr(draft, name), (tuple, list)):
            raise TypeError(f"{name} of a draft is a tuple, found {type(value).__name__}")
    added = 0
    for each in draft.context:
        if not isinstance(each, str) and (
            not isinstance(each, Mapping)
            or each.get("type", "data") != "data"
            or not isinstance(kind := each.get("kind"), str)
            or kind in _RESERVED
            or not {*each} <= {"type", "kind", "data", "description"}
        ):
            raise ValueError(
                "what a hook adds is a text, or data of a kind of its own ({'kind': …, 'data': …}), found "
                f"{shorten(each, 200)}"
            )
        added += len(each) if isinstance(each, str) else len(to_json(plain(each, UNBOUNDED)))
    if (size := len(draft.instructions) + added) > LONGEST:
        raise ValueError(f"the draft has {size:,} characters, expected at most {LONGEST:,}")


def _changes(before: RequestDraft, after: RequestDraft) -> dict[str, Any]:
    """Return what is another in the second one, without what it says."""
    found: dict[str, Any] = {}
    if after.instructions != before.instructions:
        more = len(after.instructions) - len(before.instructions)
        if after.instructions.startswith(before.instructions):
            found["instructions"] = f"{more} characters appended"
        elif after.instructions.endswith(before.instructions):
            found["instructions"] = f"{more} characters prepended"
        elif before.instructions in after.instructions:
            found["instructions"] = f"{more} characters put around"
        else:
            found["instructions"] = f"replaced by {len(after.instructions)} characters"
    if after.context != before.context:
        found["context"] = len(after.context)
    if left_out := [each for each in before.tools if each not in after.tools]:
        found["left_out"] = left_out
    if after.model != before.model:
        found["model"] = after.model
    if after.trust != before.trust:
        found["trust"] = after.trust
    return found
