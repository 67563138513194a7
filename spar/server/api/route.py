"""Route of the control API: a path and its handler, with all that is told of it and asked before it is called.

The handler's signature says what it takes: `query`, a structure that the query is read into, and `body`, a structure
that the body is decoded into (`bytes`: the handler reads it itself). Nobody reads a query or a body in another way.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Final, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from spar.server.api.query import NoQuery, read_query
from spar.service.token_rows import Scope

Method = Literal["GET", "POST", "PATCH", "DELETE"]
#: Parameters in paths, and what each is.
PATH_PARAMETERS: Final = {
    "target": "The name of what is meant, a colon, and what is to be done with it.",
    "run_id": "The id of a run.",
    "cycle_id": "The id of a cycle.",
    "session": "The key of a session; a slash in it may stand as `%2F`.",
    "key": "The key of a session; a slash in it may stand as `%2F`.",
    "sensor": "The name of a sensor.",
    "id": "The id, or a unique beginning of it; a slash in it may stand as `%2F`.",
    "verb": "One of the verbs that the request names.",
    "name": "The name.",
}


class ApiRoute(Route):
    """One route.

    Args:
        scope: The right that a token needs for it.
        status: The status of its answer when all went well.
        answer: The type of its answer, `Any` where that is no type of ours; None for a stream of events.
        verbs: The words that `target` may end with behind its colon, or that `verb` may be.
    """

    def __init__(self, method: Method, path: str, handler: Callable[..., Awaitable[Response]], scope: Scope, *,
                 status: int = 200, answer: Any = Any, verbs: tuple[str, ...] = ()) -> None:  # fmt: skip
        self.method, self.scope, self.status, self.answer = method, scope, status, answer
        self.handler, self.verbs = handler, verbs
        parameters = inspect.signature(handler, eval_str=True).parameters
        self.query: type[msgspec.Struct] = parameters["query"].annotation if "query" in parameters else NoQuery
        self.body: Any = parameters["body"].annotation if "body" in parameters else None

        @wraps(handler)
        async def endpoint(request: Request) -> Response:
            given: dict[str, Any] = {}
            query = read_query(request.query_params, self.query)
            if self.query is not NoQuery:
                given["query"] = query
            if self.body is not None:
                body = await request.body()
                given["body"] = body if self.body is bytes else decoded(body, self.body)
            return await handler(request, **given)

        super().__init__(path, endpoint, methods=[method])

    @property
    def plain_path(self) -> str:
        """The path without the types of its parameters."""
        return re.sub(r"\{(\w+):\w+\}", r"{\1}", self.path)


def decoded(body: bytes, kind: Any) -> Any:
    """Return a body as a value of a type. Raises: ValueError."""
    try:
        return msgspec.json.decode(body, type=kind)
    except RecursionError:
        raise ValueError("the body cannot be read: it is nested too deeply") from None
    except msgspec.DecodeError as error:
        raise ValueError(f"the body cannot be read: {error}") from None
