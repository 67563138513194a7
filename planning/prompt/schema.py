"""The schema that a model's solution has to fit: what it may say, call and decide, in the order of thinking.

    {"meta": …, "advisors": […], "calls": [{"_tool": …, …parameters}], "output": … | null}

Composed from the tools, the activities that carry them out, the schema of the answer and the context's messages. It is
JSON Schema 2020-12, the same bytes for the same input, and shares nothing with what it was made from. It allows what
the executor takes, references in the place of values included; whether parameters are right is judged there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from planning.prompt.advisors import CONSULT, advice_schema, consultation, has_a_say, read_advisors
from planning.prompt.schema_merge import Document, reference_or
from planning.prompt.shorten import head_and_tail, to_json
from planning.prompt.tool_specs import ToolSpec, mapping, read_tool_specs
from spar.data.blackboard import Board
from spar.data.json_safe import copied, plain

Schema = dict[str, Any]

_RETURNS_LIMIT = 2_000  # characters of a result's schema in a description
_ANYTHING = ["object", "array", "string", "number", "boolean", "null"]


def compose_schema(
    tools: Any,
    *,
    activities: Collection[str] = (),
    output: Mapping[str, Any] | None = None,
    context: Iterable[Any] = (),
    advisors: Iterable[Mapping[str, Any]] = (),
) -> Schema:
    """Compose the schema of a solution: `meta`, `advisors`, `calls`, `output`, each where there is occasion for it.

    Args:
        tools: schemas whose `properties._tool.const` names them, mappings of names to schemas, objects with `name` and
            `schema`, or all of an executor's (`executor.tools`). Tool messages of the context come after them; of one
            name the last definition counts. Functions have no schema by themselves: hand them to an executor first.
        activities: the names (or a mapping by name) of what carries out calls. A tool without one is latent: the model
            fills in its `_output` itself. An object with a schema carries itself out.
        output: the schema of the answer, which may also be null; None for any value.
        context: wire messages. A `meta` message asks for the next one, instances are offered where there are any.
        advisors: advisor messages besides those of the context. Who speaks `on` `start` does so until a call has been
            made, on `request` always, on `finish` when it sees the end coming, without `on` when it is consulted.

    Raises: TypeError for what is no tool, or no message of meta; ValueError for a tool or advisor that cannot be read,
        naming it.
    """
    messages = [message for message in context if isinstance(message, Mapping)]
    all_advisors = read_advisors(messages, advisors)
    specs = read_tool_specs(tools, messages, activities)
    can_call = any(spec.name != CONSULT for spec in specs)
    silent = [advisor for advisor in all_advisors if advisor.get("on") is None]
    if silent and all(spec.name != CONSULT for spec in specs):
        specs.append(consultation(silent, activities))
    instances = _instances(messages)

    defs: Schema = {}
    properties: Schema = {}
    if (meta := _meta(messages, defs)) is not None:
        properties["meta"] = meta
    if speakers := [advisor for advisor in all_advisors if has_a_say(advisor, messages, can_call=can_call)]:
        properties["advisors"] = advice_schema(speakers, instances, defs, votes=bool(specs))
    if specs:
        calls = [_call(spec, instances, defs) for spec in specs]
        properties["calls"] = {"type": "array", "items": {"anyOf": calls}}
    properties["output"] = _answer(output, defs)
    composed: Schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {**composed, "$defs": defs} if defs else composed


# -- one call


#: What a call may say besides its parameters, in the order in which it is to be thought of; what has a schema here is
#: offered by every tool that does not refuse it (`false`), the rest by those that define it.
_BEFORE: dict[str, Schema | None] = {
    "_reasoningForCall": {"type": "string", "description": "why this tool, now"},
    "_id": {"type": "string", "minLength": 1, "description": "a name for this call, which _after may refer to"},
    "_activity": None,
    "_delegate": None,
    "_instance": None,
    "_scopes": None,
    "_after": {"type": "array", "items": {"type": "string"}, "description": "ids of calls that must end well first"},
}
_BEHIND: dict[str, Schema | None] = {
    "_outputPath": {"type": "string", "pattern": "^†", "description": "where the result is written, as †state.name"},
    "_outputMethod": {"type": "string", "enum": ["set", "merge", "assign", "push", "concat"]},
    "_output": None,
}


def _call(spec: ToolSpec, instances: Sequence[str], defs: Schema) -> Schema:
    """The schema of a call of one tool."""
    document = Document(spec.name, spec.schema, defs, f"tool {spec.name!r}")
    root = document.resolve(spec.schema)
    given = {plain(str(key)): value for key, value in mapping(root.get("properties")).items()}
    own = partial(_own, given=given, document=document, fixed=_fixed(spec, instances))
    parameters = {
        name: reference_or(document.graft(schema, widened=True))
        for name, schema in given.items()
        if not name.startswith("_")
    }
    variants = {key: _variant(key, root[key], document) for key in _VARIANTS if key in root}
    for name in _named_in([root[key] for key in variants], document):
        parameters.setdefault(name, reference_or({}))
    others = {key: None for key in given if key.startswith("_") and key not in {"_tool", *_BEFORE, *_BEHIND}}
    properties: Schema = {
        "_tool": {"const": plain(spec.name)},
        **own(_BEFORE),
        **own(others),
        **parameters,
        **own({key: schema for key, schema in _BEHIND.items() if key != "_output" or spec.is_latent}),
    }
    asked = root.get("required")
    required = [plain(name) for name in asked if isinstance(name, str)] if isinstance(asked, (list, tuple)) else []
    prescribed = [key for key in ("_delegate", "_outputPath") if spec.constant(key)]
    schema: Schema = {
        "type": "object",
        "properties": properties,
        "required": [name for name in dict.fromkeys(["_tool", *required, *prescribed]) if name in properties],
        "additionalProperties": False,
        **variants,
    }
    description = _description(spec, root)
    return {"description": description, **schema} if description else schema


def _fixed(spec: ToolSpec, instances: Sequence[str]) -> dict[str, Schema]:
    """Return the schemas that the composition itself prescribes for a call's own keys."""
    found: dict[str, Schema] = {} if spec.activity is None else {"_activity": {"const": spec.activity}}
    if instances:
        found["_instance"] = {"type": "string", "enum": list(instances)}
    return found


