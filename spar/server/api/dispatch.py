"""Dispatch of a request to its operation: scope, state of the agent, input, audit, run, answer.

A read is cancelled when its client has gone, so that no wait is kept for nobody. An operation that changes something is
carried out to its end, since its change has begun. If nobody can know whether it was carried out, its entry in the
audit log says what was answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import cache, partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec import NODEFAULT, Struct
from msgspec.structs import FieldInfo
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route

from spar.data.scrub import mask_json
from spar.decoding import decode, encode
from spar.errors import NotReadyError, SparError
from spar.observe.logs import get_logger
from spar.operations.fields import is_list, value_of
from spar.operations.operation import PATIENCE, Caller, Operation, Stream
from spar.records.audit import AuditDraft, auditing
from spar.server.access import Access
from spar.server.agent_loop import on_loop, while_connected
from spar.server.api.repeated import Repeated
from spar.server.event_streams import EventsAnswer, StreamPlaces, frames
from spar.server.problems import CLOSED, LARGEST_BODY, problem, status_of

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

    from spar.service.app import Service

In = TypeVar("In", bound=Struct)
log = get_logger("spar.audit")

#: Function that returns whether the token of a read is still valid.
IsValid = Callable[[], bool]
#: Statuses of requests that may have been carried out or not: an error of the service, a stop meanwhile, a timeout.
_UNCERTAIN: Final = frozenset({500, 503, 504})
#: Answer to a read whose token became invalid while it was carried out.
_INVALID: Final = problem(401, "the token was revoked or has expired meanwhile")


class OperationRoute(Route):
    """Route of one operation.

    Args: access: refuses tokens without the needed scope; None on the control socket, whose peer owns the process;
        repeated: the requests with idempotency keys.
    """

    def __init__(self, operation: Operation[Any, Any], service: Service, repeated: Repeated,
                 access: Access | None = None) -> None:  # fmt: skip
        self.operation, self._service, self._repeated, self._access = operation, service, repeated, access
        self._places = StreamPlaces(*operation.streams) if operation.streams is not None else None
        super().__init__(operation.path, self.handle, methods=[operation.method])
        _, colon, verb = operation.path.rpartition("}:")
        self._verb = f":{verb}".encode() if colon and operation.method == "GET" else b""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether a request is for this route.

        A verb after the id of something that is read has its colon as it is; an id that ends in the same text has it
        as `%3A`.
        """
        if self._verb and (raw := scope.get("raw_path")) and not raw.partition(b"?")[0].endswith(self._verb):
            return Match.NONE, {}
        return super().matches(scope)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request whose token has the scope; of another one no body is read.

        Raises: any error of the operation, which the application turns into a problem.
        """
        operation = self.operation
        if scope["method"] not in (self.methods or ()):
            raise HTTPException(405, headers={"Allow": ", ".join(self.methods or ())})
        if self._access is None:
            await self._answer(scope, receive, send)
            return
        self._access.demand(scope["token"], operation.scope)
        with nullcontext() if operation.streams is not None else self._access.limits.running(scope["token"].name):
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that is admitted. Raises: any error of the operation."""
        operation, token = self.operation, scope.get("token")
        is_valid: IsValid = partial(bool, True)  # a change is always told what became of it
        if token is not None and operation.method == "GET":
            is_valid = scope["is_valid"]
        try:
            answer = await self._respond(scope, receive, is_valid)
        except ClientDisconnect:
            return
        except Exception:
            if is_valid():
                raise
            answer = _INVALID
        await (answer if is_valid() else _INVALID)(scope, receive, send)

    async def _respond(self, scope: Scope, receive: Receive, is_valid: IsValid) -> Response:
        """Return the answer to a request. Raises: any error of the operation."""
        operation, agent = self.operation, self._service.agent
        request = Request(scope, bounded(scope, receive))
        if agent.core.state in CLOSED and not (
            operation.served == "always" or (operation.served == "stopping" and agent.core.state != "created")
        ):
            self._service.demand_open()
        body, headers = (b"" if operation.method == "GET" else await request.body()), request.headers
        given = read_input(operation, request.path_params, request.query_params, body)
        caller = Caller(request.scope["client"][0], "token" in request.scope, headers.get("idempotency-key", ""),
                        headers.get("traceparent", ""), headers.get("last-event-id", ""))  # fmt: skip
        try:
            if self._places is not None:
                return await self._stream(request, given, caller, self._places, is_valid)
            run = partial(self._run if operation.audit is None else self._run_audited, request, given, caller)
            if not caller.idempotency_key or operation.is_read or operation.knows_key:
                return await run()
            content = b" ".join((operation.method.encode(), scope["path"].encode("utf-8", "replace"), body))
            return await self._repeated.answer(caller, blake2b(content, digest_size=16).hexdigest(), run)
        except (Exception, asyncio.CancelledError) as error:
            if agent.core.state not in CLOSED or (isinstance(error, Exception) and status_of(error) != 500):
                raise
            ended = f"agent {agent.name!r} is {agent.core.state}: it ended before it could answer"
            raise NotReadyError(ended) from error

    async def _run_audited(self, request: Request, given: Any, caller: Caller) -> Response:
        """Run the operation and leave one entry in the audit log; none if it was refused."""
        entry, status = self.operation.audit, 500
        assert entry is not None
        # The actor is the peer or the token, never a name from the request.
        draft = entry.draft(caller.by, "http", given, self._service.agent.name)
        try:
            if entry.is_first(self._service, given):
                await self._write(draft)
            with auditing(draft):
                response = await self._run(request, given, caller)
            status = response.status_code
            if status < 400:
                await self._write(draft)
            return response
        except Exception as error:
            status = status_of(error)
            raise
        finally:
            if status in _UNCERTAIN and not draft.is_written:  # the change may have happened
                draft.detail["answered"] = status
                await self._write(draft)
            draft.is_written = True  # rows of later background work belong to no request

    async def _write(self, draft: AuditDraft) -> None:
        """Write an entry that no row of the store has written. If that fails, log the failure with its content."""
        if draft.is_written:
            return
        draft.is_written = True
        try:
            await on_loop(self._service.agent, self._service.audit(draft), PATIENCE)
        except (SparError, TimeoutError) as error:
            log.error("audit entry not written", actor=draft.actor, action=draft.action, subject=draft.subject,
                      reason=str(error))  # fmt: skip

    async def _run(self, request: Request, given: Any, caller: Caller) -> Response:
        """Run the operation and return its answer as a response."""
        operation = self.operation
        work = operation.run(self._service, given, caller)
        if operation.where != "service":
            work = on_loop(self._service.agent, work, operation.seconds(given))
        answer = await (while_connected(request, work) if operation.is_read else work)
        content = encode(answer)
        try:
            decode(content, operation.answer)
        except msgspec.DecodeError as error:
            log.error("answer does not fit its type", operation=operation.name, reason=str(error))
            return problem(500, f"the answer of {operation.name!r} does not fit its type: {error}")
        if operation.is_masked:
            content = mask_json(content.decode()).encode()
        if operation.method != "GET":
            return Response(content, operation.status, media_type="application/json")
        tag = f'"{blake2b(content, digest_size=16).hexdigest()}"'
        if _is_known(tag, request.headers.getlist("if-none-match")):
            return Response(status_code=304, headers={"etag": tag})
        return Response(content, operation.status, {"etag": tag}, media_type="application/json")

    async def _stream(self, request: Request, given: Any, caller: Caller, places: StreamPlaces,
                      is_valid: IsValid) -> Response:  # fmt: skip
        """Return the response that streams the events of the operation until its client leaves."""
        agent, streams = self._service.agent, list[Stream]()
        loop = agent.requests.loop or asyncio.get_running_loop()
        free = places.take(caller)

        async def work() -> None:
            streams.append(await self.operation.run(self._service, given, caller))

        def left() -> None:
            free()
            for stream in streams:
                with suppress(RuntimeError):  # the agent's loop has been closed
                    loop.call_soon_threadsafe(stream.close)

        try:
            await while_connected(request, on_loop(agent, work(), PATIENCE))
        except BaseException:
            left()
            raise
        (stream,) = streams
        return EventsAnswer(frames(agent, stream, is_valid, lambda: places.taken), left)


