"""Prompt of a session under `/v1`: what stands in its next request to a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from spar.data.scrub import mask_json
from spar.server.answers import PATIENCE, on_loop
from spar.server.encoding import encode
from spar.session.preview import prompt_of

if TYPE_CHECKING:
    from spar.service.app import Service

#: Characters of a message that a prompt is shown for.
LONGEST_MESSAGE = 100_000


def prompt_routes(service: Service) -> list[Route]:
    """Return the route of prompts."""

    async def shown(request: Request) -> Response:
        """Return the next request of a session by part, size and origin; `message` is what it is about, `full=1` adds
        the texts."""
        service.demand_open()
        agent, query = service.agent(""), request.query_params
        if len(message := query.get("message", "")) > LONGEST_MESSAGE:
            raise ValueError(f"message has {len(message)} characters, expected at most {LONGEST_MESSAGE}")
        work = prompt_of(
            agent, request.path_params["session"], message, with_text=query.get("full", "") in ("1", "true")
        )
        found = await on_loop(agent, work, PATIENCE)
        return Response(mask_json(encode(found).decode()), media_type="application/json")

    return [Route("/v1/sessions/{session:path}/prompt", shown)]
