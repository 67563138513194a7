"""Route of the control API: a path and its handler, with the needed scope and the types of query, body and answer.

The signature of the handler defines its input: `query` is a structure into which the query is read, `body` one into
which the body is decoded (`bytes`: the handler decodes it itself). No handler reads query or body in another way.

A handler that only reads is cancelled when its client has gone, so that no wait is kept for nobody. One that changes
something is carried out to its end, since its change has begun.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Final, Literal

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope as Scope_

from spar.decoding import decode
from spar.server.api.query import NoQuery, read_query
from spar.service.token_rows import Scope

Method = Literal["GET", "POST", "PATCH", "DELETE"]
#: The description of each parameter in paths.
PATH_PARAMETERS: Final = {
    "target": "The name or id of the object, a colon, and the verb.",
    "run_id": "The id of a run.",
    "cycle_id": "The id of a cycle.",
    "key": "The key of a session; a slash in it may stand as `%2F`, a colon as `%3A`.",
    "sensor": "The name of a sensor.",
    "id": "The id, or a unique beginning of it; a slash in it may stand as `%2F`.",
    "verb": "One of the verbs that the request names.",
    "name": "The name.",
    "phase": "A phase of the cycle.",
}


class ApiRoute(Route):
    """Route of the control API.

    Args:
        scope: The scope that a token needs for it.
        status: The HTTP status of a successful answer.
        answer: The type of its answer; `Any`: no fixed type; None: a stream of events.
        verbs: The accepted verbs after the colon of `target`, or of the parameter `verb`.
    """

    def __init__(self, method: Method, path: str, handler: Callable[..., Awaitable[Response]], scope: Scope, *,
                 status: int = 200, answer: Any = Any, verbs: tuple[str, ...] = ()) -> None:  # fmt: skip
        self.method, self.scope, self.status, self.answer = method, scope, status, answer
        self.handler, self.verbs = handler, verbs
        is_read = method == "GET" or scope == "read"
        parameters = inspect.signature(handler, eval_str=True).parameters
        self.query: type[msgspec.Struct] = parameters["query"].annotation if "query" in parameters else NoQuery
        self.body: Any = parameters["body"].annotation if "body" in parameters else None

        @wraps(handler)
        async def endpoint(request: Request) -> Response:
            arguments: dict[str, Any] = {}
            query = read_query(request.query_params, self.query)
            if self.query is not NoQuery:
                arguments["query"] = query
            if self.body is not None:
                body = await request.body()
                arguments["body"] = body if self.body is bytes else decoded(body, self.body)
            answering = handler(request, **arguments)
            return await (_while_connected(request, answering) if is_read else answering)

        super().__init__(path, endpoint, methods=[method])

    def matches(self, scope: Scope_) -> tuple[Match, Scope_]:
        """Return whether a request is for this route.

        A verb after the id of something that is read has its colon as it is; an id that ends in the same text has it
        as `%3A`.
        """
        verb, raw = self.path.rpartition(":")[2], scope.get("raw_path") or b""
        is_verb = self.method == "GET" and self.path.endswith(f"}}:{verb}") and bool(raw)
        if is_verb and not raw.partition(b"?")[0].endswith(f":{verb}".encode()):
            return Match.NONE, {}
        return super().matches(scope)

    @property
    def plain_path(self) -> str:
        """Return the path without the types of its parameters."""
        return re.sub(r"\{(\w+):\w+\}", r"{\1}", self.path)


async def _while_connected(request: Request, answering: Awaitable[Response]) -> Response:
    """Return the answer of a handler; cancel the handler when the client has gone. Raises: ClientDisconnect."""
    handler, leaving = asyncio.ensure_future(answering), asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((handler, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not handler.done():
            handler.cancel()
            await asyncio.wait((handler,))
            leaving.result()  # the body of a read is dropped; it may be too large
        if handler.cancelled() and leaving.done():
            raise ClientDisconnect
        return await handler  # an answer that was ready all the same has to be closed by itself
    finally:
        handler.cancel()
        if not leaving.cancel() and not leaving.cancelled():
            leaving.exception()  # retrieved here: the handler was faster


async def _left(request: Request) -> None:
    """Return when the client of a request has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def decoded(body: bytes, kind: Any) -> Any:
    """Decode a body into a value of a type. Raises: ValueError."""
    try:
        return decode(body, kind)
    except RecursionError:
        raise ValueError("the body cannot be read: it is nested too deeply") from None
    except msgspec.DecodeError as error:
        raise ValueError(f"the body cannot be read: {error}") from None
