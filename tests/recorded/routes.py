"""The routes of the control API: their document, who may use them, and what they answer to wrong inputs."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from spar.data.text import printable
from spar.operations.operation import Operation
from spar.server.api.openapi import has_body, plain_path, query_fields
from spar.server.routes.applications import described, served
from spar.service.token_rows import SCOPES
from tests.ports import SocketConnection
from tests.recorded.world import World

ROUTES = served()


def name_of(route: Operation[Any, Any]) -> str:
    return f"{route.method} {plain_path(route)}"


def document() -> str:
    """Return the OpenAPI document as indented JSON."""
    return json.dumps(described(), indent=1, ensure_ascii=False) + "\n"


def scopes(world: World) -> str:
    """Return a line for each route and each kind of caller, with the status of the answer.

    Nothing is there that the paths name, and changes have a parameter that none knows, so that nothing is changed.
    """
    tokens = {"no token": ""}
    for scope in SCOPES:
        tokens[scope] = world.ask("POST", "/v1/tokens", {"name": f"only-{scope}", "scopes": [scope]})["token"]
    port = urlsplit(world.service.address).port
    lines = []
    for route in ROUTES:
        path, body = _path(route), b"{}" if has_body(route) else b""
        if route.method != "GET":
            path += "?nonsense=1"
        for caller, token in tokens.items():
            headers = {"authorization": f"Bearer {token}"} if token else {}
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            lines.append(f"{name_of(route)}  {caller}  {_answer(connection, route.method, path, body, headers)[0]}")
        lines.append(f"{name_of(route)}  owner  {_ask(world, route.method, path, body)[0]}")
    return "\n".join(lines) + "\n"


def wrong_inputs(world: World) -> str:
    """Return a line for each route and each wrong input of the owner, with the status and the reason."""
    lines = []
    for route in ROUTES:
        path = _path(route)
        cases = [("?nonsense=1", f"{path}?nonsense=1", _usual(route))]
        if has_body(route):
            cases += [(body, path, body.encode()) for body in ('{"nonsense": 1}', "{")]
            if not route.is_free:
                field = route.other_fields[0].encode_name
                cases.append((body := json.dumps({field: {"nonsense": [1]}}), path, body.encode()))
        if route.path_fields:
            cases.append(("unknown id", path, _usual(route)))
        for parameter in query_fields(route):
            query = f"?{parameter.encode_name}=%00"
            cases.append((query, f"{path}{query}", _usual(route)))
        for given, target, body in cases:
            status, content = _ask(world, route.method, target, body)
            lines.append(f"{name_of(route)}  {given}  {status}  {_detail(content)}".rstrip())
    return "\n".join(lines) + "\n"


def _path(route: Operation[Any, Any]) -> str:
    return plain_path(route).format_map(dict.fromkeys(route.path_fields, "none"))


def _usual(route: Operation[Any, Any]) -> bytes:
    """Return a body that lacks nothing but sense."""
    if not has_body(route) or route.is_free:
        return b""
    simple: dict[Any, Any] = {str: "none", bool: True, int: 1, float: 1.0}
    fields = (field for field in route.other_fields if field.required)
    return json.dumps({field.encode_name: simple.get(field.type, "none") for field in fields}).encode()


def _ask(world: World, method: str, path: str, body: bytes) -> tuple[int, bytes]:
    """Ask as the owner, over the socket."""
    return _answer(SocketConnection(world.spar.state / "control.sock", 300.0), method, path, body, {})


def _answer(connection: http.client.HTTPConnection, method: str, path: str, body: bytes,
            headers: dict[str, str]) -> tuple[int, bytes]:  # fmt: skip
    """Return the status of an answer and its body; of a stream only the status."""
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        is_stream = (response.getheader("content-type") or "").startswith("text/event-stream")
        return response.status, b"" if is_stream else response.read()
    finally:
        connection.close()


def _detail(content: bytes) -> str:
    """Return the reason of a refusal, "" of an answer that is none."""
    try:
        value = json.loads(content)
    except ValueError:
        return ""
    return printable(" ".join(str(value.get("detail", "")).split())) if isinstance(value, dict) else ""
