"""Judgement of an action; pure.

A finished call is not always a verified one. A call that ended well and stated a postcondition (`_expect`) is
verified; for any other call the tool's own result is the only evidence. A call that was not meant to run (another
branch, a newer message) or was not allowed to run says nothing about success.
"""

from __future__ import annotations

from msgspec import Struct

from spar.types import ActionResult, CallResult

#: Values of `CallResult.reason` for a call that still goes on elsewhere or waits for its turn.
_OPEN = frozenset({"parked", "detached", "steered"})


class Outcome(Struct, frozen=True):
    """Judgement of one action: `score` is 0..1; `success` is None while it is unknown; `worked` and `failed` are
    calls."""

    score: float
    success: bool | None
    text: str
    worked: tuple[CallResult, ...] = ()
    failed: tuple[CallResult, ...] = ()


def judge(result: ActionResult) -> Outcome:
    """Judge an action. Never raises.

    The score is the share of calls that ended well among those that should have; a call in doubt counts half. An
    action succeeded when no call failed, none is open or in doubt, and a call ended well or an answer was given.
    """
    worked: list[CallResult] = []
    failed: list[CallResult] = []
    counts = {"verified": 0, "failed": 0, "open or in doubt": 0, "denied": 0}
    doubted = 0
    for item in result.results:
        status, reason = item.status, item.reason
        if status == "ok" and reason != "detached":
            worked.append(item)
            counts["verified"] += item.verified is True
        elif has_failed(item):
            failed.append(item)
        if status in ("in_doubt", "cancelled") or reason in _OPEN:
            counts["open or in doubt"] += 1
            doubted += status == "in_doubt"
        counts["denied"] += status == "denied"
    counts["failed"] = len(failed)
    has_answer = result.action is not None and result.action.output is not None
    broken = result.fault is not None or (result.status == "failed" and not worked)
    expected = len(worked) + len(failed) + doubted
    score = 0.0 if broken else (len(worked) + 0.5 * doubted) / expected if expected else 1.0
    is_open = counts["open or in doubt"] > 0
    return Outcome(score, _success(result, bool(failed) or broken, is_open, bool(worked) or has_answer),
                   _text(result, len(worked), counts), tuple(worked), tuple(failed))  # fmt: skip


def has_failed(item: CallResult) -> bool:
    """Return whether a call should have ended well and did not.

    An exception that a branch of the plan handles was foreseen. A refusal is a decision, not a failure of the tool.
    """
    if item.status in ("failed", "timeout"):
        return item.reason != "handled"
    return item.status == "skipped" and item.reason == "dep_failed"


def _success(result: ActionResult, has_failures: bool, is_open: bool, has_effect: bool) -> bool | None:
    if has_failures:
        return False
    if is_open or result.status == "interrupted" or not has_effect:
        return None
    return True


def _text(result: ActionResult, finished: int, counts: dict[str, int]) -> str:
    parts = []
    if result.results:
        parts.append(f"{finished} of {len(result.results)} calls finished")
    elif result.action is not None and result.action.output is not None:
        parts.append("answered")
    else:
        parts.append("nothing was called")
    parts += [f"{number} {word}" for word, number in counts.items() if number]
    return f"{result.status}: {', '.join(parts)}"
