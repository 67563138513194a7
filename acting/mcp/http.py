"""MCP over streamable HTTP to one host; each address is checked before a connection to it.

The SDK speaks the protocol and follows redirects only within the origin; below it is our transport. It resolves the
name, checks every address (`spar.net.addresses`) and connects to a checked address, while the Host header and the TLS
name stay. It uses no proxy of the environment, decompresses nothing and limits the size of a body. A failure of one
request becomes the answer to that request: an exception here would end the other requests too.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client

from acting.mcp.config import MOST_MESSAGE, NOT_SENT, TOO_LARGE, UNSURE
from acting.tooling.context import TRACEPARENT
from spar.errors import PermanentError
from spar.net.addresses import Guard
from spar.net.resolve import CONNECT, permitted
from spar.threads import Threads

_UNSURE_STATUS = (502, 504)  # from a gateway that does not know whether the server got the request


class GuardedTransport(httpx2.AsyncBaseTransport):
    """HTTP transport that sends requests only to addresses that `guard` permits."""

    def __init__(self, guard: Guard, threads: Threads) -> None:
        self._guard, self._threads = guard, threads
        self._inner = httpx2.AsyncHTTPTransport(trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Return the answer; a failure becomes an answer with a JSON-RPC error that says whether anything was sent."""
        if header := TRACEPARENT.get():  # the SDK sends a message in the context of the task that wrote it
            request.headers["traceparent"] = header
        host, port = request.url.raw_host.decode("ascii"), request.url.port
        port = (443 if request.url.scheme == "https" else 80) if port is None else port
        try:
            addresses = await permitted(self._guard, self._threads, host, port)
        except PermanentError as error:
            return _failed(NOT_SENT, str(error))
        except (OSError, UnicodeError) as error:
            return _failed(NOT_SENT, f"host {host!r} cannot be resolved: {error}")
        failure: Exception | None = None
        for address in addresses:
            try:
                return await self._bounded(request, await self._inner.handle_async_request(_pinned(request, address)))
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:  # nothing was sent yet: try the next address
                failure = error
            except httpx2.TransportError as error:
                return _failed(UNSURE, f"{host!r} broke off: {error or type(error).__name__}")
        return _failed(NOT_SENT, f"cannot connect to {host!r} ({', '.join(addresses)}): {failure}")

    async def _bounded(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        kind = response.headers.get("content-type", "").lower()
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            return _failed(UNSURE, "the answer is packed, which was not asked for")
        if response.status_code == 404 and MCP_SESSION_ID in request.headers:
            await response.aclose()
            return _failed(NOT_SENT, "the server has forgotten the session")
        if response.status_code in _UNSURE_STATUS and not kind.startswith("application/json"):
            await response.aclose()
            return _failed(UNSURE, f"a gateway answered {response.status_code}")
        if kind.startswith("text/event-stream"):
            return response  # its events are bounded by the SDK
        body = bytearray()
        try:
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > MOST_MESSAGE:
                    return _failed(TOO_LARGE, f"the answer has more than {MOST_MESSAGE} bytes")
        finally:
            await response.aclose()
        headers = {name: value for name, value in response.headers.items() if name != "transfer-encoding"}
        return httpx2.Response(response.status_code, headers=headers, content=bytes(body))

    async def aclose(self) -> None:
        await self._inner.aclose()


def _pinned(request: httpx2.Request, address: str) -> httpx2.Request:
    return httpx2.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": request.url.raw_host.decode("ascii")},
    )


def _failed(code: int, message: str) -> httpx2.Response:
    error: dict[str, Any] = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    return httpx2.Response(503, headers={"content-type": "application/json"}, content=json.dumps(error).encode())


@asynccontextmanager
async def stream(
    url: str, headers: Mapping[str, str], guard: Guard, threads: Threads, timeout: float
) -> AsyncIterator[Any]:
    """Open a transport for `mcp.Client`. `timeout` is the seconds for which an answer may send nothing."""
    transport = await threads.run(GuardedTransport, guard, threads)  # in a thread: it reads the trusted certificates
    client = httpx2.AsyncClient(
        transport=transport,
        trust_env=False,
        headers={"user-agent": "spar", **headers, "accept-encoding": "identity"},
        timeout=httpx2.Timeout(timeout, connect=CONNECT),
    )
    async with client, streamable_http_client(url, http_client=client, max_sse_event_size=MOST_MESSAGE) as streams:
        yield streams