def _is_known(tag: str, headers: Sequence[str]) -> bool:
    """Return whether a client has the answer of this tag already (RFC 9110, 13.1.2)."""
    known = {word.strip().removeprefix("W/") for header in headers for word in header.split(",")}
    return tag in known or "*" in known


def read_input(operation: Operation[In, Any], path: Mapping[str, Any], query: QueryParams, body: bytes) -> In:
    """Return the input of an operation, typed, bounded, and without unknown fields.

    The path has the fields that it names. The others come from the query of a GET, and from the JSON body of any other
    request. A field's type defines the accepted values, its default holds without it, its `Meta` has the description.
    In a query the types are `str`, `int`, `float`, `bool`, `datetime` and `Literal`; a parameter of the type
    `list[str]` may be repeated.

    Raises: ValueError that names the field and the accepted values; LookupError for a word of the path that is none of
        the known ones.
    """
    is_read = operation.method == "GET"
    values = {name: str(path[name]) for name in operation.path_fields}
    values |= _query_values(query, operation.other_fields if is_read else ())
    if not is_read:
        values |= _body_values(operation, body)
    return operation.given(**values)


def _query_values(params: QueryParams, known: Sequence[FieldInfo]) -> dict[str, Any]:
    """Return the parameters of a query as values of their fields. Raises: ValueError."""
    fields = {field.encode_name: field for field in known}
    values: dict[str, Any] = {}
    for name in params:
        field = fields.get(name)
        if field is None:
            raise ValueError(f"no parameter {name[:40]!r}; known: {', '.join(fields) or 'none'}")
        texts = params.getlist(name)
        if is_list(field):
            values[field.name] = texts
        elif len(texts) > 1:
            raise ValueError(f"{name} is given {len(texts)} times, it is one value")
        else:
            values[field.name] = value_of(name, texts[0], field)
    return values


