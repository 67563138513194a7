"""Rules of approvals: the legal changes, the contents of a decision, repeated questions; the exact call that is asked
about; grants.

An approval is bound to one call exactly as it would run, by a digest of it and of all facts that decide what it does. A
tool returns the other facts from `binds(params) -> dict` (a program's path and hash, the working directory). It returns
why a standing permission would be too wide from `grantable(params) -> str`. Both may block on a disk. Parameters from
people are data: nothing in them is read as a reference.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import Struct

from acting.tooling.bound_tool import BoundTool, answer_of, takes_session
from spar.checks import shorten
from spar.clock import Clock
from spar.data.json_safe import UNBOUNDED, whole
from spar.data.json_safe.canonical import fingerprint
from spar.data.paths import copied
from spar.errors import SparError, TransientError
from spar.ports.rows import KeptRows
from spar.protocols import Effect
from spar.records.approvals import TRANSITIONS, Approval, ApprovalStatus, DecidedError, Grant
from spar.threads import Threads
from spar.types import Call, replace

KEPT: Final = 1000  # settled approvals that stay readable
_RUNS: Final = 10  # the limit of all questions is so many times the limit of one run


class RefusedError(SparError):
    """The question cannot be asked; the message says why."""


def moved(row: Approval, status: ApprovalStatus, **changes: Any) -> Approval:
    """Return the row in another status. Raises: DecidedError for a change that is not legal (`TRANSITIONS`)."""
    if status not in TRANSITIONS[row.status]:
        raise DecidedError(f"approval {row.id!r} is {row.status} and cannot become {status}")
    return replace(row, status=status, **changes)


def standing(row: Approval) -> str:
    """Return the state of a row that takes no decision any more, in words."""
    if row.status == "pending":
        return "expired"
    return f"{row.status}, decided by {row.decided_by}" if row.decided_by else row.status


def asked_already(rows: Collection[Approval], new: Approval) -> tuple[Approval, bool] | None:
    """Return the question that exists for the call of a new one, and whether the same cycle asked it; None if there is
    none."""
    for row in rows if new.cycle_id else ():
        # An interrupted cycle that goes on still owns its questions, also those that have an answer by now.
        if (row.cycle_id, row.call.id) == (new.cycle_id, new.call.id) and _is_about(row, new):
            return row, True
    for row in rows:
        is_open = row.status == "pending" and new.asked_at < row.expires_at
        # Another call of the same plan gets a question of its own, even if it differs only in its id.
        is_same_question = row.call.id == new.call.id or row.cycle_id != new.cycle_id
        if is_open and is_same_question and (row.session, row.digest) == (new.session, new.digest):
            return row, False
    return None


def demand_room(rows: Iterable[Approval], new: Approval, most: int) -> None:
    """Check the limits of waiting questions, of this run and in all. Raises: RefusedError when one is reached."""
    pending = [row for row in rows if row.status == "pending"]
    if len(pending) >= _RUNS * most:
        raise RefusedError(f"{len(pending)} calls wait for an approval already, as many as may in all")
    waiting = sum((row.session, row.run_id) == (new.session, new.run_id) for row in pending)
    if waiting >= most:
        whose = f"run {new.run_id!r}" if new.run_id else f"session {new.session!r}"
        raise RefusedError(f"{waiting} calls of {whose} wait for an approval already, as many as may")


def surplus(rows: Iterable[Approval]) -> list[Approval]:
    """Return the oldest settled rows beyond the `KEPT` latest ones."""
    settled = sorted((row for row in rows if not TRANSITIONS[row.status]), key=lambda row: row.asked_at)
    return settled[: max(0, len(settled) - KEPT)]


def _is_about(row: Approval, new: Approval) -> bool:
    """Return whether a question is about the call of a new one as it would run now, and still counts."""
    is_same = row.digest == new.digest
    if row.original is not None:  # the digest is that of the call by which people replaced it
        is_same = (row.original.tool, row.original.params) == (new.call.tool, new.call.params)
    is_in_time = row.status in ("pending", "approved") and new.asked_at < row.expires_at
    return is_same and (is_in_time or row.status == "denied")


LONGEST: Final = 30 * 86_400.0  # seconds


class Grants(KeptRows[Grant]):
    """The grants of one executor: standing permissions by people, each for one exact call and for a time.

    A grant is bound to the digest of its call, so people are asked again when the call's program, schema, effect or
    rules have changed. Each use is counted, durably, before the call starts. `now` returns the wall time.
    """

    def __init__(self, fingerprinter: Fingerprinter, now: Callable[[], datetime]) -> None:
        super().__init__("grant", Grant)
        self._fingerprinter, self._now = fingerprinter, now

    def in_force(self) -> list[Grant]:
        now = self._now()
        return sorted((grant for grant in self.values.values() if grant.expires_at > now), key=lambda grant: grant.id)

    async def give(self, row: Approval, seconds: float, by: str, *, is_of_session: bool) -> Grant:
        """Grant exactly this call for `seconds` from now; durable when this returns.

        Raises: ValueError for a time that is too long or a tool that refuses it; TransientError.
        """
        if not 0 < seconds <= LONGEST:
            raise ValueError(f"a grant lasts more than 0 and at most {LONGEST:g} seconds, found {seconds!r}")
        if why := await self._fingerprinter.refusal(self._fingerprinter.checked(row.call, row.session)):
            raise ValueError(f"no grant can be given for this call: {why}")
        now = self._now()
        grant = Grant(self.new_id("g"), row.call.tool, row.call.params, now + timedelta(seconds=seconds),
                      row.session if is_of_session else "", by, now, 0, row.digest)  # fmt: skip
        for expired in [grant.id for grant in self.values.values() if grant.expires_at <= now]:
            await self.drop(expired)
        await self.add(grant)
        return grant

    async def use(self, session: str, digest: str, since: datetime | None) -> Grant | None:
        """Use a grant for exactly the call with this digest and count the use. Return it, None if there is none.

        Args: since: no grant from before this time counts.
        """
        for grant in self.in_force():
            is_new_enough = since is None or (grant.granted_at is not None and grant.granted_at >= since)
            if grant.digest == digest and grant.session in ("", session) and is_new_enough:
                with suppress(LookupError, TransientError):  # revoked just now, or the use cannot be counted
                    return await self.change(grant.id, self._count_use)
        return None

    def _count_use(self, row: Grant) -> Grant:
        """Return the row with one use more. Raises: LookupError for an expired grant."""
        if row.expires_at <= self._now():
            raise LookupError(f"grant {row.id!r} has expired")
        return replace(row, uses=row.uses + 1)


#: The keys of a call's meta that decide what runs, on which messages, and with which result.
_CHOICES: Final = ("_activity", "_delegate", "_output", "_scopes")
WITHIN: Final = 10.0  # seconds that a tool may take to say what binds its call


class UnboundError(SparError, ValueError):
    """Error of a call for which the tool cannot say exactly what would run."""


class BoundCall(Struct, frozen=True):
    """A call whose parameters are plain values without references, with its tool and its effect."""

    call: Call
    entry: BoundTool
    session: str = "main"

    @property
    def effect(self) -> Effect:
        return self.entry.effect_of(self.call.params)


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

    def changed(self, call: Call, params: Any, wire: Any, session: str) -> BoundCall:
        """Return what people made of a call: other parameters, or, if `params` is None, another call with its id and
        (by default) its output path.

        Raises: ValueError for what is no call, or not one of this tool.
        """
        try:
            new = replace(call, params=copied(params)) if params is not None else Call.from_wire(wire)
        except TypeError as error:
            raise ValueError(str(error)) from error
        if params is None and new.after:
            raise ValueError("a call that replaces one runs in its place: leave out '_after'")
        if new.output_path is None:
            new = replace(new, output_path=call.output_path, output_method=call.output_method)
        return self.checked(replace(new, id=call.id), session)

    async def fingerprint(self, bound_call: BoundCall) -> tuple[str, Mapping[str, Any]]:
        """Return the digest of the call as it would run now, and the facts from the tool's `binds`.

        Raises: UnboundError when that cannot be said.
        """
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
            return fingerprint({**facts, "policy": self._revision, "bound": own}), bound
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
        return BoundCall(*self._check(call), session)

    async def _ask(self, function: Any, bound_call: BoundCall) -> Any:
        """Return what a function of the tool says of a call. Raises: TimeoutError, and what the function raises."""
        params = copied(bound_call.call.params)
        if takes_session(function):
            function = functools.partial(function, session=bound_call.session)
        async with asyncio.timeout(WITHIN):
            return await answer_of(function, self._threads, params)


#: Modules that have moved: the former name, which existing grants are bound to, by the name of today.
_FORMER_MODULES = {"acting.mcp.tools": "acting.mcp_tools"}


def _code_name(entry: BoundTool) -> str:
    """Return the name of the code behind a tool: another tool may get the name and schema of an approved one."""
    code = entry.target if inspect.isroutine(entry.target) else type(entry.target)
    module = getattr(code, "__module__", "")
    return f"{entry.activity}: {_FORMER_MODULES.get(module, module)}.{getattr(code, '__qualname__', '')}"
