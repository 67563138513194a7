"""The connection to one MCP server: connects, lists its tools, notices changes, and connects again.

One task does all of this, because the SDK's scopes belong to the task that entered them; calls come from other tasks. A
connection that breaks ends its calls at once. An idle server has to list its tools now and then, and at once after a
call that it did not answer in time. So a server that hangs, or that was restarted behind its address, is noticed.
Processes and sockets run in real time, so this module uses the real clock, not the agent's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import anyio
import mcp.types as types
from mcp import Client, MCPError
from mcp.client.subscriptions import SubscriptionLost
from mcp.types import CONNECTION_CLOSED, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, REQUEST_TIMEOUT
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from acting.mcp.config import NOT_SENT, TOO_LARGE, UNSURE
from acting.mcp.pins import FIELDS, Definition
from acting.mcp.tools import MOST_TOOLS, is_small
from acting.tooling.context import TRACEPARENT
from spar.backoff import Backoff
from spar.errors import InDoubtError, PermanentError, SparError, TransientError, leaves

BACKOFF = Backoff()
STEADY = 10.0
"""Seconds after which a connection counts as steady: when it ends, the count of failures begins anew."""
LIST_WITHIN = 15.0
"""Seconds for one listing of an idle server."""
ANSWER_WITHIN = 5.0
"""Seconds for the listing that is asked for after a call without an answer in time."""
_CALM = 1.0  # least seconds between two listings, however often the server reports changes
_MOST_PAGES = 50
_LATE = 5.0  # seconds that the SDK waits longer for an answer than the executor
_ANSWER: TypeAdapter[Any] = TypeAdapter(types.CallToolResult | types.InputRequiredResult)
_REFUSALS = (INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, TOO_LARGE)

Connect = Callable[[], AbstractAsyncContextManager[Any]]
Listed = Callable[[Mapping[str, Definition], int], Awaitable[None]]


class Link:
    """The connection to one server.

    Args:
        name: the server's name in messages; connect: makes a transport for `mcp.Client`.
        listed: awaited with every listing, and with the number of tools that were left out (too many, or too large).
        lost: called with the reason when the connection breaks or cannot be made; once until it is up again.
        start_timeout: seconds for connecting; refresh: seconds between two listings of an idle server.
    """

    def __init__(
        self,
        name: str,
        connect: Connect,
        listed: Listed,
        lost: Callable[[str], None],
        start_timeout: float,
        refresh: float,
    ) -> None:
        self._name = f"MCP server {name!r}"
        self._connect, self._listed, self._lost = connect, listed, lost
        self._start_timeout, self._refresh = start_timeout, refresh
        self._client: Client | None = None
        self._wake = asyncio.Event()
        self._broken: Exception | None = None
        self._is_suspected = False
        self._in_flight = self.failures = 0
        self._stopping = asyncio.Event()
        self.tried = asyncio.Event()
        self.error = self.server = self.protocol = ""

    @property
    def state(self) -> str:
        return "connected" if self._client is not None else "down" if self.error else "connecting"

    def stop(self) -> None:
        """Ask `keep` to close the connection and return."""
        self._stopping.set()
        self._wake.set()

    async def keep(self) -> None:
        """Keep the connection up until `stop`. Raises nothing but CancelledError."""
        while not self._stopping.is_set():
            began = anyio.current_time()
            try:
                await self._connect_once()
            except Exception as error:
                if anyio.current_time() - began > STEADY:
                    self.failures = 0
                self.failures += 1
                is_known, self.error = bool(self.error), reason_of(error)
                if not is_known:
                    self._lost(self.error)
            finally:
                self._client = None
            self.tried.set()
            with anyio.move_on_after(BACKOFF.delay(self.failures)):
                await self._stopping.wait()

    async def _connect_once(self) -> None:
        """Make one connection and serve it to its end. Raises: the error that ended it; nothing after `stop`."""
        self._broken, self._is_suspected = None, False
        client_info = types.Implementation(name="spar", version=_version())
        with anyio.CancelScope(deadline=anyio.current_time() + self._start_timeout) as limit:
            async with Client(
                self._connect(),
                cache=None,
                client_info=client_info,
                message_handler=self._on_message,
                read_timeout_seconds=min(self._start_timeout / 3, LIST_WITHIN),
            ) as client:
                await self._list(client)
                limit.deadline = float("inf")
                self._set_connected(client)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._follow, client)
                    await self._watch(client)
                    tasks.cancel_scope.cancel()
        if limit.cancelled_caught:
            raise TransientError(f"the server was not ready within {self._start_timeout:g} s")

    def _set_connected(self, client: Client) -> None:
        who = client.server_info
        self.server = f"{who.name} {who.version}"[:200] if who is not None else ""
        self.protocol = client.protocol_version
        self.error, self._client = "", client
        self.tried.set()

    async def _watch(self, client: Client) -> None:
        """List the tools after each change, and every `refresh` seconds.

        Raises: the error that breaks the connection.
        """
        while True:
            with anyio.move_on_after(_CALM):
                await self._stopping.wait()
            with anyio.move_on_after(self._refresh):
                await self._wake.wait()
            if self._stopping.is_set():
                return
            has_changed = self._wake.is_set()
            self._wake.clear()
            if self._broken is not None:
                raise self._broken
            within = ANSWER_WITHIN if self._is_suspected else LIST_WITHIN
            self._is_suspected = False
            if not has_changed and self._in_flight:
                continue  # a server that does one thing at a time answers only after its call
            try:
                with anyio.fail_after(min(self._start_timeout, within)):
                    await self._list(client)
            except (TimeoutError, MCPError) as error:
                if self._in_flight and not _is_lost(error):
                    continue
                raise TransientError(f"the server does not list its tools any more: {error or 'no answer'}") from error

    async def _list(self, client: Client) -> None:
        definitions: dict[str, Definition] = {}
        left_out, cursor = 0, None
        for _ in range(_MOST_PAGES):
            page = await client.list_tools(cursor=cursor)
            for tool in page.tools:
                raw = tool.model_dump(by_alias=True, mode="json", exclude_none=True)
                definition = {field: raw.get(field) for field in FIELDS}
                if len(definitions) < MOST_TOOLS and tool.name not in definitions and is_small(definition):
                    definitions[tool.name] = definition
                else:
                    left_out += 1
            cursor = page.next_cursor
            if cursor is None or len(definitions) >= MOST_TOOLS:
                break
        await self._listed(definitions, left_out)

    async def _follow(self, client: Client) -> None:
        """Subscribe to changes of the list, where the protocol needs that; list again when the subscription ends."""
        offered = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or offered is None or not offered.list_changed:
            return
        while True:
            try:
                async with client.listen(tools_list_changed=True) as changes:
                    async for _ in changes:
                        self._wake.set()
            except (SubscriptionLost, MCPError, TimeoutError):
                pass
            await anyio.sleep(self._refresh / 2)
            self._wake.set()

    async def _on_message(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._wake.set()

    async def call(
        self, tool: str, params: dict[str, Any], timeout: float, is_once: bool, tell: Callable[[Any], None]
    ) -> types.CallToolResult:
        """Call a tool by the name that the server gives it.

        Args: timeout: seconds; is_once: whether the call must not be repeated; tell: takes each progress report.

        Raises: TransientError when there is no connection, so that nothing was done; InDoubtError (TransientError
        unless `is_once`) when the connection broke during the call; PermanentError when the server refuses the call or
        its answer is invalid; TimeoutError.
        """
        client = self._client
        if client is None or self._broken is not None:
            raise TransientError(
                f"{self._name} has no connection: {self.error or self._broken or 'it is still being made'}"
            )
        meta: Any = {"traceparent": header} if (header := TRACEPARENT.get()) else None
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=tool, arguments=params, _meta=meta))
        reported_at = float("-inf")

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            nonlocal reported_at
            if (now := anyio.current_time()) - reported_at >= 0.1:  # at most ten reports in a second
                reported_at = now
                tell({"progress": progress, "total": total, "message": message})

        self._in_flight += 1
        try:
            # Not `call_tool`: its matcher can hang on a regular expression that the server sends.
            answer = await client.session.send_request(request, _ANSWER, timeout + _LATE, progress_callback=on_progress)
        except MCPError as error:
            if error.code == REQUEST_TIMEOUT:
                self._suspect()
            raise self._error_for(error, is_once) from error
        except asyncio.CancelledError:  # for example at the deadline of the call
            self._suspect()
            raise
        except ValidationError as error:
            raise PermanentError(
                f"the answer of {self._name} is no result of a tool: {error.errors()[0]['msg']}"
            ) from None
        finally:
            self._in_flight -= 1
        if isinstance(answer, types.CallToolResult):
            return answer
        if "result_type" in answer.model_fields_set:
            raise PermanentError(f"{self._name} asks for more input, which nobody here can give")
        raise PermanentError(f"the answer of {self._name} is no result of a tool")

    def _suspect(self) -> None:
        """Ask for a listing at once: it shows whether the server still answers."""
        self._is_suspected = True
        self._wake.set()

    def _error_for(self, error: MCPError, is_once: bool) -> Exception:
        if error.code == REQUEST_TIMEOUT:
            return TimeoutError(f"{self._name} did not answer in time")
        if error.code == NOT_SENT:
            self._broken = self._broken or TransientError(error.message)
            self._wake.set()
            return TransientError(f"{self._name}: {error.message}")
        if error.code in (CONNECTION_CLOSED, UNSURE):
            message = f"the connection to {self._name} broke during the call ({error.message})"
            if is_once:
                return InDoubtError(f"{message}, so it may have had its effect: find out before repeating it")
            return TransientError(message)
        kind = PermanentError if error.code in _REFUSALS else TransientError
        return kind(f"{self._name} refused the call: {error.message[:2000]} ({error.code})")


def reason_of(error: BaseException) -> str:
    """Return the most useful message of a failure: the SDK wraps errors in groups, and ours say most."""
    errors = list(leaves(error))
    best = next((error_of_ours for error_of_ours in errors if isinstance(error_of_ours, SparError)), errors[0])
    return (str(best) or type(best).__name__)[:500]


def _is_lost(error: BaseException) -> bool:
    return isinstance(error, MCPError) and error.code in (CONNECTION_CLOSED, NOT_SENT)


def _version() -> str:
    try:
        return version("spar-agent")
    except PackageNotFoundError:
        return "0"