def _body_values(operation: Operation[Any, Any], body: bytes) -> dict[str, Any]:
    """Return the values of a body. Raises: ValueError."""
    fields = operation.other_fields
    if operation.is_free:
        return {fields[0].name: msgspec.Raw(body)}
    if not body and not any(field.required for field in fields):
        return {}
    kind = body_type(operation)
    try:
        value = decode(body, kind)
    except RecursionError:
        raise ValueError("the body cannot be read: it is nested too deeply") from None
    except msgspec.DecodeError as error:
        names = ", ".join(field.encode_name for field in fields) or "none"
        known = f"; known: {names}" if "unknown field" in str(error) else ""
        raise ValueError(f"the body cannot be read: {error}{known}") from None
    return {field.name: getattr(value, field.name) for field in fields}


@cache
def body_type(operation: Operation[Any, Any]) -> type[Struct]:
    """Return the structure of an operation's body: its input without the fields that the path has."""
    if not operation.path_fields:
        return operation.given
    fields = [
        (field.name, field.type) if field.required
        else (field.name, field.type, msgspec.field(default_factory=field.default_factory))
        if field.default is NODEFAULT else (field.name, field.type, field.default)
        for field in operation.other_fields
    ]  # fmt: skip
    given = operation.given
    kind: type[Struct] = msgspec.defstruct(
        given.__name__, fields, frozen=True, forbid_unknown_fields=True, namespace={"__doc__": given.__doc__}
    )
    return kind


# -- the size of a body: checked in the head's `Content-Length`, and while the body is read

#: Seconds for which the rest of a refused body is read and dropped, so that the peer can read the answer.
_LINGER: Final = 2.0


class BodyRefusedError(Exception):
    """Refusal of a body, after which the connection ends."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


def lengths_of(scope: Scope) -> dict[bytes, bytes]:
    """Return the headers that tell where the body of a request ends. Raises: BodyRefusedError if there are two."""
    heads = {name: value for name, value in scope["headers"] if name in (b"content-length", b"transfer-encoding")}
    if len(heads) == 2:  # RFC 9112, 6.3: an attack
        raise BodyRefusedError(400, "a request has a Content-Length or a Transfer-Encoding, not both")
    return heads


def bounded(scope: Scope, receive: Receive) -> Receive:
    """Return the function that receives the messages of a request; it refuses a body above `LARGEST_BODY`.

    Raises: BodyRefusedError for a head that tells of a larger body, or of the length in two ways.
    """
    heads = lengths_of(scope)
    declared = heads.get(b"content-length", b"")
    size = int(declared) if declared.isdigit() else 0

    def check() -> None:
        if size > LARGEST_BODY:
            raise BodyRefusedError(413, f"the body is larger than {LARGEST_BODY} bytes, the most that is taken")

    check()
    if not heads or declared == b"0":
        return receive
    size = 0

    async def counted() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        check()
        return message

    return counted


class _LastAnswer(Response):
    """Answer that ends its connection, after the rest of the body was read for at most `_LINGER` seconds."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        try:
            async with asyncio.timeout(_LINGER):
                while (await receive()).get("more_body"):
                    pass
        except TimeoutError:
            pass
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def refuse(request: Request, refusal: BodyRefusedError) -> Response:
    """Return the answer to a request whose body is refused; with it the connection ends."""
    answer = problem(refusal.status, str(refusal))
    return _LastAnswer(answer.body, answer.status_code, {"connection": "close"}, answer.media_type)


#: Handler of refusals for an application.
HANDLERS: Final[dict[Any, Any]] = {BodyRefusedError: refuse}
