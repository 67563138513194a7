"""Merger of JSON schemas: parts of several documents are copied into one, and widened to allow references; pure.

A copied schema takes its definitions along: each target of its local `$ref`s is copied to the `$defs` of the new
document under a new name. Keywords of older dialects are changed to 2020-12, as far as planners need them. A reference
that leads out of the document and a keyword with a value of the wrong type are dropped: the executor validates
parameters by the tool's own schema anyway. Nothing is loaded from the network.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

from spar.data.json_safe import plain
from spar.data.json_schema import at_pointer, is_schema

MAX_DEPTH: Final = 100
MAX_SCHEMAS: Final = 20_000
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_.-]+")

_SCHEMAS = frozenset({"additionalProperties", "contains", "contentSchema", "else", "if", "items", "not",
                      "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"})  # fmt: skip
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_MAPS = frozenset({"dependentSchemas", "patternProperties", "properties"})
_REFS = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
#: Keywords that name a place or a dialect of the old document; they are not copied.
_LEFT = frozenset({"$anchor", "$comment", "$defs", "$dynamicAnchor", "$id", "$recursiveAnchor", "$schema",
                   "$vocabulary", "additionalItems", "definitions", "id"})  # fmt: skip
#: Keywords whose schemas describe a value, which a reference may stand for ...
_VALUES = frozenset({"additionalProperties", "items", "patternProperties", "prefixItems", "properties"})
#: ... but not below these, which exclude values or test them: to allow more there would forbid more.
_ASKING = frozenset({"contains", "if", "not", "propertyNames", "unevaluatedItems", "unevaluatedProperties"})


#: The schema of a reference.
REFERENCE: Final[Mapping[str, Any]] = {"type": "string", "pattern": "^†"}


def reference_or(schema: Any) -> dict[str, Any]:
    """Return a schema that allows a value of `schema`, or a reference in its place."""
    return {"anyOf": [schema, dict(REFERENCE)]}


class Document:
    """Schema document whose parts are copied into another document, which has the definitions `defs`.

    `name` is the beginning of the names in `defs`; `subject` names the document in errors.
    """

    def __init__(self, name: str, root: Mapping[str, Any], defs: dict[str, Any], subject: str) -> None:
        self.root, self._defs, self._subject = root, defs, subject
        self._name = _NOT_A_NAME.sub("_", name) or "_"
        self._taken: dict[tuple[int, bool], str] = {}
        self._room = MAX_SCHEMAS
        #: Whether all that is copied is valid as a whole, so that no keyword need be looked at by itself.
        self._is_valid = is_schema(root)

    def spend(self) -> None:
        """Count one more copied schema. Raises: ValueError after `MAX_SCHEMAS`, because parts may hold each other."""
        self._room -= 1
        if self._room < 0:
            raise ValueError(f"{self._subject}: its schema has more than {MAX_SCHEMAS} parts")

    def graft(self, schema: Any, *, widened: bool = False) -> Any:
        """Return a copy of a part of the document, whose local references lead to `defs`.

        With `widened` the copy also allows references in the place of values inside.
        Raises: ValueError for a part that is no schema, or is nested too deeply.
        """
        waiting: list[tuple[str, Any, bool]] = []
        copy = self._copy(schema, widened, 0, waiting)
        while waiting:
            key, target, wide = waiting.pop()
            self._defs[key] = self._copy(target, wide, 0, waiting)
        return copy

    def resolve(self, schema: Any) -> Any:
        """Return the target of a schema's `$ref`, with its other keywords; without a target the schema itself."""
        for _ in range(MAX_DEPTH):
            ref = schema.get("$ref") if isinstance(schema, Mapping) else None
            target = self._find(ref) if isinstance(ref, str) else None
            if not isinstance(target, Mapping):
                break
            schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
        return schema

    def _copy(self, schema: Any, wide: bool, depth: int, waiting: list[tuple[str, Any, bool]]) -> Any:
        self.spend()
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, Mapping):
            raise ValueError(f"{self._subject}: a schema is an object or a boolean, found {type(schema).__name__}")
        if depth > MAX_DEPTH:
            raise ValueError(f"{self._subject}: its schema is nested more than {MAX_DEPTH} levels deep")

        def below(key: str, part: Any) -> Any:
            part_copy = self._copy(part, wide and key not in _ASKING, depth + 1, waiting)
            # A constant tells which of several forms an object has: no reference may replace it.
            is_value = (
                wide
                and key in _VALUES
                and part_copy is not False
                and not (isinstance(part_copy, dict) and "const" in part_copy)
            )
            return reference_or(part_copy) if is_value else part_copy

        copy: dict[str, Any] = {}
        for key, value in schema.items():
            if key in _LEFT:
                continue
            if key in _REFS:
                if isinstance(value, str) and (name := self._take(value, wide, waiting)):
                    copy["$ref"] = f"#/$defs/{name}"
            elif key == "items" and isinstance(value, (list, tuple)):  # before 2020-12
                copy["prefixItems"] = [below("prefixItems", part) for part in value]
                if "additionalItems" in schema:
                    copy["items"] = below("items", schema["additionalItems"])
            elif key in _SCHEMAS:
                copy[key] = below(key, value)
            elif key in _LISTS and isinstance(value, (list, tuple)) and value:
                copy[key] = [below(key, part) for part in value]
            elif key in _MAPS and isinstance(value, Mapping):
                copy[key] = {plain(str(name)): below(key, part) for name, part in value.items()}
            elif key not in _LISTS and key not in _MAPS:
                keyword = {plain(str(key)): plain(value)}
                copy |= keyword if self._is_valid or is_schema(keyword) else {}
        return copy

    def _take(self, ref: str, wide: bool, waiting: list[tuple[str, Any, bool]]) -> str | None:
        """Return the name in `defs` of a reference's target, which is copied there once; None without a target."""
        target = self._find(ref)
        if target is None:
            return None
        self._is_valid = self._is_valid and is_schema(target)
        name = self._taken.get((id(target), wide))
        if name is None:
            last = _NOT_A_NAME.sub("_", unquote(ref).rstrip("#/").rpartition("/")[2].lstrip("#")) or "root"
            name, count = f"{self._name}.{last}", 1
            while name in self._defs:
                count += 1
                name = f"{self._name}.{last}.{count}"
            self._taken[(id(target), wide)] = name
            self._defs[name] = True  # reserves the place: definitions stand in the order of their first reference
            waiting.append((name, target, wide))
        return name

    def _find(self, ref: str) -> Any:
        """Return the part of the document that a reference names by pointer or anchor; None if there is none."""
        base, _, fragment = ref.partition("#")
        if base and base != str(self.root.get("$id", "")).partition("#")[0]:
            return None
        fragment = unquote(fragment)
        if not fragment:
            return self.root
        if not fragment.startswith("/"):
            return _anchored(self.root, fragment)
        here = at_pointer(self.root, fragment)
        return here if isinstance(here, (Mapping, bool)) else None


def _anchored(root: Mapping[str, Any], name: str) -> Any:
    """Return the first schema below `root` with this anchor."""
    level: list[Any] = [root]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for part in level:
            if isinstance(part, Mapping):
                if name in (part.get("$anchor"), part.get("$dynamicAnchor")):
                    return part
                below.extend(part.values())
            elif isinstance(part, (list, tuple)):
                below.extend(part)
        level = below[:100_000]
    return None
