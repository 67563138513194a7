"""A server of language models that follows a script, over the real wire: OpenAI's chat completions, streamed or plain.

    async with LlmServer([says("", ToolCall("look", {"at": "x"})), says("done")]) as server:
        …  # server.url is the base URL; server.requests is what was asked, in order
    with served(FAULTS["broken"]) as server:
        …  # the same on a thread of its own, for what is not async

A script is one reply (always that), a list (one after another; then every request is refused), or a function of
what was asked, async or not. The sockets are real, so what goes wrong on them does; it listens on 127.0.0.1 alone.
`GET /asked` tells another process what was asked.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from tests.servers.llm_replies import FAULTS, Cut, Reply, refuses
from tests.servers.llm_requests import Asked, misfit
from tests.servers.llm_wire import Answer

Script = Reply | Sequence[Reply] | Callable[[Asked], Reply | Awaitable[Reply]]

LARGEST = 16 << 20  # bytes of a request
PATIENCE = 20.0  # seconds that a test waits for what it is told will come


class LlmServer:
    """A scripted server in this event loop; with a `key`, who does not show it is turned away."""

    def __init__(self, script: Script, *, key: str | None = None, port: int = 0) -> None:
        self._script, self._key, self._port = script, key, port
        self._answering: set[asyncio.Task[None]] = set()
        self._busy = 0
        self._errors: list[Exception] = []
        self._changed = asyncio.Condition()
        self.requests: list[Asked] = []
        self.connections = 0

    @property
    def url(self) -> str:
        """The base URL, as a client of OpenAI's wants it."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def most_at_once(self) -> int:
        return max((asked.at_once for asked in self.requests), default=0)

    @property
    def aborted(self) -> int:
        """How many requests their clients gave up before the answer was over."""
        return sum(asked.is_aborted for asked in self.requests)

    async def until(self, condition: Callable[[LlmServer], bool]) -> None:
        """Wait until it holds: `await server.until(lambda server: server.aborted == 1)`."""
        async with asyncio.timeout(PATIENCE), self._changed:
            await self._changed.wait_for(lambda: condition(self))

    async def __aenter__(self) -> LlmServer:
        loop = asyncio.get_running_loop()

        def line() -> _Line:
            return _Line(asyncio.StreamReader(limit=1 << 16, loop=loop), self._connected, loop=loop)

        self._server = await loop.create_server(line, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)
        await self._server.wait_closed()
        if self._errors:
            raise self._errors[0]

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._answering.add(task)
        self.connections += 1
        try:
            while await self._exchange(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client went away
        except asyncio.CancelledError:
            pass  # the server is closing; the streams' own callback would log it
        except Exception as error:  # of the script, or of this file: told at the end
            self._errors.append(error)
        finally:
            self._answering.discard(task)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer. Returns whether the connection can be used again."""
        asked = await self._read(reader)
        if asked.path.endswith("/asked"):
            told = [_told(each) for each in self.requests]
            return await _while_there(
                Answer(Reply(body=json.dumps(told).encode()), asked, writer).give(), asked, writer
            )
        self.requests.append(asked)
        self._busy += 1
        await self._tell()
        try:
            return await _while_there(self._answer(asked, writer), asked, writer)
        finally:
            self._busy -= 1
            asked.is_over = True
            await self._tell()

    async def _read(self, reader: asyncio.StreamReader) -> Asked:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ", 2)
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        length = min(int(headers.get("content-length", "0")), LARGEST)
        raw = await reader.readexactly(length)
        return Asked(len(self.requests), method, path, headers, raw, self._busy + 1)

    async def _answer(self, asked: Asked, writer: asyncio.StreamWriter) -> Cut:
        reply = self._reply_to(asked)
        if not isinstance(reply, Reply):
            reply = await reply
        return await Answer(reply, asked, writer).give()

    def _reply_to(self, asked: Asked) -> Reply | Awaitable[Reply]:
        if self._key is not None and asked.headers.get("authorization") != f"Bearer {self._key}":
            return FAULTS["key"]
        if asked.method != "POST" or not asked.path.endswith("/chat/completions"):
            return refuses(404, None, f"Invalid URL ({asked.method} {asked.path})")
        if found := misfit(asked.body):
            return refuses(400, "invalid_value", found)
        if isinstance(self._script, Reply):
            return self._script
        if callable(self._script):
            return self._script(asked)
        if asked.number < len(self._script):
            return self._script[asked.number]
        return refuses(400, "script_over", f"the script has no answer to request {asked.number + 1}")

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()


class _Line(asyncio.StreamReaderProtocol):
    """A connection that knows when its client has hung up, without reading ahead."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.gone = asyncio.Event()

    def eof_received(self) -> bool | None:
        self.gone.set()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()
        super().connection_lost(exc)


async def _while_there(answer: Coroutine[Any, Any, Cut], asked: Asked, writer: asyncio.StreamWriter) -> bool:
    """Answer for as long as the client is there. Returns whether the connection can be used again."""
    line: Any = writer.transport.get_protocol()
    answering = asyncio.ensure_future(answer)
    gone = asyncio.ensure_future(line.gone.wait())
    try:
        await asyncio.wait({answering, gone}, return_when=asyncio.FIRST_COMPLETED)
        if answering.done():
            return answering.result() is Cut.END
        asked.is_aborted = True
        return False
    except OSError:
        asked.is_aborted = True
        raise
    finally:
        for each in (answering, gone):
            each.cancel()
        await asyncio.gather(answering, gone, return_exceptions=True)


def _told(asked: Asked) -> dict[str, Any]:
    known = ("number", "path", "body", "status", "at_once", "is_over", "is_aborted", "times")
    return {name: getattr(asked, name) for name in known}


# -- other ways to have one


@contextmanager
def served(script: Script, *, key: str | None = None, port: int = 0) -> Iterator[LlmServer]:
    """A scripted server on a thread of its own. Its record may be read meanwhile; `until` is not for other threads."""
    server, loop = LlmServer(script, key=key, port=port), asyncio.new_event_loop()
    is_up, over = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with server:
            is_up.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    try:
        if not is_up.wait(PATIENCE):
            raise TimeoutError("the scripted server does not start")
        yield server
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(PATIENCE)
        loop.close()


@contextmanager
def nowhere() -> Iterator[str]:
    """A base URL where nobody listens and nobody else will: connections are refused."""
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
