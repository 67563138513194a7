"""Advisors: roles whose advice a model writes down before it decides on calls; pure.

An advisor is a message with an `id`, a `role`, the `schema` of its advice, and the occasion `on` which it speaks. The
model writes the advice of all of them into its solution; advisors decide nothing themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from planning.prompt.schema_merge import Document
from planning.prompt.tool_specs import ToolSpec, mapping
from spar.checks import shorten
from spar.data.json_safe import plain

Schema = dict[str, Any]

#: The tool that asks an advisor without `on`.
CONSULT = "ConsultAdvisor"
_OCCASIONS = ("start", "finish", "request", None)


def read_advisors(messages: Sequence[Mapping[str, Any]], given: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return all advisors, each id once: its last definition. Raises: ValueError for one that cannot be read."""
    advisors: dict[str, Mapping[str, Any]] = {}
    for advisor in (*(message for message in messages if message.get("type") == "advisor"), *given):
        inner = advisor.get("advisor") if isinstance(advisor, Mapping) else None
        whole = {**advisor, **inner} if isinstance(inner, Mapping) else advisor
        name = whole.get("id") if isinstance(whole, Mapping) else None
        if not isinstance(name, str) or not name:
            raise ValueError(f"an advisor is an object with an 'id', found {shorten(whole, 200)}")
        if whole.get("on") not in _OCCASIONS:
            raise ValueError(
                f"advisor {name!r} speaks on {whole['on']!r}, expected start, finish or request, or no 'on' at all"
            )
        advisors.pop(name, None)
        advisors[name] = whole
    return list(advisors.values())


def has_a_say(advisor: Mapping[str, Any], messages: Sequence[Mapping[str, Any]], *, can_call: bool = False) -> bool:
    """Return whether an advisor speaks in this request.

    "start": before the first call; "finish": after it, or where there are no tools (`can_call`); "request": always.
    """
    on = advisor.get("on")
    has_called = any("_call" in message or message.get("kind") == "error" for message in messages)
    return on == "request" or (on == "finish" and (has_called or not can_call)) or (on == "start" and not has_called)


def advice_schema(
    speakers: Sequence[Mapping[str, Any]], instances: Sequence[str], defs: Schema, *, votes: bool
) -> Schema:
    """Return the schema of a list with the advice of each speaker; "finish" advice may be left out before the end.

    Args: votes: whether each advice has scores of the tools.
    """
    entries = [_entry(advisor, instances, defs, votes=votes) for advisor in speakers]
    always = sum(advisor.get("on") != "finish" for advisor in speakers)
    return {"type": "array", "items": {"anyOf": entries}, "minItems": always}


def _entry(advisor: Mapping[str, Any], instances: Sequence[str], defs: Schema, *, votes: bool) -> Schema:
    name = str(advisor["id"])
    schema = mapping(advisor.get("schema"))
    document = Document(name, schema, defs, f"advisor {name!r}")
    root = document.resolve(schema)
    advice = {
        plain(str(key)): document.graft(value)
        for key, value in mapping(root.get("properties")).items()
        if key not in ("id", "_instance", "calls")
    }
    instance = (
        {"_instance": {"type": "string", "enum": list(instances)}} if advisor.get("isInstanced") and instances else {}
    )
    vote = {"calls": {"type": "string", "description": "JSON: an object of tool names and their scores"}}
    fixed = {"id": {"const": plain(name)}, **instance}
    required = [key for key in plain(root.get("required") or []) if key in advice]
    entry: Schema = {
        "type": "object",
        "properties": {**fixed, **advice, **(vote if votes else {})},
        "required": [*fixed, *required, *(vote if votes else {})],
        "additionalProperties": False,
    }
    if advisor.get("on") == "finish":
        entry = {"description": "only when output is not null", **entry}
    role = advisor.get("role")
    return {**entry, "description": _sentences(role, entry.get("description"))} if isinstance(role, str) else entry


def _sentences(*parts: Any) -> str:
    return "; ".join(plain(part) for part in parts if isinstance(part, str) and part)


def consultation(silent: Sequence[Mapping[str, Any]], activities: Collection[str]) -> ToolSpec:
    """Return the tool that asks the advisors without `on`."""
    defs: Schema = {}
    advice = []
    for advisor in silent:
        schema = {"type": "object", **mapping(advisor.get("schema"))}
        name = str(advisor["id"])
        advice.append(Document(name, schema, defs, f"advisor {name!r}").graft(schema))
    roles = "; ".join(f"{advisor['id']}: {advisor.get('role') or 'no role given'}" for advisor in silent)
    tool: Schema = {
        "description": f"Ask an advisor before you decide. {plain(roles)}",
        "properties": {
            "_tool": {"const": CONSULT},
            "advisor": {"type": "string", "enum": [plain(str(advisor["id"])) for advisor in silent]},
            "question": {"type": "string"},
            "_output": {"anyOf": advice},
        },
        "required": ["advisor", "question"],
        "$defs": defs,
    }
    return ToolSpec(CONSULT, tool, CONSULT if CONSULT in activities else "")
