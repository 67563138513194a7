"""Hooks at `before_request`: they may change a request within bounds.

Hooks may change the instructions, add context and choose another allowed model. They may remove tools but not add any:
an added tool is refused, the refusal is reported, and the request goes on with the narrower set. Each hook gets the
draft that the hook before it returned. The changes of each hook are recorded with the cycle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from planning.prompt.render import NOW
from planning.prompt.shorten import to_json
from spar.checks import shorten
from spar.data.json_safe import UNBOUNDED, plain
from spar.errors import PermanentError
from spar.events import ErrorOccurred
from spar.hooks import Accept, HookContext, Outcome, RequestDraft
from spar.protocols import Context, Host
from spar.types import Fault

POINT: Final = "before_request"
#: Characters that the instructions and the context of all hooks may have together.
LONGEST: Final = 200_000
#: Kinds of data that the planner itself writes, and types of messages that decide which calls are allowed. A hook may
#: not use them.
_RESERVED: Final = frozenset({
    "ability", "advisor", "called", "correction", "done", "error", "experience", "experience_now", "goal", "guard",
    "input", "meta", "noticed", "noticed_now", "pending", "plan", "result", "skipped", "spoken", "state", "tool",
})  # fmt: skip


class Shaped(Struct, frozen=True):
    """A draft after its hooks; `changes` has one entry for each hook that changed anything."""

    draft: RequestDraft
    changes: tuple[dict[str, Any], ...] = ()


class _Acceptance:
    """Check of the draft that each hook returned: it records the changes and refuses those that are not allowed."""

    def __init__(self) -> None:
        self.changes: list[dict[str, Any]] = []
        self.refused: list[tuple[str, str]] = []

    def __call__(self, hook: str, before: RequestDraft, after: RequestDraft) -> RequestDraft:
        """Return the hook's draft with the allowed changes only. Raises: TypeError, ValueError for an invalid draft."""
        _check_draft(after)
        hook_changes: dict[str, Any] = {"point": POINT, "hook": hook}
        refused: list[str] = []
        if widened := [tool for tool in after.tools if tool not in before.tools]:
            refused.append(f"it may only leave tools out, and added {', '.join(map(shorten, widened))}")
        tools = tuple(tool for tool in before.tools if tool in after.tools)
        model = after.model
        if model and model != before.model and model not in before.models:
            refused.append(f"model {shorten(model)} is not allowed; allowed: {', '.join(before.models) or 'none'}")
            model = before.model
        trust = "untrusted" if "untrusted" in (before.trust, after.trust) else "trusted"
        instructions = after.instructions.encode("utf-8", "replace").decode()  # a lone surrogate cannot be sent
        accepted = replace(
            after, instructions=instructions, tools=tools, model=model, models=before.models, trust=trust
        )
        hook_changes |= _describe_changes(before, accepted)
        if refused:
            hook_changes["refused"] = refused
            self.refused += [(hook, reason) for reason in refused]
        if len(hook_changes) > 2:
            self.changes.append(hook_changes)
        return accepted


async def ask_hooks(
    host: Host | None, context: Context, point: str, value: Any, reason: str = "", accept: Accept | None = None
) -> Outcome:
    """Return the outcome of the hooks at a point, and publish their errors. Args: as for `spar.hooks.Hooks.run`."""
    if host is None or host.hooks is None or point not in host.hooks.used:
        return Outcome(value)
    run_id = context.run.id if context.run is not None else None
    asked = HookContext(point, context.agent, value, context.session, run_id, context.cycle_id, reason)
    outcome: Outcome = await host.hooks.run(asked, accept)
    for fault in outcome.faults:
        publish_fault(host, context, fault, point)
    return outcome


def publish_fault(host: Host | None, context: Context, fault: Fault, policy: str = "continue") -> None:
    """Publish a fault of a part (the memory, a tool, a hook) without which the request is made."""
    if host is not None:
        host.events.publish(ErrorOccurred(cycle_id=context.cycle_id, phase="plan", error=fault, policy=policy))


async def apply_hooks(host: Host | None, context: Context, draft: RequestDraft, *, reason: str = "") -> Shaped:
    """Return the draft after all hooks. Args: reason: "preview" when no request is sent.

    Raises: PermanentError when a hook denies the request.
    """
    accept = _Acceptance()
    outcome = await ask_hooks(host, context, POINT, draft, reason, accept)
    for hook, why in accept.refused:
        publish_fault(host, context, Fault("contract", why, hook, "plan", False), POINT)
    if outcome.denied:
        raise PermanentError(f"a hook is against the request: {outcome.reason or 'it did not say why'}")
    return Shaped(outcome.value, tuple(accept.changes))


def messages_of(draft: RequestDraft) -> list[dict[str, Any]]:
    """Return the context that hooks added, as messages: all texts in one message, then each data entry.

    They stand behind what stays the same in a run, because the hooks may add something else to each request.
    """
    texts = [text for text in draft.context if isinstance(text, str)]
    data = [entry for entry in draft.context if not isinstance(entry, str)]
    entries = [{"kind": "context", "data": texts}, *data] if texts else data
    return [{"type": "data", **entry, NOW: True} for entry in entries]


def _check_draft(draft: RequestDraft) -> None:
    """Raise TypeError or ValueError for a draft with a wrong type, a reserved kind of data or too many characters."""
    for name in ("instructions", "model", "trust"):
        if not isinstance(value := getattr(draft, name), str):
            raise TypeError(f"{name} of a draft is a text, found {type(value).__name__}")
    for name in ("context", "tools"):
        if not isinstance(value := getattr(draft, name), (tuple, list)):
            raise TypeError(f"{name} of a draft is a tuple, found {type(value).__name__}")
    added = 0
    for entry in draft.context:
        if not isinstance(entry, str) and (
            not isinstance(entry, Mapping)
            or entry.get("type", "data") != "data"
            or not isinstance(kind := entry.get("kind"), str)
            or kind in _RESERVED
            or not {*entry} <= {"type", "kind", "data", "description"}
        ):
            raise ValueError(
                "what a hook adds is a text, or data of a kind of its own ({'kind': …, 'data': …}), found "
                f"{shorten(entry, 200)}"
            )
        added += len(entry) if isinstance(entry, str) else len(to_json(plain(entry, UNBOUNDED)))
    if (size := len(draft.instructions) + added) > LONGEST:
        raise ValueError(f"the draft has {size:,} characters, expected at most {LONGEST:,}")


def _describe_changes(before: RequestDraft, after: RequestDraft) -> dict[str, Any]:
    """Return a description of the differences by field. It has sizes and names, not the texts themselves."""
    changes: dict[str, Any] = {}
    if after.instructions != before.instructions:
        more = len(after.instructions) - len(before.instructions)
        if after.instructions.startswith(before.instructions):
            changes["instructions"] = f"{more} characters appended"
        elif after.instructions.endswith(before.instructions):
            changes["instructions"] = f"{more} characters prepended"
        elif before.instructions in after.instructions:
            changes["instructions"] = f"{more} characters put around"
        else:
            changes["instructions"] = f"replaced by {len(after.instructions)} characters"
    if after.context != before.context:
        changes["context"] = len(after.context)
    if left_out := [tool for tool in before.tools if tool not in after.tools]:
        changes["left_out"] = left_out
    if after.model != before.model:
        changes["model"] = after.model
    if after.trust != before.trust:
        changes["trust"] = after.trust
    return changes
