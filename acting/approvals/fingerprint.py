"""Binds an approval to one call exactly as it would run, by a digest.

A tool that knows what else decides what its call does says so in `binds(params) -> dict` (a program's path and hash,
the working directory); a tool that knows why a standing permission would be too wide says so in
`grantable(params) -> str`. Both may block on a disk. Parameters that people hand back are data: nothing in them is read
as a reference.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct

from acting.approvals.digest import digest
from acting.tooling.bound_tool import BoundTool, is_async
from spar.checks import shorten
from spar.clock import Clock
from spar.data.paths import copied
from spar.errors import SparError
from spar.protocols import Effect
from spar.threads import Threads
from spar.types import Call, replace

#: What a call may choose beside its parameters that decides who carries it out, on what, and with which result.
_CHOICES: Final = ("_activity", "_delegate", "_output", "_scopes")
WITHIN: Final = 10.0  # seconds that a tool may take to say what binds its call


class UnboundError(SparError):
    """It cannot be said exactly what would run."""


class BoundCall(Struct, frozen=True):
    """A call with its parameters as they are, nothing in them a reference; the tool, and what it does to the world."""

    call: Call
    entry: BoundTool
    effect: Effect


class Fingerprint(Struct, frozen=True):
    """The hash of what would run, and what the tool itself says of it (`binds`)."""

    digest: str
    binds: Mapping[str, Any]


#: Returns a call as its tool prescribes it, and the tool. Raises: ValueError that says what is wrong with it.
Check = Callable[[Call], tuple[Call, BoundTool]]


class Fingerprinter:
    """Binds calls under a policy of this revision; `check` gives a call as its tool prescribes it, and the tool."""

    def __init__(self, check: Check, revision: str, clock: Clock) -> None:
        self._check, self._revision = check, revision
        self.use(clock)

    def use(self, clock: Clock) -> None:
        """Let what tools look up count as work on this clock."""
        self._threads = Threads("binding", clock)

    def of(self, call: Call, entry: BoundTool, params: Mapping[str, Any]) -> BoundCall:
        """A call whose parameters came to `params`."""
        return BoundCall(replace(call, params=copied(params)), entry, entry.effect_of(params))

    def edited(self, call: Call, params: Mapping[str, Any]) -> BoundCall:
        """Return the same call with these parameters instead of all of its own. Raises: ValueError."""
        try:
            return self._checked(replace(call, params=copied(params)))
        except TypeError as error:
            raise ValueError(str(error)) from error

    def replaced(self, call: Call, wire: Mapping[str, Any]) -> BoundCall:
        """Another call in its place, under its id, writing where it would if it names no path. Raises: ValueError."""
        new = Call.from_wire(wire)
        if new.after:
            raise ValueError("a call that replaces one runs in its place: leave out '_after'")
        path, method = new.output_path, new.output_method
        if path is None:
            path, method = call.output_path, call.output_method
        new = replace(new, id=call.id, after=call.after, output_path=path, output_method=method)
        return self._checked(new)

    def again(self, call: Call) -> BoundCall:
        """Bind a call that was decided on again, against the tools as they are now. Raises: ValueError."""
        return self._checked(call)

    async def fingerprint(self, bound_call: BoundCall) -> Fingerprint:
        """Return the fingerprint of the call as it would run now. Raises: UnboundError when that cannot be said."""
        entry, call = bound_call.entry, bound_call.call
        bound: Any = {}
        try:
            binds = getattr(entry.target, "binds", None)
            if callable(binds):
                async with asyncio.timeout(WITHIN):
                    bound = await self._ask(binds, copied(call.params))
            if not isinstance(bound, Mapping):
                raise TypeError(f"it must be an object, found {type(bound).__name__}")
            own: dict[str, Any] = {"tool": bound, "by": _maker(entry)}
            own |= {key: call.meta[key] for key in _CHOICES if key in call.meta}
            return Fingerprint(
                digest(entry.name, entry.schema, call.params, bound_call.effect, self._revision, own), bound
            )
        except Exception as error:
            why = str(error) or type(error).__name__
            raise UnboundError(f"it cannot be said exactly what {entry.name!r} would do: {why}") from error

    async def refusal(self, bound_call: BoundCall) -> str:
        """Why no standing permission is given for this call; "" if one may be."""
        grantable = getattr(bound_call.entry.target, "grantable", None)
        if not callable(grantable):
            return ""
        try:
            async with asyncio.timeout(WITHIN):
                found = await self._ask(grantable, copied(bound_call.call.params))
        except Exception as error:
            return f"{bound_call.entry.name!r} could not say whether it may: {str(error) or type(error).__name__}"
        return (
            found
            if isinstance(found, str)
            else f"{bound_call.entry.name!r} answered {shorten(found)}, which is no reason"
        )

    async def _ask(self, function: Any, params: dict[str, Any]) -> Any:
        found = function(params) if is_async(function) else await self._threads.run(function, params)
        return await found if inspect.isawaitable(found) else found

    def _checked(self, call: Call) -> BoundCall:
        call, entry = self._check(call)
        return BoundCall(call, entry, entry.effect_of(call.params))


#: Modules that have moved, by the name under which grants that people gave before know their code.
_FORMER_MODULES = {"acting.mcp.tools": "acting.mcp_tools"}


def _maker(entry: BoundTool) -> str:
    """Return the code that carries a call out: another tool may come to have the name and schema of an approved one."""
    code = entry.target if inspect.isroutine(entry.target) else type(entry.target)
    module = getattr(code, "__module__", "")
    return f"{entry.activity}: {_FORMER_MODULES.get(module, module)}.{getattr(code, '__qualname__', '')}"
