"""Source of tools `mcp`: the tools of one MCP server, a program with standard streams or a URL.

Its tools may change while the service runs. The server never holds up the service: opening returns in bounded time,
with or without a connection; the connection is kept up in the background; and a call without a connection fails at
once. A tool that differs from its accepted definition is off (`pins`), and the server's own annotations change no
terms (`tools`). The MCP library is loaded in a thread when a server is first opened.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Gt

from acting.mcp.config import PASSED, ServerDiagnostics, ServerLocation
from acting.mcp.pins import Definition, Pins
from acting.mcp.tools import (
    MOST_DEFINITION,
    MOST_NAME,
    MOST_TOOLS,
    OfferedTools,
    RemoteTool,
    ToolPolicy,
    error_of,
    offer,
    server_name,
    value_of,
)
from acting.process.detect import Confinement
from acting.tooling.context import TRACEPARENT, ToolContext
from spar.clock import Clock, SystemClock
from spar.errors import ConfigError, PermanentError, SparError
from spar.events import ContractViolation, ErrorOccurred
from spar.ports.services import Level
from spar.protocols import CALLED_FOR, Effect, Home, Host
from spar.protocols.tools import Approval
from spar.threads import Threads, Users
from spar.types import Fault

if TYPE_CHECKING:
    from acting.mcp.connection import Link

CLOSE_WITHIN = 3.0
"""Seconds for a clean end of the connection, before its tasks are cancelled."""
_LOOK = 2.0  # seconds between two checks of the file of pins
_MOST_PARAMS = 1 << 20


class McpServer:
    """The tools of one server, named `server__tool`; `name` is the name of the server.

    Args:
        command: the program and its arguments (no shell), found on PATH outside of the workspace, run in it.
        url: instead of a command: the address of the server. It permits that host and port, in the local network too.
        headers: sent with each request to that host.
        env: variables for the program: `NAME` passes on the service's own, `NAME=value` sets one; PATH and HOME (the
            workspace) are always set.
        allow: the only tools to offer, by the server's names; all tools when empty.
        effects, approval: per tool, `*` for all others; by default `once` and `auto`.
        safe: tools whose parameters may hold text from outside without a person's approval (`*`: all).
        trusted: tools whose results are not text from outside (`*`: all).
        timeout: seconds for a call; start_timeout: for connecting, of which opening waits for `wait` at most;
            refresh: between two listings of an idle server.
        sandbox: the least level at which the program may run, as for `shell`; in a sandbox most servers need paths in
            `readable` (relative to the configuration's folder) or `network`.
        parallel: calls at once; max_output: bytes of a result; a call that returns more fails.

    Raises: ConfigError for values that make no sense, and when the MCP library is not installed.
    """

    def __init__(
        self,
        *,
        home: Home,
        command: Sequence[str] = (),
        url: str = "",
        headers: Mapping[str, str] | None = None,
        env: Sequence[str] = PASSED,
        allow: Sequence[str] = (),
        effects: Mapping[str, Effect] | None = None,
        approval: Mapping[str, Approval] | None = None,
        safe: Sequence[str] = (),
        trusted: Sequence[str] = (),
        timeout: Annotated[float, Gt(0)] = 60.0,
        start_timeout: Annotated[float, Gt(0)] = 30.0,
        wait: Annotated[float, Ge(0)] = 5.0,
        refresh: Annotated[float, Gt(0)] = 60.0,
        sandbox: Level = 0,
        readable: Sequence[str] = (),
        network: bool = False,
        parallel: Annotated[int, Ge(1)] = 8,
        max_output: Annotated[int, Ge(1)] = 16 << 20,
    ) -> None:
        if find_spec("mcp") is None:
            raise ConfigError(
                "MCP servers need a library that is not installed; install it with: pip install 'spar-agent[mcp]'",
                path=("command",),
            )
        confinement = Confinement(home, readable, network=network, level=sandbox)
        self._home = home
        self._place = ServerLocation(tuple(command), url, headers or {}, tuple(env), confinement)
        self._policy = ToolPolicy(
            frozenset(allow), effects or {}, approval or {}, frozenset(safe), frozenset(trusted), timeout
        )
        self._start_timeout, self._wait, self._refresh = start_timeout, wait, refresh
        self._parallel, self._max_output = parallel, max_output
        self.name = "mcp"
        #: Called in the event loop when `tools()` has changed.
        self.on_change: Callable[[], None] | None = None
        self._use(SystemClock())
        self._publish: Callable[[Any], None] = lambda event: None
        self._traceparent: Callable[..., str] = lambda to, cycle_id, *names: ""
        self._words = ServerDiagnostics()
        self._link: Link | None = None
        self._users = Users()
        self._tasks: list[asyncio.Task[None]] = []
        self._forget()

    def _forget(self) -> None:
        self._listing: Mapping[str, Definition] | None = None
        self._stamp = (0, 0)
        self._offer = OfferedTools()
        self._left_out = 0
        self._published: set[tuple[str, str]] = set()

    @property
    def name(self) -> str:
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = server_name(name)
        self._pins = Pins(self._home.state, self._name)

    def attach(self, host: Host) -> None:
        """Use the agent's clock, and publish events by the agent."""
        self._use(host.clock)
        self._publish, self._traceparent = host.events.publish, host.traceparent

    def _use(self, clock: Clock) -> None:
        self._clock = clock
        self._threads, self._resolver = Threads("mcp", clock), Threads("mcp names", clock)

    # -- open and closed

    async def __aenter__(self) -> McpServer:
        """Connect; see `_open`."""
        await self._users.enter(self._open)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._users.leave(self.aclose)

    async def _open(self) -> None:
        """Begin to connect, and wait at most `wait` seconds. A server that does not answer is no error here."""
        try:
            connection = await self._threads.run(import_module, "acting.mcp.connection")
        except ImportError as error:
            raise ConfigError(
                f"the MCP library cannot be loaded: {error}; install it with: pip install 'spar-agent[mcp]'"
            ) from error
        await self._threads.run(self._place.prepare)
        self._turns, self._judging = asyncio.Semaphore(self._parallel), asyncio.Lock()
        await self._judge()  # offers the accepted tools before there is a connection
        self._link = connection.Link(
            self.name, self._connect, self._listed, self._tell_lost, self._start_timeout, self._refresh
        )
        self._tasks = [
            asyncio.create_task(self._link.keep(), name=f"mcp {self.name}"),
            asyncio.create_task(self._watch_pins(), name=f"mcp {self.name} pins"),
        ]
        try:
            await asyncio.wait_for(self._link.tried.wait(), self._wait)
        except TimeoutError:
            pass
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Close the connection and end the program with all its processes."""
        self._users.count = 0
        link, tasks = self._link, self._tasks
        self._link, self._tasks = None, []
        if link is None:
            return
        try:
            if link.state == "connected":
                link.stop()
                await asyncio.wait(tasks[:1], timeout=CLOSE_WITHIN)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=CLOSE_WITHIN * 4)
            self._forget()

    def _connect(self) -> AbstractAsyncContextManager[Any]:
        silence = max(self._policy.timeout, self._start_timeout, 5 * self._refresh)
        return self._place.connect(self._words, self._resolver, silence)

    # -- what it offers

    def tools(self) -> Sequence[RemoteTool]:
        """Return the tools that the server offers now; without a connection, those of the last listing."""
        return self._offer.tools

    def absence(self, name: str) -> str:
        """Return why a tool of this server is not offered; "" for other tools, and while there is a connection."""
        link = self._link
        if link is None or link.state == "connected" or not name.startswith(f"{self.name}__"):
            return ""
        return f"MCP server {self.name!r} is {link.state}{f': {link.error}' if link.error else ''}"

    async def _listed(self, definitions: Mapping[str, Definition], left_out: int) -> None:
        self._left_out = left_out
        await self._judge(definitions)

    async def _judge(self, listing: Mapping[str, Definition] | None = None) -> None:
        """Compare a listing with the pins and offer its tools. None: the last listing, or the accepted tools."""
        async with self._judging:
            listing = self._listing if listing is None else listing
            definitions = listing or {}
            stamp = self._pins.stamp()  # taken first, so that the next check sees every change after this
            off: dict[str, str] = {}
            can_accept = True
            try:
                if listing is None:
                    definitions = await self._threads.run(self._pins.accepted)
                elif definitions:
                    off = await self._threads.run(self._pins.judge, definitions)
            except SparError as error:
                off, can_accept = dict.fromkeys(definitions, str(error)), False
            self._stamp, self._listing = stamp, listing
            offered = offer(self.name, definitions, off, self._policy, self._send, can_accept=can_accept)
            before = {tool.key: tool for tool in self._offer.tools}
            tools = tuple(before.get(tool.key, tool) for tool in offered.tools)
            has_changed = tools != self._offer.tools
            self._offer = OfferedTools(tools, offered.refused if listing is not None else {})
        self._tell_tools()
        if has_changed and self.on_change is not None:
            self.on_change()

    async def _watch_pins(self) -> None:
        """Notice tools that a person accepts while the service runs."""
        while True:
            await asyncio.sleep(_LOOK)
            if self._pins.stamp() != self._stamp:
                await self._judge()

    def _tell_tools(self) -> None:
        """Publish each reason why a tool cannot be used, once."""
        reasons = {tool.remote: tool.off for tool in self._offer.tools if tool.off}
        reasons |= {name: f"tool {name!r} of server {self.name!r} cannot be used: {why}"
                    for name, why in self._offer.refused.items()}  # fmt: skip
        if self._left_out:
            reasons[""] = (
                f"{self._left_out} tools of server {self.name!r} are left out: at most {MOST_TOOLS}, with names of "
                f"{MOST_NAME} characters and definitions of {MOST_DEFINITION} bytes, are taken"
            )
        for reason in sorted(set(reasons.items()) - self._published):
            self._publish(ContractViolation(part=self.name, message=reason[1]))
        self._published = set(reasons.items())

    def _tell_lost(self, why: str) -> None:
        message = f"MCP server {self.name!r} cannot be used: {why}; it is tried again"
        fault = Fault("transient", message, self.name, "act")
        self._publish(ErrorOccurred(cycle_id="", phase="act", error=fault, policy="reconnect"))

    def accept(self, names: Sequence[str] = ()) -> dict[str, str]:
        """Accept all tools that wait, or only those in `names` (the server's names).

        A running service notices. Returns: the accepted tools with the reasons why they waited. Raises: LookupError for
        a name that does not wait; PinsError.
        """
        return self._pins.accept(names)

    def waiting(self) -> dict[str, str]:
        """Return the tools that wait to be accepted, with the reasons. Raises: PinsError."""
        return self._pins.waiting()

    # -- calls

    async def _send(self, tool: RemoteTool, params: dict[str, Any], context: ToolContext) -> Any:
        link = self._link
        if link is None:
            raise PermanentError(f"MCP server {self.name!r} is not open")
        _check_params(params)
        TRACEPARENT.set(self._traceparent("mcp", CALLED_FOR.get()[0], "call", context.call.id))
        with self._clock.working():
            async with self._turns:
                is_once = tool.effect == "once"
                result = await link.call(tool.remote, params, tool.timeout, is_once, context.progress)
        if result.is_error:
            raise PermanentError(f"tool {tool.remote!r} of MCP server {self.name!r} failed: {error_of(result)}")
        return value_of(result, self._max_output)

    # -- the state for people

    def snapshot(self) -> dict[str, Any]:
        """Return the state for people; safe from any thread."""
        link, words = self._link, self._words
        return {
            "server": self.name,
            "reached_by": self._place.shown,
            "state": link.state if link is not None else "closed",
            "error": link.error if link is not None else "",
            "failures": link.failures if link is not None else 0,
            "sandbox": self._place.level,
            "identity": link.server if link is not None else "",
            "protocol": link.protocol if link is not None else "",
            "tools": [tool.name for tool in self._offer.tools if not tool.off],
            "off": {tool.name: tool.off for tool in self._offer.tools if tool.off},
            "refused": dict(self._offer.refused),
            "left_out": self._left_out,
            "stderr": list(words.lines),
            "strays": words.strays,
            "dropped": words.dropped,
        }


def _check_params(params: Mapping[str, Any]) -> None:
    try:
        size = len(json.dumps(params, allow_nan=False, ensure_ascii=False).encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise PermanentError(f"the parameters cannot be sent as JSON: {error}") from None
    if size > _MOST_PARAMS:
        raise PermanentError(f"the parameters have {size} bytes, more than {_MOST_PARAMS}")
