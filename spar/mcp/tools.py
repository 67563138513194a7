"""Tools made from the table of operations: the input of an operation is the schema of its tool."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct, to_builtins

from spar.client.async_client import AsyncClient
from spar.client.client import RefusedError, ServiceError
from spar.data.text import one_line
from spar.decoding import convert, encode, schema_components
from spar.errors import TransientError
from spar.operations.operation import Operation, operations
from spar.server.api.openapi import summary_of
from spar.service.token_rows import Scope

#: The operations that are offered, by their names.
SERVED: Final = (
    "status", "runs submit", "runs follow", "runs wait", "runs show", "runs list", "runs abort", "approvals list",
    "approvals show", "approvals decide", "memory search", "memory why", "incidents list", "incidents show",
    "cycles list", "cycles show", "why",
)  # fmt: skip
#: Bytes of an answer; events of a run that an answer holds, and characters of each in a notification.
LARGEST_ANSWER: Final = 1024 * 1024
MOST_EVENTS: Final = 200
LONGEST_PROGRESS: Final = 500


class Followed(Struct, frozen=True):
    """The last events of a stream that has ended, and the number of those before them."""

    events: list[dict[str, Any]]
    left_out: int


#: Function that tells the client how far a call is: a growing number and a line.
Progress = Callable[[float, str], Awaitable[None]]


class ToolError(Exception):
    """Error: a call was refused or failed; its text is for the model."""


class OperationTool(Struct, frozen=True):
    """Tool of one operation. `schema` is the JSON schema of its parameters, `answers` that of its structured answer."""

    operation: Operation[Any, Any]
    name: str
    description: str
    schema: dict[str, Any]
    answers: dict[str, Any]

    async def call(self, client: AsyncClient, params: Mapping[str, Any], progress: Progress) -> Any:
        """Carry out the operation and return its answer as JSON values. Raises: ToolError."""
        operation = self.operation
        try:
            given = convert(dict(params), operation.given)
        except msgspec.ValidationError as error:
            known = ", ".join(self.schema.get("properties", {})) or "none"
            raise ToolError(f"the parameters of {self.name} do not fit: {error}; known: {known}") from None
        try:
            if operation.streams is not None:
                return await _followed(client, operation, given, progress)
            answer = await client.answer(operation, given)
        except RefusedError as error:
            raise ToolError(f"{error.status}: {error.detail}") from None
        except (ServiceError, TransientError) as error:
            raise ToolError(str(error)) from None
        if (size := len(encode(answer))) > LARGEST_ANSWER:
            raise ToolError(
                f"the answer has {size} bytes, more than {LARGEST_ANSWER}: ask for less, such as by `limit`"
            )
        return answer


def structured(answer: Any) -> dict[str, Any]:
    """Return an answer as a table, as the protocol wants it: a list is its field `result`."""
    return answer if isinstance(answer, dict) else {"result": answer}


def tools_for(scopes: Collection[Scope]) -> dict[str, OperationTool]:
    """Return the tools whose operations need one of these scopes, by name; `admin` has all others."""
    by_name = {operation.name: operation for operation in operations()}
    served = [by_name[name] for name in SERVED]
    tools = [_tool(operation) for operation in served if operation.scope in scopes or "admin" in scopes]
    return {tool.name: tool for tool in tools}


def _tool(operation: Operation[Any, Any]) -> OperationTool:
    name, answer = operation.name.replace(" ", "_"), Followed if operation.streams is not None else operation.answer
    return OperationTool(operation, name, summary_of(operation), _schema(operation.given), _schema(answer))


def _schema(kind: Any) -> dict[str, Any]:
    """Return the schema of a table: of a structure, or of what `structured` makes of a list."""
    (schema,), definitions = schema_components([kind], ref_template="#/$defs/{name}")
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    else:
        schema = {"type": "object", "properties": {"result": schema}, "required": ["result"]}
    return {name: value for name, value in schema.items() if name != "title"} | {"$defs": definitions}


async def _followed(client: AsyncClient, operation: Operation[Any, Any], given: Any, progress: Progress) -> Any:
    """Tell the client each event of a stream, and return the last ones at its end."""
    events, number = deque[Any](maxlen=MOST_EVENTS), 0
    async for event in client.events(operation, given):
        number += 1
        events.append(event)
        await progress(number, one_line(json.dumps(event, ensure_ascii=False), LONGEST_PROGRESS))
    return to_builtins(Followed(list(events), number - len(events)))
