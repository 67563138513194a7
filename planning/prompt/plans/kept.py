"""Plans that last from request to request, in a message of the context; pure.

In the mode `eager` the calls of a solution are carried out and become the plan. In the mode `lazy` they become the plan
first, people may approve it, and then they are carried out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from planning.prompt.call_results import call_shown
from planning.prompt.request import plan_mode, plan_of
from planning.prompt.tool_specs import ToolSpec
from spar.checks import shorten
from spar.types import CallResult, Verdict

Wire = dict[str, Any]


def planned(messages: Sequence[Wire], calls: Iterable[Wire], results: Iterable[CallResult] = ()) -> list[Wire]:
    """Return the messages with these calls as the plan, and the status of each by its id (`pending` before it ran).

    A call that people have changed stands there as it ran.
    """
    old = plan_of(messages)
    if old is None:
        return list(messages)
    results = list(results)
    changed = {
        result.call.id: call_shown(result.call.to_wire()) for result in results if "_original" in result.call.meta
    }
    calls = [changed.get(str(call.get("_id")), call) for call in calls]
    status = {str(call["_id"]): "pending" for call in calls if "_id" in call}
    status |= {result.call.id: result.reason or result.status for result in results if result.call.id in status}
    key = "data" if "data" in old else "plan"
    about = {name: value for name, value in old.items() if name not in ("data", "plan", "calls", "status")}
    new = {**about, "mode": plan_mode(messages), key: {"calls": calls, "status": status}}
    return [new if message is old else message for message in messages]


def carried_out(calls: Iterable[Wire], specs: Iterable[ToolSpec]) -> Iterator[Wire]:
    """Yield the calls of a lazy plan for the executor: the results of latent calls are written when they run."""
    latent = {spec.name for spec in specs if spec.is_latent}
    for call in calls:
        if str(call.get("_tool")) in latent and not call.get("_delegate"):
            call = {**{key: value for key, value in call.items() if key != "_output"}, "_activity": "_latent"}
        yield call


def undecided(call: Mapping[str, Any]) -> str:
    """Return why a call with a result from the model cannot be carried out: its path has alternatives; "" if it can."""
    path = call.get("_outputPath")
    if "_output" not in call or call.get("_delegate") or not isinstance(path, str) or "||" not in path:
        return ""
    return f"who writes '_output' knows which branch it takes: '_outputPath' names that one alone, not {shorten(path)}"


def objection(verdict: Any) -> str:
    """Return why a plan must not be carried out, or "". Every verdict but a clear yes is a no."""
    if verdict is True or (isinstance(verdict, Verdict) and verdict.decision == "approve"):
        return ""
    reason = verdict.reason if isinstance(verdict, Verdict) else ""
    return f"the plan was not approved: {reason}" if reason else "the plan was not approved"
