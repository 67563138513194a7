"""Changes by hand: what a person makes of the perceptions, the plan, a call or a result of a cycle. Pure.

A change is a JSON merge patch (RFC 7396): a table changes the fields that it names, null removes one, and any other
value replaces. Trust, ids and what the service itself noted of a call cannot be changed, so that no change can skip a
check: a changed plan and a changed call are judged as any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from spar.checks import problem_of
from spar.data.blackboard import message_of
from spar.decoding import convert, encode
from spar.ports.breakpoints import ChangeByHand, Part, Point
from spar.types import ASKED, SERVICE_KEYS, Action, Call, CallResult, Fault, Perception, replace
from spar.types.cycle import without_service_keys

V = TypeVar("V", bound=msgspec.Struct)

#: The part that can be changed at each point.
PARTS: Final[dict[Point, Part]] = {"sense": "perceptions", "plan": "plan", "call": "call", "result": "result"}
#: The fields of each part that can be changed.
_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "a perception": ("content", "source", "kind", "key", "subject", "intent", "priority", "confidence", "attributes"),
    "a plan": ("calls", "goal", "output", "reason"),
    "a call": ("tool", "params", "reason", "after", "output_path", "output_method", "instance"),
    "a result": ("status", "output"),
}
#: The attribute of a perception that says by whom it was changed.
CHANGED: Final = "changed"


def changed(part: Part, value: Any, id: str, patch: Any, by: str, session: str) -> Any:
    """Return the changed value of a point.

    Args:
        value: The perceptions, the plan (None for none), the call or the result.
        id: The id of the perception or the call of a plan that is changed; "" for the whole part.
    Raises: ValueError that says what is wrong.
    """
    try:
        match part:
            case "perceptions":
                return _perceptions(value, id, patch, by, session)
            case "plan":
                return _plan(value, id, patch)
            case "call":
                return _call(patch, value)
        return _result(patch, value)
    except (msgspec.ValidationError, TypeError) as error:
        raise ValueError(f"the change does not fit: {error}") from None


def merged(target: Any, patch: Any) -> Any:
    """Return a JSON value after a merge patch (RFC 7396)."""
    if not isinstance(patch, Mapping):
        return patch
    table = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            table.pop(name, None)
        else:
            table[name] = merged(table.get(name), value)
    return table


def _fields(value: V, patch: Any, what: str) -> dict[str, Any]:
    """Return the changed fields of a value. Raises: ValueError for a patch that is no table of its fields."""
    known = _FIELDS[what]
    if not isinstance(patch, Mapping):
        raise ValueError(f"{what} is changed by a table of its fields: {', '.join(known)}")
    if wrong := [name for name in patch if name not in known]:
        raise ValueError(f"{wrong[0]!r:.60} of {what} cannot be changed by hand; these can: {', '.join(known)}")
    usual = {field.encode_name: field for field in msgspec.structs.fields(type(value))}
    fields = {}
    for name, given in patch.items():
        field = usual[name]
        if given is None:
            empty = {} if field.default is msgspec.NODEFAULT else field.default
            fields[name] = empty
        else:
            fields[name] = convert(merged(getattr(value, name), given), field.type)
    return fields


def _sound(value: V) -> V:
    """Return a value whose fields are valid. Raises: ValueError."""
    if problem := problem_of(value):
        raise ValueError(f"the change does not fit: {problem}")
    encode(value)  # JSON
    return value


def _perceptions(value: Sequence[Perception], id: str, patch: Any, by: str, session: str) -> list[Perception]:
    if id:
        return [_perception(one, patch, by) if one.id == id else one for one in value]
    if not isinstance(patch, list):
        raise ValueError("perceptions are replaced by a list; one of them is changed by its id or its number")
    known = {perception.id: perception for perception in value}
    perceptions = []
    for item in patch:
        if not isinstance(item, Mapping):
            raise ValueError("each perception must be a table of its fields")
        one = known.get(str(item.get("id"))) or Perception("", source="hand", session=session)
        perceptions.append(_perception(one, {name: item[name] for name in item if name != "id"}, by))
    return perceptions


def _perception(perception: Perception, patch: Any, by: str) -> Perception:
    fields = _fields(perception, patch, "a perception")
    if not fields:
        return perception
    fields["attributes"] = {**fields.get("attributes", perception.attributes), CHANGED: f"by {by}, by hand"}
    return _sound(replace(perception, **fields))


def _plan(value: Action | None, id: str, patch: Any) -> Action | None:
    if id:
        assert value is not None
        return replace(value, calls=tuple([_call(patch, call) if call.id == id else call for call in value.calls]))
    if patch is None:
        return None
    if isinstance(patch, list):
        patch = {"calls": patch}
    plan = Action() if value is None else value
    if not isinstance(patch, Mapping):
        raise ValueError(f"a plan is changed by a list of calls or a table of its fields: {_FIELDS['a plan']}")
    fields = _fields(plan, {name: patch[name] for name in patch if name != "calls"}, "a plan")
    if "calls" in patch:
        fields["calls"] = _calls(patch["calls"] or [], plan)
    changed_plan = replace(plan, **fields)
    ids = {call.id for call in changed_plan.calls}
    if len(ids) < len(changed_plan.calls):
        raise ValueError("two calls of the plan have the same id")
    answers = () if "output" in fields else [answer for answer in plan.answers if ids.issuperset(answer.calls)]
    return _sound(replace(changed_plan, answers=tuple(answers)))


def _calls(items: Any, plan: Action) -> tuple[Call, ...]:
    """Return the calls of a changed plan. A planner's demand that people approve the calls of a tool stands also for
    new calls of it."""
    if not isinstance(items, list):
        raise ValueError("'calls' of a plan must be a list")
    known = {call.id: call for call in plan.calls}
    asked = {call.tool: call.meta[ASKED] for call in plan.calls if ASKED in call.meta}
    calls = []
    for item in items:
        if not isinstance(item, Mapping):
            raise ValueError("each call must be a table of its fields")
        is_wire = "_tool" in item
        call = Call.from_wire(item) if is_wire else convert({**item, "tool": item.get("tool", "")}, Call)
        if not call.tool:
            raise ValueError("a call must name its tool")
        if (old := known.get(call.id)) is not None:
            meta = old.meta
        else:
            meta = {name: value for name, value in call.meta.items() if name not in SERVICE_KEYS}
            meta |= {ASKED: asked[call.tool]} if call.tool in asked else {}
        calls.append(_sound(replace(call, meta=meta)))
    return tuple(calls)


def _call(patch: Any, call: Call) -> Call:
    return _sound(replace(call, **_fields(call, patch, "a call")))


def _result(patch: Any, result: CallResult) -> CallResult:
    fields = _fields(result, patch, "a result")
    match fields.get("status"):
        case None | result.status:
            pass
        case "ok":
            fields["fault"] = None
        case "failed":
            fields["fault"] = Fault("changed", "it was made to fail by hand", result.call.tool, "act")
        case _:
            raise ValueError("the status of a result can be made 'ok' or 'failed' by hand")
    return _sound(replace(result, **fields))


def named(part: Part, value: Any, name: str) -> str:
    """Return the id of a perception or of a call of a plan.

    Args: name: its id, a unique beginning of it, or its number from 1. Raises: LookupError.
    """
    items = (value or ()) if part == "perceptions" else () if value is None else value.calls
    ids: list[str] = [item.id for item in items]
    if name in ids:
        return name
    if name.isascii() and name.isdigit() and 0 < int(name) <= len(ids):
        return ids[int(name) - 1]
    if len(fitting := [id for id in ids if id.startswith(name)]) == 1:
        return fitting[0]
    noun = "perception" if part == "perceptions" else "call"
    known = ", ".join(f"{number} ({id[:12]})" for number, id in enumerate(ids, 1)) or "none"
    raise LookupError(f"no {noun} {name!r:.60} there; known: {known}")


def corrections(changes: Sequence[ChangeByHand]) -> Iterator[dict[str, Any]]:
    """Yield the messages that tell the next planner of the changes of a plan and of results.

    Those of calls are told by the act module; a changed perception says so itself.
    """
    for change in changes:
        common = {"by": change.by, "reason": change.reason}
        if change.part == "result":
            wire = without_service_keys(change.after.call.to_wire())
            yield message_of("correction", {"call": wire, "decision": "change of its result", **common, "ran": wire})
        elif change.part == "plan":
            before, after = _by_id(change.before), _by_id(change.after)
            for id in dict.fromkeys((*before, *after)):
                old, new = before.get(id), after.get(id)
                if old != new:
                    decision = "add" if old is None else "remove" if new is None else "edit"
                    data = {"call": old or new, "decision": decision, **common, "ran": new}
                    yield message_of("correction", data)


def _by_id(plan: Action | None) -> dict[str, dict[str, Any]]:
    calls = () if plan is None else plan.calls
    return {call.id: without_service_keys(call.to_wire()) for call in calls}
