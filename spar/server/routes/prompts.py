"""Prompt of a session under `/v1`: the parts of its next request to a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from spar.data.scrub import mask_json
from spar.server.answers import PATIENCE, on_loop
from spar.server.api.route import ApiRoute
from spar.server.encoding import encode
from spar.session.preview import prompt_of

if TYPE_CHECKING:
    from spar.service.app import Service

#: Longest message for which a prompt is shown, in characters.
LONGEST_MESSAGE = 100_000


class PromptQuery(Struct, frozen=True):
    """Query of a prompt."""

    message: Annotated[
        str, Meta(max_length=LONGEST_MESSAGE, description="The message that the request would be about.")
    ] = ""
    full: Annotated[bool, Meta(description="Whether the texts are included.")] = False


def prompt_routes(service: Service) -> list[ApiRoute]:
    """Return the route of prompts."""

    async def show(request: Request, query: PromptQuery) -> Response:
        """Return the next request of a session to a model by part, size and origin."""
        service.demand_open()
        agent = service.agent("")
        work = prompt_of(agent, request.path_params["key"], query.message, with_text=query.full)
        prompt = await on_loop(agent, work, PATIENCE)
        return Response(mask_json(encode(prompt).decode()), media_type="application/json")

    return [ApiRoute("GET", "/v1/sessions/{key:path}:prompt", show, "read")]
