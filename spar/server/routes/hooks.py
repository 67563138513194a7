"""Webhooks: `POST /hooks/NAME` gives the body of a request to the sensor of that name.

An answer of 2xx means that the journal has the perceptions on disk. A sender learns what is wrong with its request, but
no internal state; that is in the log, in `spar status` and in the metrics. Requests of web pages are refused, since a
browser would send them for any page. A body is read within the limit of the hook, and only after its head was admitted.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from spar.decoding import encode
from spar.errors import InboxFullError, LifecycleError, NoRoomError, TooLargeError, TransientError
from spar.observe.logs import get_logger
from spar.operations.operation import PATIENCE
from spar.ports.any_part import offers
from spar.ports.webhook import HasWebhooks, Webhook, WebhookRefusal, WebhookRequest
from spar.server.agent_loop import on_loop
from spar.server.api.dispatch import bounded
from spar.server.problems import problem
from spar.threads import Threads

if TYPE_CHECKING:
    from spar.service.app import Service

log = get_logger("spar.hooks")

#: Concurrent requests of one hook; the next one is answered 429.
MOST_AT_ONCE: Final = 32
#: Largest body that the server's event loop parses, in bytes; a thread parses larger ones.
_INLINE: Final = 16 * 1024
#: Seconds after which a sender may try again: if too much waits, and if nothing can be accepted now.
_WHEN_FULL, _WHEN_CLOSED = 5.0, 10.0
#: Only the first of so many refusals of one hook for one reason is logged.
_LOGGED_EACH: Final = 1000
#: Headers that browsers add, and other programs do not.
_BROWSERS: Final = ("origin", "sec-fetch-site")


class WebhookReceiver:
    """Receiver of requests to the hooks of a service. Args: any_host: whether other machines can reach the port."""

    def __init__(self, service: Service, *, any_host: bool) -> None:
        self._service, self._any_host = service, any_host
        self._open_requests: dict[str, int] = {}
        self._refused: dict[tuple[str, str], int] = {}
        self._threads: Threads | None = None

    async def post(self, request: Request, *, is_local: bool) -> Response:
        """Accept or refuse a request. Args: is_local: whether the `Host` header names this machine."""
        name = request.path_params["name"]
        hook: Webhook | None = None
        try:
            hook = self._hook(name)
            answer, outcome = await self._answer(hook, name, request, is_local=is_local)
        except WebhookRefusal as refusal:
            await _drain(request)
            answer, outcome = _refusal_answer(refusal), refusal.outcome
        except ClientDisconnect:
            answer, outcome = problem(400, "the request broke off"), "broken_off"
        except Exception as error:
            answer, outcome = _error_answer(error)
            self._log_refusal(name, outcome, repr(error)[:300])
        if hook is not None:
            hook.count(outcome)
            if answer.status_code in (401, 403):
                self._log_refusal(name, outcome, "the sender is not who it should be: see its token, secret or clock")
        return answer

    def _hook(self, name: str) -> Webhook:
        """Return the hook of this name. Raises: WebhookRefusal."""
        sense = self._service.agent.setup.modules["sense"].part
        hook = sense.webhook(name) if offers(sense, HasWebhooks) else None
        if hook is None:
            raise WebhookRefusal(404, "there is no such hook", "unknown")
        return hook

    async def _answer(self, hook: Webhook, name: str, request: Request, *, is_local: bool) -> tuple[Response, str]:
        """Check, read and hand over a request; return the response, and the outcome under which it is counted."""
        if any(header in request.headers for header in _BROWSERS):
            raise WebhookRefusal(403, "web pages may not post here", "browser")
        if not hook.has_secret and (self._any_host or not is_local):
            raise WebhookRefusal(403, "this hook is for programs of its own machine", "forbidden")
        headers = dict(request.headers)
        hook.admit(headers)
        if self._open_requests.get(name, 0) >= MOST_AT_ONCE:
            return problem(429, "too many requests at once; try again", retry_after=1.0), "busy"
        self._open_requests[name] = self._open_requests.get(name, 0) + 1
        try:
            webhook_request = WebhookRequest(headers, await _body(request, hook.max_bytes))
            self._service.demand_open()
            agent = self._service.agent
            if len(webhook_request.body) > _INLINE:
                self._threads = self._threads or Threads("hooks", agent.core.clock, limit=4)
                perceptions = await self._threads.run(hook.read, webhook_request)
            else:
                perceptions = hook.read(webhook_request)
            receipt = await on_loop(agent, hook.take(perceptions), PATIENCE)
        finally:
            self._open_requests[name] -= 1
        outcome = "accepted" if receipt.accepted or not receipt.known else "known"
        content = encode({"accepted": receipt.accepted, "known": receipt.known})
        return Response(content, 202 if receipt.accepted else 200, media_type="application/json"), outcome

    def _log_refusal(self, name: str, outcome: str, reason: str) -> None:
        """Log a refusal, unless it was logged often already."""
        count = self._refused[name, outcome] = self._refused.get((name, outcome), 0) + 1
        if count % _LOGGED_EACH == 1:
            log.warning("webhook refused", hook=name, outcome=outcome, reason=reason, count=count)


def hook_route(service: Service, *, any_host: bool, is_local: Callable[[str], bool]) -> Route:
    """Return the route of all hooks. Args: is_local: returns whether a `Host` header names this machine."""
    receiver = WebhookReceiver(service, any_host=any_host)

    async def hooks(request: Request) -> Response:
        """Accept a request for the sensor `name`; answer `{accepted, known}` (202) once its perceptions are on disk."""
        request = Request(request.scope, bounded(request.scope, request.receive))
        return await receiver.post(request, is_local=is_local(request.headers.get("host", "")))

    return Route("/hooks/{name}", hooks, methods=["POST"])


async def _body(request: Request, most: int) -> bytes:
    """Return the body of a request. Raises: WebhookRefusal if it has more than `most` bytes."""
    length = request.headers.get("content-length", "")
    too_large = WebhookRefusal(413, f"a body may have {most} bytes", "too_large")
    if length.isdigit() and int(length) > most:
        raise too_large
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise too_large
    return bytes(body)


async def _drain(request: Request) -> None:
    """Read and drop the rest of a body, so that its sender can read the answer. Its size is limited."""
    with suppress(ClientDisconnect, RuntimeError):  # the client has gone, or everything has been read
        async for _ in request.stream():
            pass


def _refusal_answer(refusal: WebhookRefusal) -> Response:
    """Return the response for a refusal of a sensor."""
    answer = problem(refusal.status, refusal.detail)
    if refusal.status == 401:
        answer.headers["www-authenticate"] = "Bearer"
    return answer


def _error_answer(error: Exception) -> tuple[Response, str]:
    """Return the response for a request that could not be accepted, and the outcome under which it is counted.

    The response contains no internal state.
    """
    if isinstance(error, TooLargeError):
        return problem(413, "this is more than can be kept"), "too_large"
    if isinstance(error, InboxFullError) and not isinstance(error, NoRoomError):
        return problem(429, "too much waits to be dealt with; try again later", retry_after=_WHEN_FULL), "full"
    if isinstance(error, (NoRoomError, TransientError, LifecycleError, TimeoutError)):
        return problem(503, "nothing can be taken just now; try again later", retry_after=_WHEN_CLOSED), "unavailable"
    return problem(500, "this could not be taken"), "failed"
