"""MCP over the standard input and output of a program, which the launcher starts.

The SDK has its own transport for this; ours handles more failures. The program gets only the named environment
variables, and closing ends all its processes. A line has a maximum length: for a longer one, only the request that it
answers fails. Output that is no message is counted and dropped; too much of it in a row ends the connection. A program
that reads nothing, or sends requests without end, loses the connection too. The last lines of its standard error stay.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import ErrorData, JSONRPCError, JSONRPCMessage, JSONRPCRequest, jsonrpc_message_adapter

from acting.mcp.config import MOST_MESSAGE, TOO_LARGE, ServerDiagnostics
from acting.process.launcher import Process, chunks, launch
from acting.process.program import Program
from spar.errors import TransientError

Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]

MOST_GARBAGE = 1 << 20
"""Most bytes in a row that are no message; with more, the program counts as no MCP server."""
MOST_ASKED = 64
"""Most requests of the server that wait for an answer at once."""
WRITE_WITHIN = 30.0
"""Seconds that the program may take to read one message."""
GRACE = 1.0
"""Seconds between the end of its input and the end of the program."""
_LONGEST_LINE = 64 * 1024  # bytes of a line of its standard error
_QUEUE = 64
_AT_ONCE = 500  # lines that are no messages, after which other tasks get a turn
_ENDS = 300  # bytes kept of both ends of a line that is too long
_ID_FIRST = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,15})\s*,')
_ID_LAST = re.compile(rb'[,{]\s*"id"\s*:\s*(\d{1,15})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')


class Lines:
    """Splitter of a stream of bytes into lines; keeps only both ends of a line of more than `limit` bytes."""

    __slots__ = ("_cut", "_limit", "_unfinished")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._unfinished = bytearray()
        self._cut = b""

    def feed(self, chunk: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield each line that ends in this chunk: `(line, b"")`, or the first and the last bytes of a too long one."""
        *whole, rest = chunk.split(b"\n")
        for part in whole:
            self._add(part)
            yield (self._cut, bytes(self._unfinished[-_ENDS:])) if self._cut else (bytes(self._unfinished), b"")
            self._unfinished.clear()
            self._cut = b""
        self._add(rest)

    def _add(self, part: bytes) -> None:
        self._unfinished += part
        if len(self._unfinished) > self._limit and not self._cut:
            self._cut = bytes(self._unfinished[:_ENDS])
        if self._cut:
            del self._unfinished[:-_ENDS]


def request_of(head: bytes, tail: bytes) -> int | None:
    """Return the id of the request that a message answers, by both ends of the message; None if they do not show it."""
    match = _ID_FIRST.match(head) or _ID_LAST.search(tail)
    return int(match.group(1)) if match else None


class _Pipes:
    """The state that the tasks of one connection share."""

    def __init__(
        self, process: Process, words: ServerDiagnostics, incoming: MemoryObjectSendStream[SessionMessage | Exception]
    ):
        self.process, self.words, self.incoming = process, words, incoming
        self.ended, self.drained = anyio.Event(), anyio.Event()
        self.asked = self.garbage = 0

    async def watch(self) -> None:
        """Wait for the program's end. Raises: TransientError with the signal or the exit code."""
        await self.process.wait()
        self.ended.set()
        with anyio.move_on_after(0.5):
            await self.drained.wait()  # the last output may still be in the pipe
        code, signal = self.process.status or (None, None)
        how = f"by signal {signal}" if signal is not None else f"with exit code {code}"
        raise TransientError(f"the program ended {how}{self.words.last()}")

    async def read(self) -> None:
        """Pass on each message.

        Raises: TransientError for too many other lines or requests, and at the end of output.
        """
        lines = Lines(MOST_MESSAGE)
        async for chunk in chunks(self.process.stdout):
            for number, (head, tail) in enumerate(lines.feed(chunk)):
                if message := self._message(head, tail):
                    await self.incoming.send(SessionMessage(message))
                elif number % _AT_ONCE == 0:
                    await anyio.lowlevel.checkpoint()
            if self.garbage > MOST_GARBAGE:
                raise TransientError(f"the program writes what is no MCP message{self.words.stray()}")
            if self.asked > MOST_ASKED:
                raise TransientError(f"the server asks too much: {self.asked} requests without waiting for an answer")
        self.drained.set()
        await anyio.sleep(GRACE)
        raise TransientError(f"the program closed its standard output{self.words.last()}")

    def _message(self, head: bytes, tail: bytes) -> JSONRPCMessage | None:
        if tail:
            self.words.dropped += 1
            number = request_of(head, tail)
            error = ErrorData(code=TOO_LARGE, message=f"the answer has more than {MOST_MESSAGE} bytes")
            return None if number is None else JSONRPCError(jsonrpc="2.0", id=number, error=error)
        try:
            if not head.lstrip().startswith(b"{"):
                raise ValueError
            message = jsonrpc_message_adapter.validate_json(head, by_name=False)
        except (ValueError, RecursionError):
            self.garbage += len(head) + 1
            if head.strip():
                self.words.found_stray(head)
            return None
        self.garbage = 0
        self.asked += isinstance(message, JSONRPCRequest)
        return message

    async def write(self, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Send each message. Raises: TransientError when the program does not read it in time."""
        async for item in outgoing:
            message = item.message
            self.asked -= not isinstance(message, JSONRPCRequest) and getattr(message, "id", None) is not None
            line = message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
            try:
                with anyio.fail_after(WRITE_WITHIN):
                    await self.process.write(line)
            except TimeoutError:
                raise TransientError(f"the program did not read its input for {WRITE_WITHIN:g} s") from None
            except OSError:
                return  # the program reads no more; `watch` reports how it ended

    async def listen(self) -> None:
        """Record the lines of its standard error."""
        lines = Lines(_LONGEST_LINE)
        async for chunk in chunks(self.process.stderr):
            for head, tail in lines.feed(chunk):
                self.words.hear(head + tail)


@asynccontextmanager
async def pipes(program: Program, words: ServerDiagnostics) -> AsyncIterator[Streams]:
    """Start the program and yield a transport for `mcp.Client`; on leaving, end the program with all its processes.

    Raises, in a group: TransientError when the connection breaks; PermanentError when the program cannot be started.
    """
    async with launch(program, with_stdin=True) as process:
        read_in, read_out = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        # Messages wait here while the program is slow, so that a caller that gives up need not wait to send its
        # cancellation.
        write_in, write_out = anyio.create_memory_object_stream[SessionMessage](_QUEUE)
        shared = _Pipes(process, words, read_in)
        writing = anyio.CancelScope()

        async def write() -> None:
            with writing:
                await shared.write(write_out)

        with read_in, read_out, write_in, write_out:
            async with anyio.create_task_group() as tasks:
                for work in (shared.watch, shared.read, shared.listen, write):
                    tasks.start_soon(work)
                try:
                    yield read_out, write_in
                finally:
                    writing.cancel()
                    with anyio.CancelScope(shield=True), anyio.move_on_after(GRACE):
                        await anyio.lowlevel.checkpoint()
                        process.close_stdin()
                        await shared.ended.wait()
                    tasks.cancel_scope.cancel()
