"""Operations on the memory: search experiences and transcripts, show, explain, count, forget, import."""

from __future__ import annotations

import io
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, cast

from msgspec import UNSET, Meta, Struct, UnsetType, field
from msgspec.structs import asdict

from spar.operations.history import CycleId, Session
from spar.operations.operation import AgentStore, AuditRule, Nothing, Since, chosen, operation
from spar.records.transcript import FoundEntry
from spar.types import Experience
from spar.types.reflection import ExperienceDetail

if TYPE_CHECKING:
    from spar.ports.store import InspectsExperiences

#: Fields of a search that filter the experiences.
_FILTERS = ("session", "task", "key", "success", "trust", "since", "before", "as_of")


class SearchChoice(Struct, frozen=True, forbid_unknown_fields=True):
    """Search in the experiences."""

    q: Annotated[str, Meta(description="The text that the experiences should fit.")] = ""
    k: Annotated[int, Meta(ge=1, le=10_000, description="How many.")] = 5
    session: Session = None
    task: Annotated[str | None, Meta(description="Only of this kind of task.")] = None
    key: Annotated[str | None, Meta(description="Only of the situation with this key.")] = None
    success: Annotated[bool | None, Meta(description="Only successes (1), or only failures (0).")] = None
    trust: Annotated[str | None, Meta(description="Only `trusted` or `untrusted` ones.")] = None
    since: Since = None
    before: Annotated[datetime | None, Meta(description="Only from before this time.")] = None
    as_of: Annotated[datetime | None, Meta(description="The result that the search had at this time.")] = None
    reasons: Annotated[bool, Meta(description="Whether each has its score and the reasons why it fits.")] = False


class TranscriptsChoice(Struct, frozen=True, forbid_unknown_fields=True):
    """Search in the transcripts."""

    q: Annotated[str, Meta(description="The words that each entry contains.")] = ""
    session: Session = None
    limit: Annotated[int, Meta(ge=1, le=10_000, description="How many.")] = 20
    since: Since = None


class ImportBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Experiences as JSON lines, and whether the trust that they claim is accepted."""

    lines: str
    trust: bool = False


class SelectionBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Selection of the experiences for which every given field holds."""

    session: str | None = None
    task: str | None = None
    success: bool | None = None
    since: datetime | None = None
    before: datetime | None = None


class ExperienceId(Struct, frozen=True, forbid_unknown_fields=True):
    """An experience's id, or a unique beginning of it."""

    id: str


class FoundExperience(Experience, frozen=True):
    """Experience that a search found. With `reasons` it has them, its score as `fit`, and how near its meaning is."""

    fit: float | UnsetType = UNSET
    reasons: tuple[str, ...] | UnsetType = UNSET
    nearness: float | UnsetType | None = UNSET


class Case(Struct, frozen=True):
    """Experience that a decision used; None if it is not stored any more."""

    id: str
    experience: Experience | None


class MemoryDecision(Struct, frozen=True):
    """Decision that memory changed, or would have changed (`is_used` false)."""

    why: str
    call_id: str
    instead_of: str
    is_used: bool
    cases: list[Case]


class Figures(Struct, frozen=True):
    """Numbers of experiences: rows, those that were made, and those of each kind."""

    rows: int = 0
    made_count: int = field(default=0, name="made")
    merged: int = 0
    used: int = 0
    untrusted: int = 0
    unjudged: int = 0
    failed: int = 0
    lessons: int = 0
    retired: int = 0
    without_key: int = 0
    idle: int = 0
    bytes: int = 0
    vectors: int = 0


class Forgotten(Struct, frozen=True):
    """Number of experiences that were deleted."""

    forgotten: int


class Imported(Struct, frozen=True):
    """Number of experiences that were new."""

    imported: int


def _store(store: AgentStore) -> InspectsExperiences:
    from spar.ports.optional import offers
    from spar.ports.store import InspectsExperiences

    if not offers(store.memory, InspectsExperiences):
        raise LookupError("this store cannot be looked into")
    return store.memory


