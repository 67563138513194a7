"""Incidents under `/v1`: list them, show one in full, close one for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct, to_builtins
from starlette.requests import Request
from starlette.responses import Response

from spar.errors import ConflictError
from spar.observe.logs import get_logger
from spar.ports.optional import IncidentsKept, KeepsIncidents, offers
from spar.records.perceived.incidents import Incident, summary_of
from spar.server.answers import PATIENCE, on_loop, reply
from spar.server.api.route import ApiRoute
from spar.server.peers import peer_of

if TYPE_CHECKING:
    from spar.service.app import Service

log = get_logger("spar.incidents")

#: Incidents in one answer.
MOST = 1_000


class IncidentsQuery(Struct, frozen=True):
    """Query of a list of incidents."""

    state: Annotated[Literal["all", "open", "closed"], Meta(description="Only in this state.")] = "all"
    limit: Annotated[int, Meta(ge=1, le=MOST, description="How many.")] = 100


def incident_routes(service: Service) -> list[ApiRoute]:
    """Return the routes of incidents."""

    def store() -> IncidentsKept:
        agent = service.agent("")
        sense = agent.setup.modules["sense"].part
        if not offers(sense, KeepsIncidents):
            raise LookupError(f"agent {agent.name!r} keeps no incidents: its sense module has none")
        return sense.incidents

    def find(id: str) -> Incident:
        for incident in store().list():
            if incident.id.casefold() == id.casefold():
                return incident
        known = ", ".join(incident.id for incident in store().list()[-5:]) or "none"
        raise LookupError(f"no incident {id[:100]!r}; the last are: {known}")

    async def list_incidents(request: Request, query: IncidentsQuery) -> Response:
        """List incidents in short form, newest first."""
        selected = [incident for incident in store().list() if query.state in ("all", incident.state)]
        return reply([summary_of(incident) for incident in selected[::-1][: query.limit]])

    async def show(request: Request) -> Response:
        """Return one incident in full: its perceptions, its history with reasons, and the cycles that handled it."""
        return reply(to_builtins(find(request.path_params["id"])))

    async def close(request: Request) -> Response:
        """Close an incident in the next cycle; 409 if it is closed already."""
        incident, by = find(request.path_params["id"]), peer_of(request)

        async def work() -> Any:
            return store().ask_closing(incident.id, by)

        try:
            closing = await on_loop(service.agent(""), work(), PATIENCE)
        except ValueError as error:
            raise ConflictError(str(error)) from None
        log.info("incident closed", agent=service.agent("").name, incident=incident.id, by=by)
        return reply(to_builtins(closing), 202)

    return [
        ApiRoute("GET", "/v1/incidents", list_incidents, "read"),
        ApiRoute("POST", "/v1/incidents/{id}:close", close, "operate", status=202),
        ApiRoute("GET", "/v1/incidents/{id}", show, "read"),
    ]
