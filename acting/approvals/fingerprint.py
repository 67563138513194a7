"""Binding of an approval to one call exactly as it would run, by a digest.

A tool returns the other facts that decide what its call does from `binds(params) -> dict` (a program's path and hash,
the working directory). It returns why a standing permission would be too wide from `grantable(params) -> str`. Both may
block on a disk. Parameters from people are data: nothing in them is read as a reference.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct

from acting.approvals.digest import digest
from acting.tooling.bound_tool import BoundTool, is_async, takes_session
from spar.checks import shorten
from spar.clock import Clock
from spar.data.paths import copied
from spar.errors import SparError
from spar.protocols import Effect
from spar.threads import Threads
from spar.types import Call, replace

#: The keys of a call's meta that decide what runs, on which messages, and with which result.
_CHOICES: Final = ("_activity", "_delegate", "_output", "_scopes")
WITHIN: Final = 10.0  # seconds that a tool may take to say what binds its call


class UnboundError(SparError):
    """Error of a call for which the tool cannot say exactly what would run."""


class BoundCall(Struct, frozen=True):
    """A call whose parameters are plain values without references, with its tool and its effect."""

    call: Call
    entry: BoundTool
    effect: Effect
    session: str = "main"


class Fingerprint(Struct, frozen=True):
    """The hash of a call as it would run, and the facts from the tool's `binds`."""

    digest: str
    binds: Mapping[str, Any]


#: Returns a call as its tool prescribes it, and the tool. Raises: ValueError that says what is wrong with it.
Check = Callable[[Call], tuple[Call, BoundTool]]


class Fingerprinter:
    """Binder of calls to a policy's revision. `check` returns a call with its tool's prescriptions, and the tool."""

    def __init__(self, check: Check, revision: str, clock: Clock) -> None:
        self._check, self._revision = check, revision
        self.use(clock)

    def use(self, clock: Clock) -> None:
        """Count the blocking work of tools as work on this clock."""
        self._threads = Threads("binding", clock)

    def of(self, call: Call, entry: BoundTool, params: Mapping[str, Any], session: str) -> BoundCall:
        """Return a call with `params` as the values of its parameters."""
        return BoundCall(replace(call, params=copied(params)), entry, entry.effect_of(params), session)

    def edited(self, call: Call, params: Mapping[str, Any], session: str) -> BoundCall:
        """Return the same call with these parameters instead of all of its own. Raises: ValueError."""
        try:
            return self.checked(replace(call, params=copied(params)), session)
        except TypeError as error:
            raise ValueError(str(error)) from error

    def replaced(self, call: Call, wire: Mapping[str, Any], session: str) -> BoundCall:
        """Return another call under the id of `call`, with its output path by default. Raises: ValueError."""
        new = Call.from_wire(wire)
        if new.after:
            raise ValueError("a call that replaces one runs in its place: leave out '_after'")
        path, method = new.output_path, new.output_method
        if path is None:
            path, method = call.output_path, call.output_method
        new = replace(new, id=call.id, after=call.after, output_path=path, output_method=method)
        return self.checked(new, session)

    async def fingerprint(self, bound_call: BoundCall) -> Fingerprint:
        """Return the fingerprint of the call as it would run now. Raises: UnboundError when that cannot be said."""
        entry, call = bound_call.entry, bound_call.call
        bound: Any = {}
        try:
            if callable(binds := getattr(entry.target, "binds", None)):
                bound = await self._ask(binds, bound_call)
            if not isinstance(bound, Mapping):
                raise TypeError(f"it must be an object, found {type(bound).__name__}")
            own: dict[str, Any] = {"tool": bound, "by": _code_name(entry)}
            own |= {key: call.meta[key] for key in _CHOICES if key in call.meta}
            return Fingerprint(
                digest(entry.name, entry.schema, call.params, bound_call.effect, self._revision, own), bound
            )
        except Exception as error:
            why = str(error) or type(error).__name__
            raise UnboundError(f"it cannot be said exactly what {entry.name!r} would do: {why}") from error

    async def refusal(self, bound_call: BoundCall) -> str:
        """Return why this call must not get a standing permission; "" if it may."""
        grantable = getattr(bound_call.entry.target, "grantable", None)
        if not callable(grantable):
            return ""
        name = bound_call.entry.name
        try:
            reason = await self._ask(grantable, bound_call)
        except Exception as error:
            return f"{name!r} could not say whether it may: {str(error) or type(error).__name__}"
        return reason if isinstance(reason, str) else f"{name!r} answered {shorten(reason)}, which is no reason"

    def checked(self, call: Call, session: str) -> BoundCall:
        """Return a call that people decide on, bound to the tools as they are now. Raises: ValueError."""
        call, entry = self._check(call)
        return BoundCall(call, entry, entry.effect_of(call.params), session)

    async def _ask(self, function: Any, bound_call: BoundCall) -> Any:
        """Return what a function of the tool says of a call. Raises: TimeoutError, and what the function raises."""
        params = copied(bound_call.call.params)
        if takes_session(function):
            function = functools.partial(function, session=bound_call.session)
        async with asyncio.timeout(WITHIN):
            answer = function(params) if is_async(function) else await self._threads.run(function, params)
            return await answer if inspect.isawaitable(answer) else answer


#: Modules that have moved: the former name, which existing grants are bound to, by the name of today.
_FORMER_MODULES = {"acting.mcp.tools": "acting.mcp_tools"}


def _code_name(entry: BoundTool) -> str:
    """Return the name of the code behind a tool: another tool may get the name and schema of an approved one."""
    code = entry.target if inspect.isroutine(entry.target) else type(entry.target)
    module = getattr(code, "__module__", "")
    return f"{entry.activity}: {_FORMER_MODULES.get(module, module)}.{getattr(code, '__qualname__', '')}"
