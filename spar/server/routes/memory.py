"""The memory under `/v1/memory`: search it and say why, show one experience, forget, import, count."""

from __future__ import annotations

import io
from collections.abc import Coroutine, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from spar.ports.optional import offers
from spar.ports.store import InspectsExperiences, KeepsTranscripts, SearchesTranscripts
from spar.server.answers import PATIENCE, decoded, on_loop, reply

if TYPE_CHECKING:
    from spar.service.app import Service

#: Filters of a search, and how each is read.
_TRUTH = {"true": True, "false": False}


class ImportBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of an import: experiences as JSON lines, and whether what they claim of themselves is believed."""

    lines: str
    trust: bool = False


class SelectionBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body that says what to forget: all experiences for which every field that is given holds."""

    session: str | None = None
    task: str | None = None
    success: bool | None = None
    since: datetime | None = None
    before: datetime | None = None


def memory_routes(service: Service) -> list[Route]:
    """Return the routes of what is remembered."""

    def store() -> InspectsExperiences:
        if not offers(service.memory, InspectsExperiences):
            raise LookupError("this store cannot be looked into")
        return service.memory

    async def answered(work: Coroutine[Any, Any, Any]) -> Any:
        return await on_loop(service.agent(""), work, PATIENCE)

    async def search(request: Request) -> Response:
        """Return the `k` experiences that fit the text `q` best; `session task key success trust since before as_of`
        select, with `reasons=1` each has its score and why it was found."""
        query = request.query_params
        number = int(query.get("k", "5"))
        if not offers(service.memory, InspectsExperiences):  # it only recalls
            return reply(await service.memory.recall(query.get("q", ""), number))
        found = await service.memory.search(query.get("q", ""), number, **_filters(query))
        return reply(found if query.get("reasons", "0") != "0" else [each.experience for each in found])

    async def detail(request: Request) -> Response:
        """Return one experience in full: its calls, counts, the last example, where it came from."""
        id = request.path_params["id"]
        found = await store().detail(id)
        if found is None:
            raise LookupError(f"no experience {id!r}")
        return reply(found)

    async def why(request: Request) -> Response:
        """Return the decisions of a cycle that memory changed, with the experiences that they went by."""
        cycle_id = request.path_params["cycle_id"]
        found = await store().why(cycle_id)
        if found is None:
            raise LookupError(f"no cycle {cycle_id!r} on the tape")
        return reply(found)

    async def figures(request: Request) -> Response:
        """Return how many experiences there are, and how many were merged, used, are useless or of strangers."""
        return reply(await store().figures())

    async def transcripts(request: Request) -> Response:
        """Return the newest entries of transcripts that hold all words of `q`; `session`, `limit` select."""
        query = request.query_params
        if not offers(service.memory, KeepsTranscripts) or not offers(service.memory.transcripts, SearchesTranscripts):
            raise LookupError("this store has no transcripts that can be searched")
        name, session = service.agent("").name, query.get("session") or None
        searched: SearchesTranscripts = service.memory.transcripts
        return reply(await searched.search(name, query.get("q", ""), int(query.get("limit", "20")), session=session))

    async def forget(request: Request) -> Response:
        """Delete one experience for good."""
        id = request.path_params["id"]
        service.demand_open()
        found = await store().detail(id)
        if found is None:
            raise LookupError(f"no experience {id!r}")
        return reply({"forgotten": await answered(store().forget(found.experience.id))})

    async def forget_some(request: Request) -> Response:
        """Delete all experiences for which everything holds that the body gives."""
        body = decoded(await request.body(), SelectionBody)
        service.demand_open()
        return reply({"forgotten": await answered(store().forget(**msgspec.structs.asdict(body)))})

    async def import_(request: Request) -> Response:
        """Keep experiences of JSON lines, all or none, untrusted unless `trust` is given; what is here stays."""
        body = decoded(await request.body(), ImportBody)
        service.demand_open()
        return reply({"imported": await answered(store().import_(io.StringIO(body.lines), trust=body.trust))})

    return [
        Route("/v1/memory/search", search),
        Route("/v1/memory/transcripts", transcripts),
        Route("/v1/memory/figures", figures),
        Route("/v1/memory/why/{cycle_id}", why),
        Route("/v1/memory/experiences/{id}", detail),
        Route("/v1/memory/experiences/{id}", forget, methods=["DELETE"]),
        Route("/v1/memory/experiences:forget", forget_some, methods=["POST"]),
        Route("/v1/memory/experiences:import", import_, methods=["POST"]),
    ]


def _filters(query: Mapping[str, str]) -> dict[str, Any]:
    """Return the filters that a query gives. Raises: ValueError for one that cannot be read."""
    found: dict[str, Any] = {name: query[name] for name in ("session", "task", "key", "trust") if query.get(name)}
    if query.get("success"):
        if query["success"] not in _TRUTH:
            raise ValueError(f"success is true or false, found {query['success']!r:.50}")
        found["success"] = _TRUTH[query["success"]]
    for name in ("since", "before", "as_of"):
        if query.get(name):
            found[name] = datetime.fromisoformat(query[name])
    return found
