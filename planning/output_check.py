"""Check of final outputs: it replaces references by their values and validates the output by its schema. Pure.

The rules are the same as for calls and their results (`spar.data.paths`, `spar.data.json_schema`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Final

from spar.data.blackboard import Board
from spar.data.json_safe import NotJsonError, whole
from spar.data.json_schema import Output
from spar.data.paths import BadReferenceError, ValueTooLargeError, marked, references, resolve

#: Largest size as JSON, in bytes. An output is never cut here; whoever shows it may cut it.
_LARGEST: Final = 64 << 20


def close_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of an output as it is sent: unless it says otherwise, it allows only its named properties."""
    is_combined = any(key in schema for key in ("$ref", "allOf", "anyOf", "oneOf", "if", "not"))
    if is_combined or not isinstance(schema.get("properties"), Mapping) or "additionalProperties" in schema:
        return schema
    return {**schema, "additionalProperties": False}


class OutputCheck:
    """Check of outputs by a schema (None: any value fits). Raises: ConfigError for a schema that cannot be used."""

    def __init__(self, schema: Mapping[str, Any] | None) -> None:
        self._schema = None if schema is None else Output("output", close_schema(schema))

    def check(self, output: Any, context: Iterable[Mapping[str, Any]]) -> tuple[Any, str]:
        """Return the output with its references resolved against `context`, and "".

        If something is wrong, return None and a sentence for the model.
        """
        try:
            if marked(output):
                board = Board(context)
                for expression in chain.from_iterable(references({"output": output}).values()):
                    if not board.knows(expression):
                        return None, f"nothing stands at {str(expression)!r} and no call writes it"
                output = resolve(output, board.look)
            elif self._schema is None:
                return output, ""
            output = whole(output, _LARGEST)
        except BadReferenceError as error:
            return None, str(error)
        except (ValueTooLargeError, NotJsonError) as error:
            return None, f"the output cannot be used: {error}"
        problem = None if self._schema is None else self._schema.check(output)
        return (output, "") if problem is None else (None, problem)
