"""OpenAPI document of the control API (https://spec.openapis.org/oas/v3.1.0), built from its routes.

The routes are the only source: paths and their parameters, types of bodies and answers, and the needed scopes.
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
from spar.server.api.query import is_list, meaning, schema_of
from spar.server.api.route import PATH_PARAMETERS, ApiRoute
from spar.server.problems import STATUS_OF, ProblemBody
from spar.service.token_rows import SCOPES
from spar.types import PHASES

#: Refusals of any route, besides those of `STATUS_OF`.
_REFUSALS: Final = {
    401: "No token, or one that is not known or has expired.",
    403: "The token has not the scope that is needed, or a web page of another origin asks.",
}
_REF: Final = "#/components/schemas/{name}"
_PROBLEM: Final = {"application/problem+json": {"schema": {"$ref": _REF.format(name=ProblemBody.__name__)}}}


def document(routes: Iterable[ApiRoute]) -> dict[str, Any]:
    """Return the OpenAPI document of these routes, as JSON values."""
    routes = list(routes)
    types = [ProblemBody, *(kind for route in routes for kind in (route.body, route.answer) if _has_schema(kind))]
    schemas, components = schema_components(types, ref_template=_REF)
    by_type = list(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.plain_path, {})[route.method.lower()] = _operation(route, by_type)
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
            "responses": {"refusal": {"description": _statuses(), "content": _PROBLEM}},
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


def summary_of(route: ApiRoute) -> str:
    """Return the docstring of a route's handler as one line."""
    return re.sub(r"\s+", " ", inspect.cleandoc(route.handler.__doc__ or "")).strip()


def _operation(route: ApiRoute, by_type: list[tuple[Any, dict[str, Any]]]) -> dict[str, Any]:
    """Return the operation object of a route."""
    summary = summary_of(route)
    first, point, _ = summary.partition(". ")
    operation: dict[str, Any] = {
        "operationId": _id(route),
        "tags": [route.plain_path.split("/")[2].partition(":")[0].partition(".")[0]],
        "summary": first + point.strip(),
        "security": [{"token": [route.scope]}],
        "parameters": [
            *(_path_parameter(name, route) for name in route.param_convertors),
            *map(_parameter, msgspec.structs.fields(route.query)),
        ],
        "responses": {
            str(route.status): {"description": HTTPStatus(route.status).phrase, "content": _answer(route, by_type)},
            **{str(status): {"description": text, "content": _PROBLEM} for status, text in _REFUSALS.items()},
            "default": {"$ref": "#/components/responses/refusal"},
        },
    }
    if first != summary:
        operation["description"] = summary
    if route.body is not None:
        is_free = route.body is bytes
        schema: Mapping[str, Any] = {} if is_free else _schema(route.body, by_type)
        operation["requestBody"] = {"required": not is_free, "content": {"application/json": {"schema": schema}}}
    return operation


def _id(route: ApiRoute) -> str:
    """Return the unique id of an operation: the method and the words of the path."""
    return "_".join([route.method.lower(), *re.findall(r"[a-z]+", route.plain_path.removeprefix("/v1/"))])


def _path_parameter(name: str, route: ApiRoute) -> dict[str, Any]:
    """Return the parameter object of a parameter in the path."""
    schema: dict[str, Any] = {"type": "string"}
    if name == "verb":
        schema["enum"] = list(route.verbs)
    elif name == "phase":
        schema["enum"] = list(PHASES)
    elif name == "target":
        schema["pattern"] = f":({'|'.join(route.verbs)})$"
    return {"name": name, "in": "path", "required": True, "description": PATH_PARAMETERS[name], "schema": schema}


def _parameter(field: FieldInfo) -> dict[str, Any]:
    """Return the parameter object of a query parameter."""
    more = {"style": "form", "explode": True} if is_list(field) else {}
    return {"name": field.encode_name, "in": "query", "required": False, "description": meaning(field),
            "schema": schema_of(field), **more}  # fmt: skip


def _answer(route: ApiRoute, by_type: list[tuple[Any, dict[str, Any]]]) -> dict[str, Any]:
    """Return the content object of a route's answer."""
    if route.answer is None:
        return {"text/event-stream": {"schema": {"type": "string"}}}
    return {"application/json": {"schema": _schema(route.answer, by_type) if _has_schema(route.answer) else {}}}


def _schema(kind: Any, by_type: list[tuple[Any, dict[str, Any]]]) -> dict[str, Any]:
    return next(schema for candidate, schema in by_type if candidate is kind or candidate == kind)


def _has_schema(kind: Any) -> bool:
    return kind is not None and kind is not Any and kind is not bytes


def _statuses() -> str:
    """Return the sentence that lists the statuses of refusals."""
    numbers = sorted({status for _, status in STATUS_OF} | {500})
    return f"A refusal, as RFC 9457 has it: {', '.join(f'{number} {HTTPStatus(number).phrase}' for number in numbers)}."
