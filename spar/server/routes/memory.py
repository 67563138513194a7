"""The memory under `/v1/memory`: search experiences and transcripts, show, explain, count, forget, import."""

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

#: Parameters of a search that filter the experiences.
_FILTERS = ("session", "task", "key", "success", "trust", "since", "before", "as_of")


class SearchQuery(msgspec.Struct, frozen=True):
    """Query of a search in the experiences."""

    q: Annotated[str, Meta(description="The text that the experiences should fit.")] = ""
    k: Annotated[int, Meta(ge=1, le=10_000, description="How many.")] = 5
    session: Session = None
    task: Annotated[str | None, Meta(description="Only of this kind of task.")] = None
    key: Annotated[str | None, Meta(description="Only of the situation with this key.")] = None
    success: Annotated[bool | None, Meta(description="Only successes (1), or only failures (0).")] = None
    trust: Annotated[str | None, Meta(description="Only `trusted` or `untrusted` ones.")] = None
    since: Annotated[datetime | None, Meta(description="Only from this time on.")] = None
    before: Annotated[datetime | None, Meta(description="Only from before this time.")] = None
    as_of: Annotated[datetime | None, Meta(description="The result that the search had at this time.")] = None
    reasons: Annotated[bool, Meta(description="Whether each has its score and the reasons why it fits.")] = False


class TranscriptsQuery(msgspec.Struct, frozen=True):
    """Query of a search in transcripts."""

    q: Annotated[str, Meta(description="The words that each entry contains.")] = ""
    session: Session = None
    limit: Annotated[int, Meta(ge=1, le=10_000, description="How many.")] = 20


class ImportBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of an import: experiences as JSON lines, and whether the trust that they claim is accepted."""

    lines: str
    trust: bool = False


class SelectionBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body that selects the experiences to delete: those for which every given field holds."""

    session: str | None = None
    task: str | None = None
    success: bool | None = None
    since: datetime | None = None
    before: datetime | None = None


def memory_routes(service: Service) -> list[ApiRoute]:
    """Return the routes of the memory."""

    def store() -> InspectsExperiences:
        if not offers(service.memory, InspectsExperiences):
            raise LookupError("this store cannot be looked into")
        return service.memory

    async def in_agent(work: Coroutine[Any, Any, Any]) -> Any:
        return await on_loop(service.agent(""), work, PATIENCE)

    async def search(request: Request, query: SearchQuery) -> Response:
        """Return the experiences that fit a text best."""
        if not offers(service.memory, InspectsExperiences):  # a store that can only recall
            return reply(await service.memory.recall(query.q, query.k))
        filters = {name: getattr(query, name) for name in _FILTERS}
        filters_in_use = {name: value for name, value in filters.items() if value not in (None, "")}
        hits = await service.memory.search(query.q, query.k, **filters_in_use)
        return reply(hits if query.reasons else [hit.experience for hit in hits])

    async def detail(request: Request) -> Response:
        """Return one experience in full: its calls, counts, last example and origin."""
        id = request.path_params["id"]
        experience = await store().detail(id)
        if experience is None:
            raise LookupError(f"no experience {id!r}")
        return reply(experience)

    async def why(request: Request) -> Response:
        """Return the decisions of a cycle that experiences changed, with these experiences."""
        cycle_id = request.path_params["cycle_id"]
        decisions = await store().why(cycle_id)
        if decisions is None:
            raise LookupError(f"no cycle {cycle_id!r} is recorded")
        return reply(decisions)

    async def figures(request: Request) -> Response:
        """Return how many experiences there are, and how many of them are merged, used, useless or untrusted."""
        return reply(await store().figures())

    async def transcripts(request: Request, query: TranscriptsQuery) -> Response:
        """Return the newest entries of transcripts that contain all words of a text."""
        if not offers(service.memory, KeepsTranscripts) or not offers(service.memory.transcripts, SearchesTranscripts):
            raise LookupError("this store has no transcripts that can be searched")
        archive: SearchesTranscripts = service.memory.transcripts
        name, session = service.agent("").name, query.session or None
        return reply(await archive.search(name, query.q, query.limit, session=session))

    async def forget(request: Request) -> Response:
        """Delete one experience permanently."""
        id = request.path_params["id"]
        service.demand_open()
        detail_ = await store().detail(id)
        if detail_ is None:
            raise LookupError(f"no experience {id!r}")
        return reply({"forgotten": await in_agent(store().forget(detail_.experience.id))})

    async def forget_some(request: Request, body: SelectionBody) -> Response:
        """Delete all experiences for which every given field of the body holds."""
        service.demand_open()
        return reply({"forgotten": await in_agent(store().forget(**msgspec.structs.asdict(body)))})

    async def import_(request: Request, body: ImportBody) -> Response:
        """Import experiences from JSON lines, all or none; they are untrusted unless `trust` is true. Existing
        experiences stay."""
        service.demand_open()
        return reply({"imported": await in_agent(store().import_(io.StringIO(body.lines), trust=body.trust))})

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
