"""The routes of the control API: their document, who may use them, and what they answer to wrong inputs."""

from __future__ import annotations

import http.client
import json
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from spar.data.text import printable
from spar.server.api.route import ApiRoute
from spar.server.routes.control import control_routes, described
from spar.service.app import Service
from spar.service.token_rows import SCOPES
from tests.process.conftest import _Socket
from tests.recorded.world import World

ROUTES: list[ApiRoute] = list(control_routes(cast(Service, None)))
#: What stands for each parameter of a path: nothing of that name is there.
NOBODY = {"target": "none:none", "name": "none", "phase": "none", "verb": "none"}


def name_of(route: ApiRoute) -> str:
    return f"{route.method} {route.plain_path}"


def document() -> str:
    """Return the OpenAPI document as indented JSON."""
    return json.dumps(described(), indent=1, ensure_ascii=False) + "\n"


def scopes(world: World) -> str:
    """Return a line for each route and each kind of caller, with the status of the answer.

    Nothing is there that the paths name, and bodies are empty, so that nothing is changed.
    """
    tokens = {"no token": ""}
    for scope in SCOPES:
        tokens[scope] = world.ask("POST", "/v1/tokens", {"name": f"only-{scope}", "scopes": [scope]})["token"]
    assert world.service is not None
    port = urlsplit(world.service.address).port
    lines = []
    for route in ROUTES:
        path, body = _path(route), b"{}" if route.body is not None else b""
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
        if route.body is not None:
            cases += [(body, path, body.encode()) for body in ('{"nonsense": 1}', "{")]
            if isinstance(route.body, type) and issubclass(route.body, msgspec.Struct):
                field = msgspec.structs.fields(route.body)[0].encode_name
                cases.append((body := json.dumps({field: {"nonsense": [1]}}), path, body.encode()))
        if route.param_convertors:
            cases.append(("unknown id", path, _usual(route)))
        for parameter in msgspec.structs.fields(route.query):
            query = f"?{parameter.encode_name}=%00"
            cases.append((query, f"{path}{query}", _usual(route)))
        for given, target, body in cases:
            status, content = _ask(world, route.method, target, body)
            lines.append(f"{name_of(route)}  {given}  {status}  {_detail(content)}".rstrip())
    return "\n".join(lines) + "\n"


def _path(route: ApiRoute) -> str:
    return route.plain_path.format_map({name: NOBODY.get(name, "none") for name in route.param_convertors})


def _usual(route: ApiRoute) -> bytes:
    """Return a body that lacks nothing but sense."""
    if not (isinstance(route.body, type) and issubclass(route.body, msgspec.Struct)):
        return b""
    simple: dict[Any, Any] = {str: "none", bool: True, int: 1, float: 1.0}
    fields = (field for field in msgspec.structs.fields(route.body) if field.required)
    return json.dumps({field.encode_name: simple.get(field.type, "none") for field in fields}).encode()


def _ask(world: World, method: str, path: str, body: bytes) -> tuple[int, bytes]:
    """Ask as the owner, over the socket."""
    return _answer(_Socket(world.spar.state / "control.sock"), method, path, body, {})


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
