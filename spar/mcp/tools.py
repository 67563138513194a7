"""Tools made from the table of operations: the input of an operation is the schema of its tool."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from spar.client.async_client import AsyncClient
from spar.client.client import RefusedError, ServiceError
from spar.data.text import one_line
from spar.decoding import convert, encode, schema_components
from spar.errors import TransientError
from spar.operations.operation import Operation
from spar.operations.table import operations
from spar.server.api.openapi import summary_of
from spar.service.token_rows import Scope

#: The operations that are offered, by their names.
SERVED: Final = (
    "status", "runs submit", "runs follow", "runs wait", "runs show", "runs list", "runs abort", "approvals list",
    "approvals show", "approvals decide", "memory search", "memory why", "incidents list", "incidents show",
    "cycles list", "cycles show",
)  # fmt: skip
#: Bytes of an answer; events of a run that an answer holds, and characters of each in a notification.
LARGEST_ANSWER: Final = 1024 * 1024
MOST_EVENTS: Final = 200
LONGEST_PROGRESS: Final = 500

#: Function that tells the client how far a call is: a growing number and a line.
Progress = Callable[[float, str], Awaitable[None]]


class ToolError(Exception):
    """Error: a call was refused or failed; its text is for the model."""


class OperationTool(Struct, frozen=True):
    """Tool of one operation. `schema` is the JSON schema of its parameters."""

    operation: Operation[Any, Any]
    name: str
    description: str
    schema: dict[str, Any]

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


def tools_for(scopes: Collection[Scope]) -> dict[str, OperationTool]:
    """Return the tools whose operations need one of these scopes, by name; `admin` has all others."""
    by_name = {operation.name: operation for operation in operations()}
    served = [by_name[name] for name in SERVED]
    tools = [_tool(operation) for operation in served if operation.scope in scopes or "admin" in scopes]
    return {tool.name: tool for tool in tools}


def _tool(operation: Operation[Any, Any]) -> OperationTool:
    _, definitions = schema_components([operation.given], ref_template="#/$defs/{name}")
    schema = dict(definitions.pop(operation.given.__name__))
    schema.pop("title", None)
    if definitions:
        schema["$defs"] = definitions
    return OperationTool(operation, operation.name.replace(" ", "_"), summary_of(operation), schema)


async def _followed(client: AsyncClient, operation: Operation[Any, Any], given: Any, progress: Progress) -> Any:
    """Tell the client each event of a stream, and return the last ones at its end."""
    events, number = deque[Any](maxlen=MOST_EVENTS), 0
    async for event in client.events(operation, given):
        number += 1
        events.append(event)
        await progress(number, one_line(json.dumps(event, ensure_ascii=False), LONGEST_PROGRESS))
    return {"events": list(events), "left_out": number - len(events)}
