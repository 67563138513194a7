"""`POST /hooks/NAME`: what other programs tell the agent, handed to the sensor of that name.

An answer of 2xx means that the journal has it on disk. A sender is told what is wrong with its own request and nothing
of what goes on inside; that is in the log, in `spar status` and in the metrics. Requests of web pages are refused: a
browser would send them for any page. Bodies are read within the hook's bound, and only for a head that is admitted.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from spar.errors import InboxFullError, LifecycleError, NoRoomError, TooLargeError, TransientError
from spar.observe.logs import get_logger
from spar.ports.optional import offers
from spar.ports.webhook import HasWebhooks, Webhook, WebhookRefusal, WebhookRequest
from spar.server.answers import PATIENCE, on_loop, reply
from spar.server.problems import problem
from spar.threads import Threads

if TYPE_CHECKING:
    from spar.service.app import Service

log = get_logger("spar.hooks")

#: Requests of one hook that are in hand at once; the next is told to come again.
MOST_AT_ONCE: Final = 32
#: Bytes of a body that is read in the server's event loop; more are a thread's.
_INLINE: Final = 16 * 1024
#: Seconds after which a sender may try again: when too much waits, when nothing can be taken now.
_WHEN_FULL, _WHEN_CLOSED = 5.0, 10.0
#: Of the refusals of one hook by one reason the first is logged, and each so many-th.
_TOLD_EACH: Final = 1000
#: What a browser adds and no other program does.
_BROWSERS: Final = ("origin", "sec-fetch-site")


class HookDoor:
    """The way of requests to the hooks of a service; `any_host`: it listens to other machines."""

    def __init__(self, service: Service, *, any_host: bool) -> None:
        self._service, self._any_host = service, any_host
        self._in_hand: dict[str, int] = {}
        self._refused: dict[tuple[str, str], int] = {}
        self._threads: Threads | None = None

    async def post(self, request: Request, *, is_local: bool) -> Response:
        """Take what is posted; `is_local`: the `Host` header names this machine."""
        name = request.path_params["name"]
        hook: Webhook | None = None
        try:
            hook = self._hook(name)
            answer, outcome = await self._answer(hook, name, request, is_local=is_local)
        except WebhookRefusal as refusal:
            await _let_go(request)
            answer, outcome = _refused(refusal), refusal.outcome
        except ClientDisconnect:
            answer, outcome = problem(400, "the request broke off"), "broken_off"
        except Exception as error:
            answer, outcome = _failed(error)
            self._tell(name, outcome, repr(error)[:300])
        if hook is not None:
            hook.count(outcome)
            if answer.status_code in (401, 403):
                self._tell(name, outcome, "the sender is not who it should be: see its token, secret or clock")
        return answer

    def _hook(self, name: str) -> Webhook:
        sense = self._service.agent("").setup.modules["sense"].part
        hook = sense.webhook(name) if offers(sense, HasWebhooks) else None
        if hook is None:
            raise WebhookRefusal(404, "there is no such hook", "unknown")
        return hook

    async def _answer(self, hook: Webhook, name: str, request: Request, *, is_local: bool) -> tuple[Response, str]:
        if any(each in request.headers for each in _BROWSERS):
            raise WebhookRefusal(403, "web pages may not post here", "browser")
        if not hook.has_secret and (self._any_host or not is_local):
            raise WebhookRefusal(403, "this hook is for programs of its own machine", "forbidden")
        headers = dict(request.headers)
        hook.admit(headers)
        if self._in_hand.get(name, 0) >= MOST_AT_ONCE:
            return problem(429, "too many requests at once; try again", retry_after=1.0), "busy"
        self._in_hand[name] = self._in_hand.get(name, 0) + 1
        try:
            given = WebhookRequest(headers, await _body(request, hook.max_bytes))
            self._service.demand_open()
            agent = self._service.agent("")
            if len(given.body) > _INLINE:
                self._threads = self._threads or Threads("hooks", agent.core.clock, limit=4)
                perceptions = await self._threads.run(hook.read, given)
            else:
                perceptions = hook.read(given)
            taken = await on_loop(agent, hook.take(perceptions), PATIENCE)
        finally:
            self._in_hand[name] -= 1
        outcome = "accepted" if taken.accepted or not taken.known else "known"
        return reply({"accepted": taken.accepted, "known": taken.known}, 202 if taken.accepted else 200), outcome

    def _tell(self, name: str, outcome: str, why: str) -> None:
        count = self._refused[name, outcome] = self._refused.get((name, outcome), 0) + 1
        if count % _TOLD_EACH == 1:
            log.warning("webhook refused", hook=name, outcome=outcome, reason=why, count=count)


def hook_route(service: Service, *, any_host: bool, is_local: Callable[[str], bool]) -> Route:
    """Return the route of all hooks; `is_local` tells whether a `Host` header names this machine."""
    door = HookDoor(service, any_host=any_host)

    async def hooks(request: Request) -> Response:
        """Accept what is posted to the sensor `name`; answer `{accepted, known}` once it is on disk (202)."""
        return await door.post(request, is_local=is_local(request.headers.get("host", "")))

    return Route("/hooks/{name}", hooks, methods=["POST"])


async def _body(request: Request, most: int) -> bytes:
    said = request.headers.get("content-length", "")
    too_large = WebhookRefusal(413, f"a body may have {most} bytes", "too_large")
    if said.isdigit() and int(said) > most:
        raise too_large
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise too_large
    return bytes(body)


async def _let_go(request: Request) -> None:
    """Take what is left of a body, so that its sender comes to read the answer; it is bounded for all routes."""
    with suppress(ClientDisconnect, RuntimeError):  # it has gone, or everything has been read
        async for _ in request.stream():
            pass


def _refused(refusal: WebhookRefusal) -> Response:
    answer = problem(refusal.status, refusal.detail)
    if refusal.status == 401:
        answer.headers["www-authenticate"] = "Bearer"
    return answer


def _failed(error: Exception) -> tuple[Response, str]:
    """Return the answer to a request that could not be taken, and how it is counted; it says nothing from inside."""
    if isinstance(error, TooLargeError):
        return problem(413, "this is more than can be kept"), "too_large"
    if isinstance(error, InboxFullError) and not isinstance(error, NoRoomError):
        return problem(429, "too much waits to be dealt with; try again later", retry_after=_WHEN_FULL), "full"
    if isinstance(error, (NoRoomError, TransientError, LifecycleError, TimeoutError)):
        return problem(503, "nothing can be taken just now; try again later", retry_after=_WHEN_CLOSED), "unavailable"
    return problem(500, "this could not be taken"), "failed"
