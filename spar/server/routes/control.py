"""The control API under `/v1`: thin handlers over the agent.

It runs in the server's thread. What only reads is answered from snapshots; what acts is handed to the agent's event
loop and waited for, with a bound: when that loop is blocked, the answer says so and by what.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from spar.agent.served import Served
from spar.data.scrub import mask_json
from spar.events import ConfigReloaded
from spar.ports.optional import RestoresSensors, offers
from spar.records.audit import refine
from spar.server.answers import PATIENCE, decoded, on_loop, reply
from spar.server.audit import AuditMiddleware, audit_routes
from spar.server.bodies import BoundedBodies
from spar.server.encoding import encode
from spar.server.gate import AvailabilityMiddleware
from spar.server.problems import REFUSALS, on_error, problem
from spar.server.routes.channels import channel_routes
from spar.server.routes.events import event_routes
from spar.server.routes.memory import memory_routes
from spar.server.routes.perceived.incidents import incident_routes
from spar.server.routes.perceived.learning import learning_routes
from spar.server.routes.prompts import prompt_routes
from spar.server.routes.review import approval_routes, recovery_routes
from spar.server.routes.runs import run_routes
from spar.server.routes.senders import sender_routes
from spar.server.routes.sessions import session_routes
from spar.server.routes.steps import step_input
from spar.types import PHASES

if TYPE_CHECKING:
    from spar.service.app import Service

#: Seconds that a step, a pause or a stop may take before the caller is told to look again.
LONG_PATIENCE = 900.0


def control(service: Service) -> Starlette:
    """The application that controls a service."""

    async def status(request: Request) -> Response:
        """Return the status of the service; `lanes=0` leaves out the sessions that have something to do."""
        has_lanes = request.query_params.get("lanes", "1") != "0"
        return Response(mask_json(encode(service.status(has_lanes=has_lanes)).decode()), media_type="application/json")

    async def act_on(request: Request) -> Response:
        """`NAME:pause`, `:resume`, `:reload`, `:stop`, or `:step_PHASE` with an input as body."""
        name, _, verb = request.path_params["target"].rpartition(":")
        agent = service.agent(name)
        if verb.startswith("step_"):
            return await step(agent, verb.removeprefix("step_"), await request.body())
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
        done = await on_loop(agent, verbs[verb](), LONG_PATIENCE)
        more = (
            {"changed": done.changed, "needs_restart": done.needs_restart} if isinstance(done, ConfigReloaded) else {}
        )
        return reply({"agent": agent.name, "before": before, "after": agent.core.state, **more})

    async def step(agent: Served, phase: str, body: bytes) -> Response:
        if phase not in PHASES:
            raise LookupError(f"no phase {phase!r}; known: {', '.join(PHASES)}")
        method = getattr(agent, f"step_{phase}")
        given: list[Any] = []
        if body and phase == "sense":
            raise ValueError("sense takes nothing: it looks for itself")
        if body:
            given = [step_input(phase, decoded(body, Any))]
        return reply(await on_loop(agent, method(*given), LONG_PATIENCE))

    async def restore(request: Request) -> Response:
        """Try a sensor that is in quarantine again now."""
        agent, sensor = service.agent(""), request.path_params["sensor"]
        sense = agent.setup.modules["sense"].part
        if not offers(sense, RestoresSensors):
            raise LookupError(f"no sensor {sensor!r}: this sense module keeps none")

        async def work() -> None:
            sense.restore(sensor)

        await on_loop(agent, work(), PATIENCE)
        return reply({"sensor": sensor}, 202)

    async def cycles(request: Request) -> Response:
        """List cycles, newest first; `limit`, `before`, `outcome`, `session`, `failed=1` select."""
        query = request.query_params
        limit = int(query.get("limit", "20"))
        return reply(
            await service.memory.cycles(
                limit=limit, before=query.get("before"), outcome=query.get("outcome"), session=query.get("session"),
                failed=query.get("failed", "") in ("1", "true"),
            )
        )  # fmt: skip

    async def cycle(request: Request) -> Response:
        """Return one cycle with its calls and results."""
        cycle_id = request.path_params["cycle_id"]
        record = await service.memory.cycle(cycle_id)
        if record is None:
            raise LookupError(f"no cycle {cycle_id!r} on the tape")
        return reply(record)

    routes = [
        Route("/v1/status", status),
        Route("/v1/agents/{target}", act_on, methods=["POST"]),
        *event_routes(service),
        *run_routes(service),
        *prompt_routes(service),
        Route("/v1/sensors/{sensor}:restore", restore, methods=["POST"]),
        Route("/v1/cycles", cycles),
        Route("/v1/cycles/{cycle_id}", cycle),
        *memory_routes(service),
        *incident_routes(service),
        *approval_routes(service),
        *recovery_routes(service),
        *channel_routes(service),
        *sender_routes(service),
        *session_routes(service),
        *learning_routes(service),
        *audit_routes(service),
    ]
    return Starlette(
        routes=routes,
        middleware=[
            Middleware(BoundedBodies),
            Middleware(AvailabilityMiddleware, service=service),
            Middleware(AuditMiddleware, service=service, routes=routes),
        ],
        exception_handlers={**REFUSALS, Exception: on_error, 404: _not_found},
    )


async def _not_found(request: Request, error: Exception) -> Response:
    return problem(404, f"nothing at {request.url.path!r}; the API is under /v1")