def _own(
    offered: Mapping[str, Schema | None], *, given: Mapping[str, Any], document: Document, fixed: Mapping[str, Schema]
) -> Schema:
    """The keys of a call's own that a tool specs, as the tool defines them, else as everybody."""
    made: Schema = {}
    for key, usual in offered.items():
        if given.get(key) is False:
            continue
        if key in given and key != "_activity":
            made[key] = document.graft(given[key])
        elif key in fixed:
            made[key] = plain(fixed[key])
        elif usual is not None:
            made[key] = copied(usual)
    return made


_VARIANTS = ("allOf", "anyOf", "oneOf", "if", "then", "else", "dependentRequired", "dependentSchemas")
#: What a schema says of the object as a whole, which a call's own keys would break.
_OF_THE_WHOLE = frozenset({"additionalProperties", "unevaluatedProperties", "maxProperties", "minProperties",
                           "propertyNames", "patternProperties"})  # fmt: skip


def _variant(key: str, part: Any, document: Document, above: tuple[str, ...] = ()) -> Any:
    """A condition on the parameters together, with nothing in it about keys that are none.

    `above` holds the references that led here: one that leads to itself says nothing new.
    """
    if key == "dependentRequired":
        return plain(part)
    if isinstance(part, (list, tuple)):
        return [_variant("", each, document, above) for each in part]
    if key == "dependentSchemas":
        return {plain(str(name)): _variant("", each, document, above) for name, each in mapping(part).items()}
    document.spend()
    if not isinstance(part, Mapping):
        return document.graft(part)
    if isinstance(ref := part.get("$ref"), str):
        if ref in above:
            return True
        above = (*above, ref)
    part = document.resolve(part)
    nested = {key: _variant(key, part[key], document, above) for key in _VARIANTS if key in part}
    rest = {name: value for name, value in part.items() if name not in _OF_THE_WHOLE and name not in nested}
    # A condition asks for the value itself; everywhere else a reference may stand for it.
    return {**document.graft(rest, widened=key != "if"), **nested}


