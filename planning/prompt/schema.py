"""Composer of the schema that a model's solution has to fit. Its members stand in the order in which a model decides.

    {"meta": …, "advisors": […], "calls": [{"_tool": …, …parameters}], "output": … | null}

The schema is composed from the tools, the activities that carry them out, the schema of the answer and the messages of
the context. It is JSON Schema 2020-12, the same bytes for the same input, and a copy. It allows all that the executor
takes, also references in the place of values; the executor validates the parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

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
    references: bool = True,
) -> Schema:
    """Compose the schema of a solution: `output`, and `meta`, `advisors` and `calls` where the context asks for them.

    Args:
        tools: schemas whose `properties._tool.const` names them, mappings of names to schemas, objects with `name` and
            `schema`, or all tools of an executor (`executor.tools`). Tool messages of the context come after them; of
            one name the last definition counts. A function gets its schema from an executor: hand it to one first.
        activities: names (or a mapping by name) of the functions that carry out calls. A tool without one is latent:
            the model writes its result into `_output` itself. An object with a schema carries out its own calls.
        output: the schema of the answer, which may also be null; None for any value.
        context: messages. With a `meta` message the solution has the next `meta`; calls may name the instances that the
            messages name.
        advisors: advisor messages besides those of the context. An advisor with `on` = "start" speaks until a call has
            been made, "request" always, "finish" when the work ends; without `on` it speaks when a call asks it.
        references: whether calls may refer to one another: else parameters are values alone, and a call has no keys for
            its place among others, unless its tool defines them.

    Raises: TypeError for an object that is no tool or no `meta` message; ValueError for a tool or advisor that cannot
        be read, with its name.
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
        calls = [_call(spec, instances, defs, references=references) for spec in specs]
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


#: Keys of a call besides its parameters, in the order in which a model decides on them. A key with a schema here is
#: offered by every tool that does not refuse it (`false`), a key without one by the tools that define it.
BEFORE: Final[Mapping[str, Schema | None]] = {
    "_reasoningForCall": {"type": "string", "description": "why this tool, now"},
    "_id": {"type": "string", "minLength": 1, "description": "a name for this call, which _after may refer to"},
    "_activity": None,
    "_delegate": None,
    "_instance": None,
    "_scopes": None,
    "_after": {"type": "array", "items": {"type": "string"}, "description": "ids of calls that must end well first"},
}
BEHIND: Final[Mapping[str, Schema | None]] = {
    "_outputPath": {"type": "string", "pattern": "^†", "description": "where the result is written, as †state.name"},
    "_outputMethod": {"type": "string", "enum": ["set", "merge", "assign", "push", "concat"]},
    "_output": None,
}


