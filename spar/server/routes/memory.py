"""The memory under `/v1/memory`: search it and say why, show one experience, forget, import, count."""

from __future__ import annotations

import io
from collections.abc import Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from spar.ports.optional import offers
from spar.ports.store import InspectsExperiences, KeepsTranscripts, SearchesTranscripts
from spar.server.answers import PATIENCE, on_loop, reply
from spar.server.api.query import Session
from spar.server.api.route import ApiRoute

if TYPE_CHECKING:
    from spar.service.app import Service

#: Parameters of a search that select.
_FILTERS = ("session", "task", "key", "success", "trust", "since", "before", "as_of")


class SearchQuery(msgspec.Struct, frozen=True):
    """Query of a search in what is remembered."""

    q: Annotated[str, Meta(description="The text that they are to fit.")] = ""
    k: Annotated[int, Meta(ge=1, le=10_000, description="How many.")] = 5
    session: Session = None
    task: Annotated[str | None, Meta(description="Only of this kind of task.")] = None
    key: Annotated[str | None, Meta(description="Only of the situation with this key.")] = None
    success: Annotated[bool | None, Meta(description="Only those that worked, or those that did not.")] = None
    trust: Annotated[str | None, Meta(description="Only `trusted` or `untrusted` ones.")] = None
    since: Annotated[datetime | None, Meta(description="Only from this time on.")] = None
    before: Annotated[datetime | None, Meta(description="Only from before this time.")] = None
    as_of: Annotated[datetime | None, Meta(description="As it would have been found at this time.")] = None
    reasons: Annotated[bool, Meta(description="With the score of each, and why it was found.")] = False


class TranscriptsQuery(msgspec.Struct, frozen=True):
    """Query of a search in transcripts."""

    q: Annotated[str, Meta(description="The words that each entry holds.")] = ""
    session: Session = None
    limit: Annotated[int, Meta(ge=1, le=10_000, description="How many.")] = 20


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


def memory_routes(service: Service) -> list[ApiRoute]:
    """Return the routes of what is remembered."""

    def store() -> InspectsExperiences:
        if not offers(service.memory, InspectsExperiences):
            raise LookupError("this store cannot be looked into")
        return service.memory

    async def answered(work: Coroutine[Any, Any, Any]) -> Any:
        return await on_loop(service.agent(""), work, PATIENCE)

    async def search(request: Request, query: SearchQuery) -> Response:
        """Return the experiences that fit a text best."""
        if not offers(service.memory, InspectsExperiences):  # it only recalls
            return reply(await service.memory.recall(query.q, query.k))
        filters = {name: getattr(query, name) for name in _FILTERS}
        given = {name: value for name, value in filters.items() if value not in (None, "")}
        found = await service.memory.search(query.q, query.k, **given)
        return reply(found if query.reasons else [each.experience for each in found])

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

    async def transcripts(request: Request, query: TranscriptsQuery) -> Response:
        """Return the newest entries of transcripts that hold all words of a text."""
        if not offers(service.memory, KeepsTranscripts) or not offers(service.memory.transcripts, SearchesTranscripts):
            raise LookupError("this store has no transcripts that can be searched")
        searched: SearchesTranscripts = service.memory.transcripts
        name, session = service.agent("").name, query.session or None
        return reply(await searched.search(name, query.q, query.limit, session=session))

    async def forget(request: Request) -> Response:
        """Delete one experience for good."""
        id = request.path_params["id"]
        service.demand_open()
        found = await store().detail(id)
        if found is None:
            raise LookupError(f"no experience {id!r}")
        return reply({"forgotten": await answered(store().forget(found.experience.id))})

    async def forget_some(request: Request, body: SelectionBody) -> Response:
        """Delete all experiences for which everything holds that the body gives."""
        service.demand_open()
        return reply({"forgotten": await answered(store().forget(**msgspec.structs.asdict(body)))})

    async def import_(request: Request, body: ImportBody) -> Response:
        """Keep experiences of JSON lines, all or none, untrusted unless `trust` is given; what is here stays."""
        service.demand_open()
        return reply({"imported": await answered(store().import_(io.StringIO(body.lines), trust=body.trust))})

    return [
        ApiRoute("GET", "/v1/memory/search", search, "read"),
        ApiRoute("GET", "/v1/memory/transcripts", transcripts, "read"),
        ApiRoute("GET", "/v1/memory/figures", figures, "read"),
        ApiRoute("GET", "/v1/memory/why/{cycle_id}", why, "read"),
        ApiRoute("GET", "/v1/memory/experiences/{id}", detail, "read"),
        ApiRoute("DELETE", "/v1/memory/experiences/{id}", forget, "admin"),
        ApiRoute("POST", "/v1/memory/experiences:forget", forget_some, "admin"),
        ApiRoute("POST", "/v1/memory/experiences:import", import_, "admin"),
    ]
