"""Channels and notifiers under `/v1`: their states, undelivered messages and what to do with them, test notices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from spar.server.answers import PATIENCE, on_loop, reply
from spar.server.api.route import ApiRoute

if TYPE_CHECKING:
    from spar.service.app import Service


#: Longest duration of a test of a notifier, in seconds.
LONGEST_TEST = 120.0


def channel_routes(service: Service) -> list[ApiRoute]:
    """Return the routes of channels."""

    async def channels(request: Request) -> Response:
        """List the channels by name, each with the state of receiving and sending."""
        return reply(service.agent("").channels.snapshot())

    async def undelivered(request: Request) -> Response:
        """List messages that could not be delivered: `failed` ones are not tried again, `waiting` ones are."""
        return reply(service.agent("").channels.undelivered())

    async def act_on(request: Request) -> Response:
        """Try a failed message again (`ID:retry`), or delete it (`ID:drop`)."""
        id, _, verb = request.path_params["target"].rpartition(":")
        agent = service.agent("")
        verbs = {"retry": agent.channels.retry, "drop": agent.channels.drop}
        if verb not in verbs:
            raise LookupError(f"no verb {verb!r}; known: {', '.join(verbs)}")

        async def work() -> Any:
            return verbs[verb](id)

        return reply(await on_loop(agent, work(), PATIENCE))

    async def notifiers(request: Request) -> Response:
        """List the notifiers of alerts, with the numbers of notices that each has sent and that wait."""
        return reply(service.notices.snapshot() if service.notices is not None else [])

    async def try_notifier(request: Request) -> Response:
        """Send a test notice through a notifier now (`NAME:test`); `error` is "" if it was sent."""
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