def _call(spec: ToolSpec, instances: Sequence[str], defs: Schema, *, references: bool) -> Schema:
    """Return the schema of a call of one tool."""
    allow: Callable[[Any], Any] = reference_or if references else lambda schema: schema
    before = BEFORE if references else dict.fromkeys(BEFORE)
    behind = BEHIND if references else dict.fromkeys(BEHIND)
    document = Document(spec.name, spec.schema, defs, f"tool {spec.name!r}")
    root = document.resolve(spec.schema)
    given = {plain(str(key)): value for key, value in mapping(root.get("properties")).items()}
    own = partial(_own, given=given, document=document, fixed=_fixed(spec, instances))
    parameters = {
        name: allow(document.graft(schema, widened=references))
        for name, schema in given.items()
        if not name.startswith("_")
    }
    variants = {key: _variant(key, root[key], document) for key in _VARIANTS if key in root}
    for name in _named_in([root[key] for key in variants], document):
        parameters.setdefault(name, allow({}))
    others = {key: None for key in given if key.startswith("_") and key not in {"_tool", *BEFORE, *BEHIND}}
    properties: Schema = {
        "_tool": {"const": plain(spec.name)},
        **own(before),
        **own(others),
        **parameters,
        **own({key: schema for key, schema in behind.items() if key != "_output" or spec.is_latent}),
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
    """Return the schemas for `_activity` and `_instance` of a call, which a tool does not choose."""
    fields: dict[str, Schema] = {} if spec.activity is None else {"_activity": {"const": spec.activity}}
    if instances:
        fields["_instance"] = {"type": "string", "enum": list(instances)}
    return fields


def _own(
    offered: Mapping[str, Schema | None], *, given: Mapping[str, Any], document: Document, fixed: Mapping[str, Schema]
) -> Schema:
    """Return the schemas of a call's own keys (`_…`) that a tool offers: its own ones, else the usual ones."""
    fields: Schema = {}
    for key, usual in offered.items():
        if given.get(key) is False:
            continue
        if key in given and key != "_activity":
            fields[key] = document.graft(given[key])
        elif key in fixed:
            fields[key] = plain(fixed[key])
        elif usual is not None:
            fields[key] = copied(usual)
    return fields


_VARIANTS = ("allOf", "anyOf", "oneOf", "if", "then", "else", "dependentRequired", "dependentSchemas")
#: Keywords about the object as a whole, which the call's own keys would violate.
_OF_THE_WHOLE = frozenset({"additionalProperties", "unevaluatedProperties", "maxProperties", "minProperties",
                           "propertyNames", "patternProperties"})  # fmt: skip


def _variant(key: str, part: Any, document: Document, above: tuple[str, ...] = ()) -> Any:
    """Return a condition on several parameters together (`anyOf`, `if`, …), without its keywords about other keys.

    `above` holds the references that led here; a reference that leads to itself becomes `True`.
    """
    if key == "dependentRequired":
        return plain(part)
    if isinstance(part, (list, tuple)):
        return [_variant("", item, document, above) for item in part]
    if key == "dependentSchemas":
        return {plain(str(name)): _variant("", item, document, above) for name, item in mapping(part).items()}
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
    # `if` tests the value itself; everywhere else a reference may stand for a value.
    return {**document.graft(rest, widened=key != "if"), **nested}


def _named_in(parts: Sequence[Any], document: Document) -> list[str]:
    """Return the parameters that only such conditions name."""
    names: dict[str, None] = {}
    level, depth = list(parts), 0
    while level and depth < 20:
        below: list[Any] = []
        for part in level:
            if isinstance(part, (list, tuple)):
                below.extend(part)
            elif isinstance(part := document.resolve(part), Mapping):
                names.update(dict.fromkeys(map(str, mapping(part.get("properties")))))
                below.extend(part[key] for key in _VARIANTS if key in part and key != "dependentRequired")
                below.extend(mapping(part.get("dependentSchemas")).values())
        level, depth = below[:1_000], depth + 1
    return [plain(name) for name in names if not name.startswith("_")]


def _description(spec: ToolSpec, root: Mapping[str, Any]) -> str:
    """Return the tool's description, with the schema of its result where the model does not write that itself."""
    description = root.get("description")
    text = plain(description) if isinstance(description, str) else ""
    returns = spec.properties.get("_output")
    if spec.is_latent or not isinstance(returns, Mapping):
        return text
    returns_text = head_and_tail(to_json(plain(returns)), _RETURNS_LIMIT)
    return "\n".join(part for part in (text, f"Returns: {returns_text}") if part)


# -- the answer


def _answer(output: Mapping[str, Any] | None, defs: Schema) -> Schema:
    """Return the schema of the answer. It also allows null, and it forbids properties that it does not name, unless it
    says otherwise."""
    if output is None:
        return {"type": list(_ANYTHING)}
    if not isinstance(output, Mapping):
        raise TypeError(f"output is a JSON schema, found {type(output).__name__}")
    answer: Schema = Document("output", output, defs, "the output").graft(output)
    is_combined = any(key in answer for key in ("$ref", "allOf", "anyOf", "oneOf", "if", "not"))
    kinds = answer.get("type")
    if "properties" in answer and not is_combined:
        answer.setdefault("additionalProperties", False)
    if is_combined or "const" in answer or "enum" in answer or kinds is None:
        return {"anyOf": [answer, {"type": "null"}]}
    kinds = [kinds] if isinstance(kinds, str) else list(kinds)
    return {**answer, "type": kinds if "null" in kinds else [*kinds, "null"]}


# -- meta


def _meta(messages: Sequence[Mapping[str, Any]], defs: Schema) -> Schema | None:
    """Return the schema of the next `meta`: the same domain and path, a version, the time; None where none is there."""
    metas = [message for message in messages if message.get("type") == "meta" or message.get("kind") == "meta"]
    if not metas:
        return None
    now = next(iter(Board(metas).messages_of(["meta"])), {})
    if isinstance(given := now.get("schema"), Mapping):
        grafted: Schema = Document("meta", given, defs, "the meta message").graft(given)
        return grafted
    known = mapping(now.get("data"))
    fixed_fields = {key: {"const": known[key]} if isinstance(known.get(key), str) else {"type": "string"}
            for key in ("domain", "path")}  # fmt: skip
    properties: Schema = {
        **fixed_fields,
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
    """Return the instances that messages name, in the order of appearance."""
    names = (message.get("_instance") for message in messages)
    return list(dict.fromkeys(plain(name) for name in names if isinstance(name, str) and name))
