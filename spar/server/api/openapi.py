"""OpenAPI document of the control API (https://spec.openapis.org/oas/v3.1.0), built from its operations.

The operations are the only source: paths and their parameters, types of bodies and answers, and the needed scopes.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec
from msgspec.structs import FieldInfo

from spar import __version__
from spar.decoding import schema_components
from spar.operations.fields import is_list, meaning, schema_of
from spar.operations.operation import Operation, Stream
from spar.server.api.dispatch import body_type
from spar.server.api.repeated import LONGEST_KEY
from spar.server.problems import STATUS_OF, ProblemBody
from spar.service.token_rows import SCOPES

#: The description of each field in paths.
PATH_PARAMETERS: Final = {
    "run_id": "The id of a run.",
    "cycle_id": "The id of a cycle.",
    "key": "The key of a session; a slash in it may stand as `%2F`, a colon as `%3A`.",
    "sensor": "The name of a sensor.",
    "node": "The name or the token of a node.",
    "id": "The id, or a unique beginning of it; a slash in it may stand as `%2F`.",
    "name": "The name.",
    "stop": "The id of a stop at a breakpoint.",
}
#: Refusals of any operation, besides those of `STATUS_OF`.
_REFUSALS: Final = {
    401: "No token, or one that is not known or has expired.",
    403: "The token has not the scope that is needed, or a web page of another origin asks.",
}
#: The header of a read with the tag of the answer that the client has.
_KNOWN_TAG: Final = {
    "name": "If-None-Match", "in": "header", "required": False, "schema": {"type": "string"},
    "description": "The `ETag` of an answer that the client has; the same answer is a 304 without a body.",
}  # fmt: skip
#: The header of a change by which a repetition is recognized.
_KEY: Final = {
    "name": "Idempotency-Key", "in": "header", "required": False,
    "schema": {"type": "string", "maxLength": LONGEST_KEY},
    "description": "A change with the same key and content is made once, and answered as the first time, for a day.",
}  # fmt: skip
_REF: Final = "#/components/schemas/{name}"
_PROBLEM: Final = {"application/problem+json": {"schema": {"$ref": _REF.format(name=ProblemBody.__name__)}}}


def document(operations: Iterable[Operation[Any, Any]]) -> dict[str, Any]:
    """Return the OpenAPI document of these operations, as JSON values."""
    operations = list(operations)
    types = [
        ProblemBody,
        *(kind for operation in operations for kind in (*_bodies(operation), operation.answer) if kind is not Stream),
    ]
    schemas, components = schema_components(types, ref_template=_REF)
    by_type = list(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(plain_path(operation), {})[operation.method.lower()] = _operation(operation, by_type)
    openapi: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "spar",
            "version": __version__,
            "summary": "The control API of a continuous agent.",
            "description": "On the control socket the owner of the process needs no token and may do everything; at "
            "`service.host` and `service.port` each request needs a token with the scope that its operation names. "
            "A HEAD is answered as a GET.",
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": components,
            "parameters": {"known": _KNOWN_TAG, "key": _KEY},
            "responses": {
                "refusal": {"description": _statuses(), "content": _PROBLEM},
                "unchanged": {"description": "The client has this answer already."},
            },
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": f"A token of `spar tokens create NAME --scopes …`; scopes: {', '.join(SCOPES)}. "
                    "`admin` has the rights of all others.",
                }
            },
        },
    }
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(openapi))
    return plain


def summary_of(operation: Operation[Any, Any]) -> str:
    """Return the description of an operation as one line."""
    return re.sub(r"\s+", " ", inspect.cleandoc(operation.does)).strip()


def plain_path(operation: Operation[Any, Any]) -> str:
    """Return the path of an operation without the types of its parameters."""
    return re.sub(r"\{(\w+):\w+\}", r"{\1}", operation.path)


def has_body(operation: Operation[Any, Any]) -> bool:
    """Return whether a request for an operation has a body."""
    return operation.method != "GET" and bool(operation.other_fields)


def query_fields(operation: Operation[Any, Any]) -> tuple[FieldInfo, ...]:
    """Return the fields that are parameters of the query."""
    return operation.other_fields if operation.method == "GET" else ()


def _bodies(operation: Operation[Any, Any]) -> list[Any]:
    return [body_type(operation)] if has_body(operation) and not operation.is_free else []


def _operation(operation: Operation[Any, Any], by_type: list[tuple[Any, dict[str, Any]]]) -> dict[str, Any]:
    """Return the operation object of an operation."""
    summary = summary_of(operation)
    first, point, _ = summary.partition(". ")
    described: dict[str, Any] = {
        "operationId": operation.name.replace(" ", "_").replace("-", "_"),
        "tags": [operation.name.split()[0]],
        "summary": first + point.strip(),
        "security": [{"token": [operation.scope]}],
        "parameters": [*map(_path_parameter, operation.path_fields), *map(_parameter, query_fields(operation))],
        "responses": {
            str(operation.status): {
                "description": HTTPStatus(operation.status).phrase, "content": _answer(operation, by_type)
            },
            **{str(status): {"description": text, "content": _PROBLEM} for status, text in _REFUSALS.items()},
            "default": {"$ref": "#/components/responses/refusal"},
        },
    }  # fmt: skip
    if first != summary:
        described["description"] = summary
    if not operation.is_read:
        described["parameters"].append({"$ref": "#/components/parameters/key"})
    if operation.method == "GET" and operation.streams is None:
        described["parameters"].append({"$ref": "#/components/parameters/known"})
        described["responses"]["304"] = {"$ref": "#/components/responses/unchanged"}
        described["responses"][str(operation.status)]["headers"] = {"ETag": {"schema": {"type": "string"}}}
    if has_body(operation):
        fields = operation.other_fields
        schema: Mapping[str, Any] = {} if operation.is_free else _schema(body_type(operation), by_type)
        is_needed = any(field.required for field in fields)
        described["requestBody"] = {"required": is_needed, "content": {"application/json": {"schema": schema}}}
    return described


def _path_parameter(name: str) -> dict[str, Any]:
    """Return the parameter object of a parameter in the path."""
    return {"name": name, "in": "path", "required": True, "description": PATH_PARAMETERS[name],
            "schema": {"type": "string"}}  # fmt: skip


def _parameter(field: FieldInfo) -> dict[str, Any]:
    """Return the parameter object of a query parameter."""
    more = {"style": "form", "explode": True} if is_list(field) else {}
    return {"name": field.encode_name, "in": "query", "required": False, "description": meaning(field),
            "schema": schema_of(field), **more}  # fmt: skip


def _answer(operation: Operation[Any, Any], by_type: list[tuple[Any, dict[str, Any]]]) -> dict[str, Any]:
    """Return the content object of an operation's answer."""
    if operation.answer is Stream:
        return {"text/event-stream": {"schema": {"type": "string"}}}
    return {"application/json": {"schema": _schema(operation.answer, by_type)}}


def _schema(kind: Any, by_type: list[tuple[Any, dict[str, Any]]]) -> dict[str, Any]:
    return next(schema for candidate, schema in by_type if candidate is kind or candidate == kind)


def _statuses() -> str:
    """Return the sentence that lists the statuses of refusals."""
    numbers = sorted({status for _, status in STATUS_OF} | {500})
    return f"A refusal, as RFC 9457 has it: {', '.join(f'{number} {HTTPStatus(number).phrase}' for number in numbers)}."
