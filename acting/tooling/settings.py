"""Judge of the settings that a program gives to an executor, by the types of their fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import Struct

from spar.checks import shorten
from spar.decoding import convert, misfit, worded
from spar.errors import ConfigError

S = TypeVar("S", bound=Struct)


def settings_of(kind: type[S], values: Mapping[str, Any], about: str, path: tuple[str, ...] = ()) -> S:
    """Return the settings that a program gives as a value of a flat structure; the description of a field says what it
    must be where its type does not.

    Args: about: what they are for; path: their place in the configuration. Raises: ConfigError that names the setting,
        what was found and what is allowed.
    """
    try:
        return convert(values, kind)
    except msgspec.ValidationError as error:
        wrong, fields = misfit(error), {field.name: field for field in msgspec.structs.fields(kind)}
    if wrong.unknown is not None:
        sentence = f"no setting {wrong.unknown!r} for {about}; known: {', '.join(fields)}"
        raise ConfigError(sentence, path=(*path, wrong.unknown))
    name = str(wrong.steps[0]) if wrong.steps else ""
    expected = worded(wrong.message.removeprefix("Expected ").partition(", got ")[0])
    if name in fields:
        described = [meta.description for meta in getattr(fields[name].type, "__metadata__", ()) if meta.description]
        choices = get_args(fields[name].type) if "enum value" in expected else ()
        expected = " or ".join(map(repr, choices)) or (*described, expected)[0]
    where = ".".join((*path, name))
    raise ConfigError(f"{where} is {shorten(values.get(name))}, expected {expected}", path=(*path, name))
