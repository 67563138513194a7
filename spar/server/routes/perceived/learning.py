"""Examples of intents and kinds under `/v1`: list, teach and forget examples, try a text."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from spar.ports.optional import Learns, offers
from spar.records.audit import refine
from spar.server.answers import PATIENCE, on_loop, reply
from spar.server.api.route import ApiRoute
from spar.server.peers import peer_of

if TYPE_CHECKING:
    from spar.service.app import Service


class TeachBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of an example: a text, its label, and whether that is an intent or a kind."""

    text: str
    label: str
    what: Literal["intent", "kind"] = "intent"


class ForgetBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body that names an example by its id."""

    id: str


class TryBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body with a text to classify."""

    text: str


def learning_routes(service: Service) -> list[ApiRoute]:
    """Return the routes of learning from examples."""

    async def ask(question: Callable[[Learns], Coroutine[Any, Any, Any]]) -> Response:
        agent = service.agent("")
        service.demand_open()
        sense = agent.setup.modules["sense"].part
        if not offers(sense, Learns):
            raise LookupError("this sense module learns nothing from examples; the standard one does")
        return reply(await on_loop(agent, question(sense), PATIENCE))

    async def examples(request: Request) -> Response:
        """List the known labels, and the examples that people taught."""

        async def work(sense: Learns) -> Any:
            return sense.taught()

        return await ask(work)

    async def teach(request: Request, body: TeachBody) -> Response:
        """Teach an example: from now on similar texts have this intent, or this kind."""
        refine(subject=body.label, detail={"what": body.what})
        by = peer_of(request)
        return await ask(lambda sense: sense.teach(body.what, body.text, body.label, by=by))

    async def forget(request: Request, body: ForgetBody) -> Response:
        """Forget an example."""
        refine(subject=body.id)
        by = peer_of(request)
        return await ask(lambda sense: sense.unteach(body.id, by=by))

    async def attempt(request: Request, body: TryBody) -> Response:
        """Return how a text would be classified; nothing is stored."""

        async def work(sense: Learns) -> Any:
            return sense.read(body.text)

        return await ask(work)

    return [
        ApiRoute("GET", "/v1/examples", examples, "read"),
        ApiRoute("POST", "/v1/examples:teach", teach, "operate"),
        ApiRoute("POST", "/v1/examples:forget", forget, "operate"),
        ApiRoute("POST", "/v1/examples:try", attempt, "read"),
    ]
