"""Binding of an approval to one call exactly as it would run, by a digest of it and of all facts that decide what it
does.

A tool returns the other facts that decide what its call does from `binds(params) -> dict` (a program's path and hash,
the working directory). It returns why a standing permission would be too wide from `grantable(params) -> str`. Both may
block on a disk. Parameters from people are data: nothing in them is read as a reference.

The digest is of canonical JSON, RFC 8785: keys sorted by UTF-16 units, no spaces, numbers as ECMAScript writes them, so
that two values with the same text are the same value. This project has its own writer, because libraries refuse two
values: integers beyond 2**53 stay exact (written as ECMAScript's `123n`, which no float is), and lone surrogates stay
what they are. NaN, infinity and values of other types are refused.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from hashlib import sha256
from math import isfinite
from typing import Any, Final

from msgspec import Struct

from acting.tooling.bound_tool import BoundTool, is_async, takes_session
from spar.checks import shorten
from spar.clock import Clock
from spar.data.json_safe import UNBOUNDED, whole
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
            schema = fingerprint(whole(entry.schema, UNBOUNDED))
            facts = {"tool": entry.name, "schema": schema, "params": call.params, "effect": bound_call.effect}
            return Fingerprint(fingerprint({**facts, "policy": self._revision, "bound": own}), bound)
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


_quoted = json.JSONEncoder(ensure_ascii=False).encode
_EXACT = 1 << 53  # the largest integer that a float next to it is told apart from
_DEEPEST = 200  # levels; parameters and what tools say are shallower


def canonical(value: Any) -> bytes:
    """Return a value as canonical JSON. Raises: ValueError for a value that JSON cannot express."""
    parts: list[str] = []
    _write(value, parts.append, 0)
    return "".join(parts).encode("utf-8", "surrogatepass")


def fingerprint(value: Any) -> str:
    """Return the SHA-256 (hexadecimal) of the canonical JSON of a value. Raises: ValueError."""
    return sha256(canonical(value)).hexdigest()


def _write(value: Any, put: Any, depth: int) -> None:
    if depth > _DEEPEST:
        raise ValueError(f"a value nested more than {_DEEPEST} levels deep cannot be written exactly")
    if value is None or value is True or value is False:
        put("null" if value is None else "true" if value else "false")
    elif isinstance(value, str):
        put(_quoted(value))
    elif isinstance(value, int):
        put(f"{int.__repr__(value)}{'' if abs(value) <= _EXACT else 'n'}")
    elif isinstance(value, float):
        put(_number(value))
    elif isinstance(value, Mapping):
        put("{")
        for index, key in enumerate(sorted(value, key=_units)):
            put(f"{',' if index else ''}{_quoted(key)}:")
            _write(value[key], put, depth + 1)
        put("}")
    elif isinstance(value, (list, tuple)):
        put("[")
        for index, item in enumerate(value):
            if index:
                put(",")
            _write(item, put, depth + 1)
        put("]")
    else:
        raise ValueError(f"a {type(value).__name__} cannot be written exactly: use text, numbers, lists and objects")


def _units(key: Any) -> bytes:
    if not isinstance(key, str):
        raise ValueError(f"an object's keys are text, found a {type(key).__name__}")
    return key.encode("utf-16-be", "surrogatepass")


def _number(value: float) -> str:
    """Return a number as ECMAScript's `Number::toString` writes it; Python's `repr` finds the same shortest digits."""
    if not isfinite(value):
        raise ValueError("nan and infinity cannot be written exactly")
    if value == 0:
        return "0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    text, point = "".join(map(str, digits)), len(digits) + int(exponent)
    if 0 < point <= 21:
        text = text.ljust(point, "0") if len(text) <= point else f"{text[:point]}.{text[point:]}"
    elif -6 < point <= 0:
        text = f"0.{'0' * -point}{text}"
    else:
        tail = f".{text[1:]}" if len(text) > 1 else ""
        text = f"{text[0]}{tail}e{'+' if point > 0 else '-'}{abs(point - 1)}"
    return f"-{text}" if sign else text
