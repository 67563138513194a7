"""Operations on breakpoints, and on sessions that stand at one: add, list, remove; look, change, go on.

The attachment behind them is imported and attached with the first breakpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, cast

from msgspec import Meta, Struct

from spar.operations.operation import (
    PATIENCE,
    AgentStore,
    AuditRule,
    Caller,
    Column,
    CommandForm,
    RowsChoice,
    chosen,
    effect_form,
    operation,
)
from spar.ports.breakpoints import Breakpoint, ChangeByHand, Point, Stop, Until
from spar.records.audit import refine

if TYPE_CHECKING:
    from spar.breakpoints.breakpoints import Breakpoints
    from spar.service.app import Service

#: Seconds of the longest lease, and characters of the longest name.
LONGEST_LEASE, LONGEST_NAME = 86_400.0, 100


class NewBreakpoint(Struct, frozen=True, forbid_unknown_fields=True):
    """A new breakpoint."""

    point: Annotated[Point, Meta(description="After sense, after plan, before a call, after its result, "
                                             "before reflect.")]  # fmt: skip
    session: Annotated[str, Meta(description="Only in this session; default: in each.")] = ""
    when: Annotated[
        str, Meta(description="Only if this holds for a perception, call or result of the point: 'tool == \"shell\"'.")
    ] = ""
    name: Annotated[str, Meta(max_length=LONGEST_NAME, description="Its name; default: one is made.")] = ""
    lease: (
        Annotated[
            float,
            Meta(gt=0, le=LONGEST_LEASE, extra={"duration": True}, description="Seconds after which it ends, unless "
                 "somebody attached renews it; default: those of the configuration."),
        ]
        | None
    ) = None  # fmt: skip


class BreakpointName(Struct, frozen=True, forbid_unknown_fields=True):
    """The name of a breakpoint."""

    name: str


def attached(store: AgentStore) -> Breakpoints | None:
    """Return the breakpoints of the agent; None if there never was one, or it does not run."""
    if store.agent is None:
        return None
    return cast("Breakpoints | None", store.agent.attachments.find("breakpoints"))


def breakpoints_of(service: Service) -> Breakpoints:
    """Return the breakpoints of the agent. Raises: LookupError if there never was one."""
    if (breakpoints := attached(service)) is None:
        raise LookupError("no breakpoint was set since the start; spar break add sets one")
    return breakpoints


async def demand_session(service: Service, key: str) -> None:
    """Check that a session exists. Raises: LookupError."""
    if key not in ("", "main") and key not in service.agent.sessions.by_key:
        await service.agent.conversations.records.get(key)


def _span(seconds: float) -> str:
    from spar.review.render import span

    return span(seconds)


def _remaining(row: Breakpoint) -> str:
    return f"set, {_span(row.left)} left" if row.state == "set" else f"{row.state}: {row.why}"


@operation("break add", "POST /v1/breakpoints", "operate",
           audit=AuditRule("breakpoint.add", subject="name", detail=("point", "session", "when", "lease")),
           command=CommandForm(
    arguments=("point",),
    sentence=lambda given, row: f"set: {row.name}; it ends after {_span(row.lease)} unless somebody is attached: "
                                f"spar attach {row.session}".rstrip(),
    examples=("spar break add plan --session x --when 'tool == \"shell\"'", "spar break add result --lease 1h",
              "spar break add call --when 'params.path == \"/etc\" or not (tool in [\"note\", \"say\"])'"),
))  # fmt: skip
async def add_breakpoint(service: Service, given: NewBreakpoint, caller: Caller) -> Breakpoint:
    """Set a breakpoint: a session that comes to its point stands still there until somebody lets it go on.

    Names in a condition, null where the point does not have them: session run cycle kind source subject intent text
    priority trust attributes goal output tool params reason status error attempts."""
    await demand_session(service, given.session)
    agent = service.agent
    if (breakpoints := attached(service)) is None:
        from spar.breakpoints.breakpoints import Breakpoints
        from spar.parts.registry import OWN

        breakpoints = Breakpoints()
        agent.attachments.add(breakpoints, OWN, "breakpoints")
        await agent.attachments.open()
    lease = agent.core.settings.breakpoints.lease if given.lease is None else given.lease
    row = breakpoints.add(given.point, given.session, given.when, given.name, lease, caller.by)
    refine(subject=row.name, detail={"lease": lease})
    return row


@operation("break list", "GET /v1/breakpoints", "read", is_stored=True, command=CommandForm(
    columns=(Column("name", "name"), Column("point", "point"), Column("session", lambda row: row.session or "each"),
             Column("when", "when"), Column("state", _remaining), Column(">hits", lambda row: str(row.hits)),
             Column("stands", "stands", "list"), Column("by", "by")),
    empty="no breakpoint is set", examples=("spar break list",),
))  # fmt: skip
async def list_breakpoints(store: AgentStore, given: RowsChoice) -> list[Breakpoint]:
    """List the breakpoints that are set, the sessions that stand at them, and those that have ended lately, with the
    reason."""
    breakpoints = attached(store)
    return chosen(given, [] if breakpoints is None else breakpoints.rows())


@operation("break remove", "DELETE /v1/breakpoints/{name}", "operate",
           audit=AuditRule("breakpoint.remove", subject="name"),
           command=effect_form("removed", lambda row: row.name, "spar break remove plan-1"))  # fmt: skip
async def remove_breakpoint(service: Service, given: BreakpointName, caller: Caller) -> Breakpoint:
    """Remove a breakpoint; sessions that stand at it go on."""
    return breakpoints_of(service).remove(given.name, caller.by)


# -- the sessions that stand; who attaches to one, changes it or lets it go on renews the leases that concern it

#: Seconds that a request may wait until a session stands.
LONGEST_WAIT: Final = 30.0


class AttachBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A session to which somebody is attached."""

    session: Annotated[str, Meta(description="The session; empty: whichever stands.")] = ""
    wait: Annotated[float, Meta(ge=0, le=LONGEST_WAIT, description="Seconds to wait until it stands.")] = 0.0


class ChangeBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A change of what a session stands about."""

    stop: Annotated[str, Meta(description="The id of the stop.")]
    patch: Annotated[
        Any, Meta(description="A JSON merge patch (RFC 7396) of the perceptions, the plan, the call or the result.")
    ] = None
    id: Annotated[str, Meta(description="A perception, or a call of the plan; empty: the whole part.")] = ""
    reason: Annotated[str, Meta(max_length=2_000, description="The reason; it is stored.")] = ""


class GoBody(Struct, frozen=True, forbid_unknown_fields=True):
    """How far a session goes on."""

    stop: Annotated[str, Meta(description="The id of the stop.")]
    until: Annotated[
        Until, Meta(description="To its next point, to the first one of its next cycle, or to the next breakpoint.")
    ] = "end"


class DetachBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A session to which somebody was attached."""

    session: Annotated[str, Meta(description="The session; empty: all.")] = ""


@operation("stops list", "GET /v1/stops", "read", is_masked=True, is_stored=True)
async def list_stops(store: AgentStore, given: RowsChoice) -> list[Stop]:
    """List where sessions stand, the longest first: perceptions, plan, call, results, changes."""
    breakpoints = attached(store)
    return chosen(given, [] if breakpoints is None else breakpoints.stops())


@operation("stops attach", "POST /v1/stops:attach", "operate", is_masked=True, repeatable=lambda given: True,
           patience=lambda given: given.wait + PATIENCE)  # fmt: skip
async def attach(service: Service, given: AttachBody) -> Stop | None:
    """Renew the leases of a session's breakpoints, and return where the session stands; null if it does not within the
    wait."""
    await demand_session(service, given.session)
    return await breakpoints_of(service).attach_to(given.session, given.wait)


@operation("stops change", "POST /v1/stops/{stop}:change", "operate", is_masked=True,
           audit=AuditRule("breakpoint.change", subject="stop", detail=("id", "reason")))  # fmt: skip
async def change(service: Service, given: ChangeBody, caller: Caller) -> ChangeByHand:
    """Change what a session stands about: a perception after sense, the plan after plan, the call before it begins, the
    result after it. It passes the same checks as any: schema, policy, approval."""
    from spar.breakpoints.breakpoints import noted

    changed = breakpoints_of(service).change(given.stop, given.id, given.patch, caller.by, given.reason)
    refine(detail=noted(changed))
    return changed


@operation("stops go", "POST /v1/stops/{stop}:go", "operate", is_masked=True,
           audit=AuditRule("breakpoint.go", subject="stop", detail=("until",)))  # fmt: skip
async def go_on(service: Service, given: GoBody, caller: Caller) -> Stop:
    """Let a session go on; return where it stood."""
    stop = breakpoints_of(service).go(given.stop, given.until, caller.by)
    refine(detail={"session": stop.session, "cycle": stop.cycle_id, "at": stop.where})
    return stop


@operation("stops detach", "POST /v1/stops:detach", "operate", is_masked=True,
           audit=AuditRule("breakpoint.detach", subject="session"))  # fmt: skip
async def detach(service: Service, given: DetachBody, caller: Caller) -> list[Stop]:
    """Let a session go on from wherever it stands; return where it stood. Its breakpoints stay until they end."""
    return breakpoints_of(service).detach(given.session, caller.by)
