"""Channels under `/v1`: how each is doing, the messages that it could not deliver, and what becomes of those."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from spar.server.answers import PATIENCE, on_loop, reply
from spar.server.api.route import ApiRoute

if TYPE_CHECKING:
    from spar.service.app import Service


#: Seconds that a test of a notifier may take.
LONGEST_TEST = 120.0


def channel_routes(service: Service) -> list[ApiRoute]:
    """Return the routes of channels."""

    async def channels(request: Request) -> Response:
        """List the channels by name, each with how it receives and sends."""
        return reply(service.agent("").channels.snapshot())

    async def undelivered(request: Request) -> Response:
        """List messages that could not be delivered: `failed` ones were put aside, `waiting` ones are tried again."""
        return reply(service.agent("").channels.undelivered())

    async def act_on(request: Request) -> Response:
        """Have a message that was put aside tried again (`ID:retry`), or forget it (`ID:drop`)."""
        id, _, verb = request.path_params["target"].rpartition(":")
        agent = service.agent("")
        verbs = {"retry": agent.channels.retry, "drop": agent.channels.drop}
        if verb not in verbs:
            raise LookupError(f"no verb {verb!r}; known: {', '.join(verbs)}")

        async def work() -> Any:
            return verbs[verb](id)

        return reply(await on_loop(agent, work(), PATIENCE))

    async def notifiers(request: Request) -> Response:
        """List the notifiers of alerts: how many notices each has sent, and how many wait."""
        return reply(service.notices.snapshot() if service.notices is not None else [])

    async def try_notifier(request: Request) -> Response:
        """Send a test through a notifier (`NAME:test`), now; `error` says what was wrong, "" for nothing."""
        name, _, verb = request.path_params["target"].rpartition(":")
        if verb != "test" or service.notices is None:
            raise LookupError(f"no verb {verb!r}; known: test" if verb != "test" else "no notifiers are configured")
        error = await on_loop(service.agent(""), service.notices.test(name), LONGEST_TEST)
        return reply({"name": name, "error": error})

    return [
        ApiRoute("GET", "/v1/notifiers", notifiers, "read"),
        ApiRoute("POST", "/v1/notifiers/{target}", try_notifier, "operate", verbs=("test",)),
        ApiRoute("GET", "/v1/channels", channels, "read"),
        ApiRoute("GET", "/v1/deliveries", undelivered, "read"),
        ApiRoute("POST", "/v1/deliveries/{target}", act_on, "operate", verbs=("retry", "drop")),
    ]
