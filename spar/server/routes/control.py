"""The control API under `/v1`: its application, and the handlers of the status, the agent's verbs and cycles.

The handlers run in the server's thread. Reads are answered from snapshots. Changes run in the agent's event loop, and
the handler waits for them with a time limit; if that loop is blocked, the answer says by what.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, cast

from msgspec import Meta, Struct
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from spar.agent.lifecycle import LEGAL
from spar.data.scrub import mask_json
from spar.events import ConfigReloaded
from spar.ports.optional import RestoresSensors, offers
from spar.records.audit import refine
from spar.server.answers import PATIENCE, on_loop, reply
from spar.server.api.openapi import document
from spar.server.api.query import Session
from spar.server.api.route import ApiRoute, decoded
from spar.server.audit import AuditMiddleware, audit_routes, write_before
from spar.server.bodies import BoundedBodies
from spar.server.encoding import encode
from spar.server.gate import AvailabilityMiddleware
from spar.server.problems import REFUSALS, on_error, problem
from spar.server.routes.contacts.channels import channel_routes
from spar.server.routes.contacts.senders import sender_routes
from spar.server.routes.contacts.tokens import token_routes
from spar.server.routes.events import event_routes
from spar.server.routes.memory import memory_routes
from spar.server.routes.perceived.incidents import incident_routes
from spar.server.routes.perceived.learning import learning_routes
from spar.server.routes.prompts import prompt_routes
from spar.server.routes.review import approval_routes, recovery_routes
from spar.server.routes.runs import run_routes
from spar.server.routes.sessions import session_routes
from spar.server.routes.steps import step_input
from spar.types import PHASES

if TYPE_CHECKING:
    from spar.service.app import Service

#: Seconds that a step, a pause or a stop may take before the request is answered with a timeout.
LONG_PATIENCE = 900.0
#: The verbs of an agent.
AGENT_VERBS = ("pause", "resume", "reload", "stop")


class StatusQuery(Struct, frozen=True):
    """Query of the status."""

    lanes: Annotated[bool, Meta(description="Whether the open sessions are included, which may be many.")] = True


class CyclesQuery(Struct, frozen=True):
    """Query of a list of cycles."""

    limit: Annotated[int, Meta(ge=1, le=10_000, description="How many.")] = 20
    before: Annotated[str | None, Meta(description="Only before this time, or this cycle's id.")] = None
    outcome: Annotated[str | None, Meta(description="Only with this outcome.")] = None
    session: Session = None
    failed: Annotated[bool, Meta(description="Only those that failed or had a failed call.")] = False


def control(service: Service) -> Starlette:
    """Return the application of the control API of a service."""
    routes = control_routes(service)
    return Starlette(
        routes=routes,
        middleware=[
            Middleware(BoundedBodies),
            Middleware(AvailabilityMiddleware, service=service),
            Middleware(AuditMiddleware, service=service, routes=routes),
        ],
        exception_handlers={**REFUSALS, Exception: on_error, 404: _not_found, 405: _wrong_method},
    )


def described() -> dict[str, Any]:
    """Return the OpenAPI document of the control API; it needs no service."""
    return document(control_routes(cast("Service", None)))


def control_routes(service: Service) -> Sequence[ApiRoute]:
    """Return the routes of the control API. The handlers use the service only when they are called."""

    async def status(request: Request, query: StatusQuery) -> Response:
        """Return the status of the service."""
        status = service.status(has_lanes=query.lanes)
        return Response(mask_json(encode(status).decode()), media_type="application/json")

    async def act_on(request: Request) -> Response:
        """Carry out a verb: `NAME:pause`, `:resume`, `:reload`, `:stop`."""
        name, _, verb = request.path_params["target"].rpartition(":")
        agent = service.agent(name)
        verbs: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
            "pause": agent.pause,
            "resume": agent.resume,
            "reload": service.reload,
            "stop": service.stop,
        }
        if verb not in verbs:
            raise LookupError(f"no verb {verb!r}; known: {', '.join(verbs)}, step_sense … step_reflect")
        before = agent.core.state
        refine(detail={"state": before})
        result = await on_loop(agent, verbs[verb](), LONG_PATIENCE)
        changes = (
            {"changed": result.changed, "needs_restart": result.needs_restart}
            if isinstance(result, ConfigReloaded)
            else {}
        )
        return reply({"agent": agent.name, "before": before, "after": agent.core.state, **changes})

    async def step(request: Request, body: bytes) -> Response:
        """Run one phase with the body as its input. A step of act calls any tool with any parameters."""
        agent, phase = service.agent(request.path_params["name"]), request.path_params["phase"]
        if phase not in PHASES:
            raise LookupError(f"no phase {phase!r}; known: {', '.join(PHASES)}")
        method = getattr(agent, f"step_{phase}")
        arguments: list[Any] = []
        if body and phase == "sense":
            raise ValueError("sense takes nothing: it looks for itself")
        if body:
            arguments = [step_input(phase, decoded(body, Any))]
        if "step" in LEGAL[agent.core.state]:
            await write_before(service)
        return reply(await on_loop(agent, method(*arguments), LONG_PATIENCE))

    async def restore(request: Request) -> Response:
        """Restore a sensor from quarantine, so that it is polled again now."""
        agent, sensor = service.agent(""), request.path_params["sensor"]
        sense = agent.setup.modules["sense"].part
        if not offers(sense, RestoresSensors):
            raise LookupError(f"no sensor {sensor!r}: this sense module keeps none")

        async def work() -> None:
            sense.restore(sensor)

        await on_loop(agent, work(), PATIENCE)
        return reply({"sensor": sensor}, 202)

    async def cycles(request: Request, query: CyclesQuery) -> Response:
        """List cycles, newest first."""
        return reply(
            await service.memory.cycles(
                limit=query.limit, before=query.before, outcome=query.outcome, session=query.session,
                failed=query.failed,
            )
        )  # fmt: skip

    async def cycle(request: Request) -> Response:
        """Return one cycle with its calls and results."""
        cycle_id = request.path_params["cycle_id"]
        record = await service.memory.cycle(cycle_id)
        if record is None:
            raise LookupError(f"no cycle {cycle_id!r} is recorded")
        return reply(record)

    @cache
    def described_once() -> bytes:
        return encode(document(routes))

    async def openapi(request: Request) -> Response:
        """Return this API as an OpenAPI document."""
        return Response(described_once(), media_type="application/json")

    routes: Sequence[ApiRoute] = [
        ApiRoute("GET", "/v1/openapi.json", openapi, "read"),
        ApiRoute("GET", "/v1/status", status, "read"),
        ApiRoute("POST", "/v1/agents/{name}:step_{phase}", step, "step"),  # before the route that has any verb
        ApiRoute("POST", "/v1/agents/{target}", act_on, "operate", verbs=AGENT_VERBS),
        *event_routes(service),
        *run_routes(service),
        *prompt_routes(service),
        ApiRoute("POST", "/v1/sensors/{sensor}:restore", restore, "operate", status=202),
        ApiRoute("GET", "/v1/cycles", cycles, "read"),
        ApiRoute("GET", "/v1/cycles/{cycle_id}", cycle, "read"),
        *memory_routes(service),
        *incident_routes(service),
        *approval_routes(service),
        *recovery_routes(service),
        *channel_routes(service),
        *sender_routes(service),
        *token_routes(service),
        *session_routes(service),
        *learning_routes(service),
        *audit_routes(service),
    ]
    return routes


async def _wrong_method(request: Request, error: Exception) -> Response:
    return problem(405, f"{request.method} is not what {request.url.path!r} takes; GET /v1/openapi.json says what is")


async def _not_found(request: Request, error: Exception) -> Response:
    return problem(404, f"nothing at {request.url.path!r}; the API is under /v1")