@operation("memory search", "GET /v1/memory/search", "read", where="store", served="stopping")
async def search(store: AgentStore, given: SearchChoice) -> list[FoundExperience]:
    """Return the experiences that fit a text best."""
    from spar.ports.optional import offers
    from spar.ports.store import InspectsExperiences

    if not offers(store.memory, InspectsExperiences):  # a store that can only recall
        return [FoundExperience(**asdict(experience)) for experience in await store.memory.recall(given.q, given.k)]
    filters = {name: getattr(given, name) for name in _FILTERS}
    filters_in_use = {name: value for name, value in filters.items() if value not in (None, "")}
    hits = await store.memory.search(given.q, given.k, **filters_in_use)
    if not given.reasons:
        return [FoundExperience(**asdict(hit.experience)) for hit in hits]
    return [
        FoundExperience(**asdict(hit.experience), fit=hit.score, reasons=tuple(hit.reasons), nearness=hit.nearness)
        for hit in hits
    ]


@operation("memory transcripts", "GET /v1/memory/transcripts", "read", where="store", served="stopping")
async def transcripts(store: AgentStore, given: TranscriptsChoice) -> list[FoundEntry]:
    """Return the newest entries of transcripts that contain all words of a text."""
    from spar.ports.optional import offers
    from spar.ports.store import KeepsTranscripts, SearchesTranscripts

    if not offers(store.memory, KeepsTranscripts) or not offers(store.memory.transcripts, SearchesTranscripts):
        raise LookupError("this store has no transcripts that can be searched")
    archive: SearchesTranscripts = store.memory.transcripts
    entries = await archive.search(store.agent_name, given.q, given.limit, session=given.session or None)
    return chosen(given, entries, lambda match: match.entry.at)


@operation("memory figures", "GET /v1/memory/figures", "read", where="store", served="stopping")
async def figures(store: AgentStore, given: Nothing) -> Figures:
    """Count the experiences: merged, used, useless and untrusted ones."""
    numbers: Any = await _store(store).figures()
    return cast("Figures", numbers)


@operation("memory why", "GET /v1/memory/why/{cycle_id}", "read", where="store", served="stopping")
async def why(store: AgentStore, given: CycleId) -> list[MemoryDecision]:
    """Return the decisions of a cycle that experiences changed, with these experiences."""
    decisions: Any = await _store(store).why(given.cycle_id)
    if decisions is None:
        raise LookupError(f"no cycle {given.cycle_id!r} is recorded; spar cycles list shows those that are")
    return cast("list[MemoryDecision]", decisions)


@operation("memory show", "GET /v1/memory/experiences/{id}", "read", where="store", served="stopping")
async def show(store: AgentStore, given: ExperienceId) -> ExperienceDetail:
    """Return one experience in full: its calls, counts, last example and origin."""
    if (detail := await _store(store).detail(given.id)) is None:
        raise LookupError(f"no experience {given.id!r}; spar memory search lists those that are")
    return detail


@operation("memory forget", "DELETE /v1/memory/experiences/{id}", "admin", stored=True,
           audit=AuditRule("experience.forget", ("experience",), subject="id"))  # fmt: skip
async def forget(store: AgentStore, given: ExperienceId) -> Forgotten:
    """Delete one experience permanently."""
    detail = await show.work(store, given)
    return Forgotten(await _store(store).forget(detail.experience.id))


@operation("memory forget-some", "POST /v1/memory/experiences:forget", "admin", stored=True,
           audit=AuditRule("experience.forget", ("experience",)))  # fmt: skip
async def forget_some(store: AgentStore, given: SelectionBody) -> Forgotten:
    """Delete all experiences for which every given field holds."""
    return Forgotten(await _store(store).forget(**asdict(given)))


@operation("memory import", "POST /v1/memory/experiences:import", "admin", stored=True,
           audit=AuditRule("experience.import", ("experience",)))  # fmt: skip
async def import_(store: AgentStore, given: ImportBody) -> Imported:
    """Import experiences from JSON lines, all or none; they are untrusted unless `trust` is true. Existing ones
    stay."""
    return Imported(await _store(store).import_(io.StringIO(given.lines), trust=given.trust))
