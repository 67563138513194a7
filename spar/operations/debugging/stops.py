"""Operations on sessions that stand at a breakpoint: look, change, go on.

Whoever calls `attach`, `change` or `go` renews the leases that concern the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta, Struct

from spar.operations.debugging.breakpoints import attached, breakpoints_of, demand_session
from spar.operations.operation import PATIENCE, AgentStore, AuditRule, Caller, RowsChoice, chosen, operation
from spar.ports.breakpoints import ChangeByHand, Stop, Until
from spar.records.audit import refine

if TYPE_CHECKING:
    from spar.service.app import Service

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