def _named_in(parts: Sequence[Any], document: Document) -> list[str]:
    """The parameters that are named in such conditions only."""
    found: dict[str, None] = {}
    level, depth = list(parts), 0
    while level and depth < 20:
        below: list[Any] = []
        for part in level:
            if isinstance(part, (list, tuple)):
                below.extend(part)
            elif isinstance(part := document.resolve(part), Mapping):
                found.update(dict.fromkeys(map(str, mapping(part.get("properties")))))
                below.extend(part[key] for key in _VARIANTS if key in part and key != "dependentRequired")
                below.extend(mapping(part.get("dependentSchemas")).values())
        level, depth = below[:1_000], depth + 1
    return [plain(name) for name in found if not name.startswith("_")]


def _description(spec: ToolSpec, root: Mapping[str, Any]) -> str:
    """Return the tool's description, with the schema of its result where the model does not fill that in."""
    said = root.get("description")
    told = plain(said) if isinstance(said, str) else ""
    returns = spec.properties.get("_output")
    if spec.is_latent or not isinstance(returns, Mapping):
        return told
    text = head_and_tail(to_json(plain(returns)), _RETURNS_LIMIT)
    return "\n".join(part for part in (told, f"Returns: {text}") if part)


# -- the answer


def _answer(output: Mapping[str, Any] | None, defs: Schema) -> Schema:
    """The answer's schema, which null fits as well and, unless it says otherwise, no property that it does not name."""
    if output is None:
        return {"type": list(_ANYTHING)}
    if not isinstance(output, Mapping):
        raise TypeError(f"output is a JSON schema, found {type(output).__name__}")
    made: Schema = Document("output", output, defs, "the output").graft(output)
    is_combined = any(key in made for key in ("$ref", "allOf", "anyOf", "oneOf", "if", "not"))
    kinds = made.get("type")
    if "properties" in made and not is_combined:
        made.setdefault("additionalProperties", False)
    if is_combined or "const" in made or "enum" in made or kinds is None:
        return {"anyOf": [made, {"type": "null"}]}
    kinds = [kinds] if isinstance(kinds, str) else list(kinds)
    return {**made, "type": kinds if "null" in kinds else [*kinds, "null"]}


# -- meta


def _meta(messages: Sequence[Mapping[str, Any]], defs: Schema) -> Schema | None:
    """The schema of the next meta, if the context has one now: same domain and path, a version, the time."""
    found = [message for message in messages if message.get("type") == "meta" or message.get("kind") == "meta"]
    if not found:
        return None
    now = next(iter(Board(found).messages_of(["meta"])), {})
    if isinstance(given := now.get("schema"), Mapping):
        grafted: Schema = Document("meta", given, defs, "the meta message").graft(given)
        return grafted
    known = mapping(now.get("data"))
    kept = {key: {"const": known[key]} if isinstance(known.get(key), str) else {"type": "string"}
            for key in ("domain", "path")}  # fmt: skip
    properties: Schema = {
        **kept,
        "version": {"type": "string", "description": "greater than the one before"},
        "branches": {"type": "array", "items": {"type": "string"}},
        "createdAt": {"type": "string", "description": "now, as ISO 8601"},
    }
    return {
        "type": "object",
        "description": "What this work is and which version of it the solution makes.",
        "properties": properties,
        "required": [key for key in properties if key in known or key in ("version", "createdAt")],
        "additionalProperties": False,
    }


# -- instances


def _instances(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """The instances that data-carrying messages speak of, in the order of appearance."""
    found = (message.get("_instance") for message in messages)
    return list(dict.fromkeys(plain(name) for name in found if isinstance(name, str) and name))
