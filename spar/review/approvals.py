"""Text of an approval: exactly what would run, why it asks, and warnings of text that deceives the eye.

The person who answers sees only this text, and an attacker may have written parts of it. So it is rendered from the
bound values themselves, by `spar.data.text`, and never shortened in a text that is the basis of a decision. Pure
functions.
"""

from __future__ import annotations

from datetime import datetime

from spar.data.text import value_line, visible
from spar.records.approvals import Approval, Grant
from spar.review.deception import warnings
from spar.review.render import ROOM, author, call_lines, document, list_cells, moment, origin, span, warning_lines
from spar.types import Call

_EFFECTS = {
    "read": "read: it changes nothing",
    "idempotent": "idempotent: doing it twice is doing it once",
    "once": "once: it changes something and cannot be repeated safely",
}
_TRUST = {
    "trusted": "trusted",
    "untrusted": "untrusted: text from outside may have decided on this call",
}


def approval_full(approval: Approval, now: datetime) -> str:
    """Return all that a person needs to decide, with the complete call."""
    call = approval.call
    is_open = approval.status == "pending"
    parked = ", parked: it goes on in the cycle after the answer" if is_open and approval.is_parked else ""
    rows = [
        ("status", approval.status + parked),
        ("tool", visible(call.tool)),
        ("effect", _EFFECTS.get(approval.effect, visible(approval.effect))),
        ("trust", _TRUST.get(approval.trust, visible(approval.trust))),
        ("why", visible(approval.why) or "as every call of this tool does"),
        ("of", origin(approval.session, approval.run_id, approval.cycle_id)),
        ("asked", moment(approval.asked_at, now)),
        ("digest", visible(approval.digest)),
    ]
    if approval.status in ("pending", "approved"):
        seconds_left = (approval.expires_at - now).total_seconds()
        rows.append(
            ("expires", f"in {span(seconds_left)}, to a denial" if seconds_left > 0 else "has expired: it is a denial")
        )
    if approval.decided_at is not None:
        rows.append(("decided", f"{moment(approval.decided_at)}{author(approval.decided_by)}"))
    rows += [(name, visible(text)) for name, text in (("reason", approval.reason), ("grant", approval.grant)) if text]
    return document(
        f"approval {visible(approval.id)}",
        rows,
        _call_lines("what would run" if is_open else "the call", call),
        [] if approval.original is None else _call_lines("as it was first asked for", approval.original),
        warning_lines(warnings(call)),
    )


def approval_cells(approval: Approval, now: datetime, room: int = ROOM) -> tuple[str, ...]:
    """Return the cells of a row in a list."""
    call = approval.call
    marks = [*(["untrusted"] if approval.trust == "untrusted" else []), *(["WARNING"] if warnings(call) else [])]
    age = now - approval.asked_at
    return list_cells(approval.id, approval.status, age, approval.session, call.tool, marks, call.params, room)


def grant_cells(grant: Grant, now: datetime) -> tuple[str, ...]:
    """Return the cells of a row in a list, uncut: a grant allows calls that nobody sees any more."""
    seconds_left = (grant.expires_at - now).total_seconds()
    where = f"session {visible(grant.session)}" if grant.session else "every session"
    call_text = f"{visible(grant.tool)} with {value_line(grant.params)}"
    return (visible(grant.id), call_text, where, span(seconds_left), visible(grant.granted_by), str(grant.uses))


def _call_lines(title: str, call: Call) -> list[str]:
    lines = call_lines(title, call)
    if call.output_path is not None:
        lines.append(f"    writes its result to {visible(call.output_path)} ({call.output_method})")
    return lines
