"""Requests with an `Idempotency-Key`: a change is made once, however often its request comes, also over restarts.

A row of the store says that a request has begun, before it is carried out, and then what was answered. So a request
that was cut off, by the death of the process or an error of the service, is not carried out again: nobody knows whether
it was, and the answer says so. What was refused is forgotten. See draft-ietf-httpapi-idempotency-key-header.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from starlette.responses import Response

from spar.data.scrub import mask_json
from spar.decoding import converted
from spar.errors import ConflictError, SparError
from spar.operations.operation import PATIENCE, Caller
from spar.ports.any_part import offers
from spar.protocols import Records
from spar.server.agent_loop import on_loop
from spar.server.problems import problem, status_of

if TYPE_CHECKING:
    from spar.service.app import Service

#: The kind of the rows in the store.
KIND: Final = "request"
#: Rows that are kept, and how long; a key that is older begins a new request.
MOST_KEYS: Final = 1_000
KEPT_FOR: Final = timedelta(days=1)
#: Characters of a key, and bytes of an answer that is kept.
LONGEST_KEY: Final = 256
LARGEST_ANSWER: Final = 16 * 1024
#: The subject of what is answered to another request with the same key.
_FIRST: Final = "the first request of this idempotency key"
#: Statuses after which nobody knows whether a request was carried out.
_UNKNOWN: Final = frozenset({500, 504})


class KeyedRequest(Struct, frozen=True):
    """Request with a key: the digest of its content, and its answer; `status` is 0 until it is answered, `body` None
    if the answer is not kept."""

    digest: str
    at: datetime
    status: int = 0
    body: str | None = None


class Repeated:
    """The requests with keys of one service, in the thread of its server."""

    def __init__(self, service: Service) -> None:
        self._service = service
        #: By the caller and the key; the oldest first.
        self._requests: dict[str, KeyedRequest] = {}
        self._running: set[str] = set()
        self._is_read = False

    async def answer(self, caller: Caller, digest: str, work: Callable[[], Awaitable[Response]]) -> Response:
        """Return the answer of `work`, which is done only for the first request of a key.

        Raises: ValueError for a key that is too long; ConflictError for one of another request; any error of the work.
        """
        if len(key := caller.idempotency_key) > LONGEST_KEY:
            raise ValueError(f"an idempotency key has at most {LONGEST_KEY} characters, found {len(key)}")
        id, now = f"{caller.by}\n{key}", self._service.agent.core.clock.now()
        await self._read()
        known = self._requests.get(id)
        if known is not None and not known.status and id not in self._running:
            await self._read(is_anew=True)  # another node may have answered it since
            known = self._requests.get(id)
        if known is not None and now - known.at < KEPT_FOR:
            return self._again(id, known, digest)
        self._requests.pop(id, None)
        self._requests[id] = begun = KeyedRequest(digest, now)
        self._running.add(id)
        try:
            if known is not None:
                await self._drop(id)
            response = await self._first(id, begun, work)
        finally:
            self._running.discard(id)
        if response is None:
            await self._read(is_anew=True)
            known = self._requests.get(id)
            return _carried_out() if known is None else self._again(id, known, digest)
        return response

    def _again(self, id: str, known: KeyedRequest, digest: str) -> Response:
        if known.digest != digest:
            raise ConflictError("this idempotency key belongs to another request: use a new one for each change")
        if id in self._running:
            return _carried_out()
        if not known.status:
            elsewhere = "" if self._service.agent.core.shared is None else "is being carried out at another node, or "
            return problem(409, f"{_FIRST} {elsewhere}was cut off, and nobody knows whether it was carried out: see "
                                "what has become of it, and use a new key")  # fmt: skip
        if known.body is None:
            return problem(409, f"{_FIRST} was carried out and answered {known.status}; its answer is not kept, as it "
                                "has a secret or is large")  # fmt: skip
        return Response(known.body, known.status, media_type="application/json")

    async def _first(self, id: str, begun: KeyedRequest, work: Callable[[], Awaitable[Response]]) -> Response | None:
        """Carry out a request, and keep that it has begun, and its answer; return None if another node was first."""
        try:
            await self._forget_old(begun.at)
            try:
                await self._keep(id, begun, expect=0)
            except ConflictError:
                del self._requests[id]
                return None
            response = await work()
        except Exception as error:
            if status_of(error) not in _UNKNOWN:
                await self._forget(id)
            raise
        if response.status_code in _UNKNOWN:
            return response
        text = bytes(response.body).decode()
        is_kept = len(response.body) <= LARGEST_ANSWER and mask_json(text) == text
        with suppress(SparError, TimeoutError):  # such as after a stop: the next process answers that it was cut off
            await self._keep(id, KeyedRequest(begun.digest, begun.at, response.status_code, text if is_kept else None))
        return response

    async def _read(self, *, is_anew: bool = False) -> None:
        """Read the rows of other processes, once. Args: is_anew: again. Raises: any error of the store."""
        if (self._is_read and not is_anew) or (store := self._store()) is None:
            return
        rows = await on_loop(self._service.agent, _rows_of(store), PATIENCE)
        if not self._is_read or is_anew:
            self._is_read = True
            own = {id: known for id, known in self._requests.items() if known.status or id in self._running}
            self._requests = dict(sorted(rows.items(), key=lambda row: row[1].at)) | own

    async def _keep(self, id: str, request: KeyedRequest, *, expect: int | None = None) -> None:
        """Keep a request. Args: expect: 0 if no other process may have kept it. Raises: ConflictError if one has."""
        self._requests[id] = request
        if (store := self._store()) is not None:
            keeping = store.keep(KIND, id, msgspec.to_builtins(request), expect=expect)
            await on_loop(self._service.agent, keeping, PATIENCE)

    async def _forget(self, id: str) -> None:
        self._requests.pop(id, None)
        await self._drop(id)

    async def _drop(self, id: str) -> None:
        if (store := self._store()) is not None:
            with suppress(SparError, TimeoutError):
                await on_loop(self._service.agent, store.drop(KIND, id), PATIENCE)

    async def _forget_old(self, now: datetime) -> None:
        """Forget requests that are old, or too many; a few at a time."""
        too_many = len(self._requests) - MOST_KEYS
        old = [id for number, (id, request) in enumerate(self._requests.items())
               if id not in self._running and (number < too_many or now - request.at >= KEPT_FOR)]  # fmt: skip
        for id in old[:10]:
            await self._forget(id)

    def _store(self) -> Records | None:
        return memory if offers(memory := self._service.memory, Records) else None


def _carried_out() -> Response:
    return problem(409, f"{_FIRST} is being carried out", retry_after=1.0)


async def _rows_of(store: Any) -> dict[str, KeyedRequest]:
    """Return the stored requests by id, without those of another version."""
    rows = {record.id: converted(record.value, KeyedRequest) for record in await store.records(KIND)}
    return {id: row for id, row in rows.items() if row is not None}
