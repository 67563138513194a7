"""Operations on the memory: search experiences and transcripts, show, explain, count, forget, import."""

from __future__ import annotations

import io
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast

from msgspec import UNSET, Meta, Struct, UnsetType, field
from msgspec.structs import asdict

from spar.data.learning.abilities import MemoryDecision
from spar.data.text import one_line, value_line
from spar.operations.history import CycleId, Session
from spar.operations.operation import AgentStore, AuditRule, Column, CommandForm, Nothing, Since, chosen, operation
from spar.records.transcript import FoundEntry
from spar.review.render import moment
from spar.types import Experience, replace
from spar.types.cycle import ExperienceDetail

if TYPE_CHECKING:
    from spar.ports.store import InspectsExperiences

#: Fields of a search that filter the experiences.
#: The sign of an experience that worked, that failed, and of one of which nobody knows.
MARKS: Final = {True: "✓", False: "✗", None: "·"}
_FILTERS = ("session", "task", "key", "success", "trust", "lesson", "since", "before", "as_of")


class SearchChoice(Struct, frozen=True, forbid_unknown_fields=True):
    """Search in the experiences."""

    q: Annotated[str, Meta(description="The text that the experiences should fit.")] = ""
    k: Annotated[int, Meta(ge=1, le=10_000, description="How many.")] = 5
    session: Session = None
    task: Annotated[str | None, Meta(description="Only of this kind of task.")] = None
    key: Annotated[str | None, Meta(description="Only of the situation with this key.")] = None
    success: Annotated[bool | None, Meta(description="Only what worked (1), or only what failed (0).")] = None
    trust: Annotated[Literal["trusted", "untrusted"] | None, Meta(description="Only of this trust.")] = None
    lesson: Annotated[bool | None, Meta(description="Only with a lesson (1), or only without one (0).")] = None
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
    """Selection of one experience by its id, or of all for which every given field holds."""

    id: str = ""
    session: Annotated[str | None, Meta(description="All of this session.")] = None
    task: Annotated[str | None, Meta(description="All of this kind of task.")] = None
    success: bool | None = None
    since: datetime | None = None
    before: Annotated[datetime | None, Meta(description="All made last before this.")] = None


class ExperienceId(Struct, frozen=True, forbid_unknown_fields=True):
    """An experience's id, or a unique beginning of it."""

    id: str


class FoundExperience(Experience, frozen=True):
    """Experience that a search found. With `reasons` it has them, its score as `fit`, and how near its meaning is."""

    fit: float | UnsetType = UNSET
    reasons: tuple[str, ...] | UnsetType = UNSET
    nearness: float | UnsetType | None = UNSET


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
    from spar.ports.any_part import offers
    from spar.ports.store import InspectsExperiences

    memory: InspectsExperiences = store.memory
    if not offers(memory, InspectsExperiences):
        raise LookupError("this store cannot be looked into")
    return memory


def summary_line(experience: Experience) -> str:
    """Return an experience as one line: its situation, its action, and its lesson or outcome."""
    done = ": ".join(filter(None, (experience.action, experience.lesson or experience.outcome)))
    trust = "" if experience.trust == "trusted" else " [untrusted]"
    return f"{experience.situation}{trust}{f' → {done}' if done else ''}"


@operation("memory search", "GET /v1/memory/search", "read", where="store", served="stopping", command=CommandForm(
    arguments=("q",), hidden=("reasons",), default={"reasons": True},
    spelled={"q": ("[QUERY]",), "k": ("-k",), "success": ("--success/--failure",),
             "lesson": ("--lesson/--no-lesson",)},
    columns=(
        Column(">fit", lambda row: f"{row.fit:.2f}"), Column("at", "at", "time"),
        Column("", lambda row: MARKS[row.success]), Column(">made", "count"), Column("id", "id"),
        Column("what", summary_line, "line"), Column("why it is here", lambda row: "; ".join(row.reasons)),
    ),
    empty="nothing is remembered of that",
    examples=('spar memory search "disk full"', "spar memory search -k 20 --failure"),
))  # fmt: skip
async def search(store: AgentStore, given: SearchChoice) -> list[FoundExperience]:
    """Search experiences by words, with the score of each and the reasons; without words, list the latest."""
    from spar.ports.any_part import offers
    from spar.ports.store import InspectsExperiences

    if not offers(store.memory, InspectsExperiences):  # a store that can only recall
        return [FoundExperience(**asdict(experience)) for experience in await store.memory.recall(given.q, given.k)]
    filters = {name: getattr(given, name) for name in _FILTERS}
    filters_in_use = {name: value for name, value in filters.items() if value not in (None, "")}
    hits = await store.memory.search(given.q, given.k, **filters_in_use)
    if not given.reasons:
        return [FoundExperience(**asdict(hit.experience)) for hit in hits]
    return [FoundExperience(**asdict(hit.experience), fit=hit.score, reasons=tuple(hit.reasons), nearness=hit.nearness)
            for hit in hits]  # fmt: skip


@operation("memory transcripts", "GET /v1/memory/transcripts", "read", where="store", served="stopping",
           command=CommandForm(
    arguments=("q",), spelled={"q": ("[QUERY]",)},
    columns=(
        Column("at", lambda match: match.entry.at, "time"), Column("session", "session"),
        Column("kind", lambda match: match.entry.kind),
        Column("trust", lambda match: match.entry.body.get("trust", "")),
        Column("what", lambda match: match.entry.line, "line"),
    ),
    empty="nothing was said of that", examples=('spar memory transcripts "backup of the mail"',),
))  # fmt: skip
async def transcripts(store: AgentStore, given: TranscriptsChoice) -> list[FoundEntry]:
    """Search what was said and done in sessions: the newest entries of transcripts that contain all words."""
    from spar.ports.any_part import has, offers
    from spar.ports.store import DurableStore, SearchesTranscripts

    if not has(store.memory, DurableStore.transcripts) or not offers(store.memory.transcripts, SearchesTranscripts):
        raise LookupError("this store has no transcripts that can be searched")
    archive: SearchesTranscripts = store.memory.transcripts
    entries = await archive.search(store.agent_name, given.q, given.limit, session=given.session or None)
    shown = [replace(match, entry=match.entry.shown) for match in entries]
    return chosen(given, shown, lambda match: match.entry.at)


def _share(name: str, about: str = "") -> Any:
    """Return the cell with a number of experiences and its share of all."""

    def cell(figures: Figures) -> str:
        number: int = getattr(figures, name)
        return f"{number} ({number / max(1, figures.rows):.1%}){about.format(figures.retired)}"

    return cell


@operation("memory figures", "GET /v1/memory/figures", "read", where="store", served="stopping", command=CommandForm(
    title="memory",
    fields=(
        Column("rows", lambda row: f"{row.rows} for {row.made_count} experiences, {row.bytes / 1e6:.1f} MB"),
        Column("merged", _share("merged", " stand for more than one")),
        Column("used", _share("used", " went into a decision that was judged")),
        Column("idle", _share("idle", " teach nothing, were never used, and nobody knows whether they worked")),
        Column("failed", _share("failed")), Column("unjudged", _share("unjudged")),
        Column("lessons", _share("lessons", ", of which {} are retired")),
        Column("untrusted", _share("untrusted", " are of strangers, or beside words of theirs")),
        Column("no key", _share("without_key", " have no situation, and are never merged")),
        Column("vectors", _share("vectors")),
    ),
    examples=("spar memory figures",),
))  # fmt: skip
async def figures(store: AgentStore, given: Nothing) -> Figures:
    """Count the experiences: merged, used, useless and untrusted ones."""
    return cast("Figures", await _store(store).figures())


def _decisions(given: CycleId, decisions: list[MemoryDecision]) -> str:
    lines = []
    for decision in decisions:
        instead = f"instead of {decision.instead_of}: " if decision.instead_of else ""
        lines.append(f"{instead}{decision.why}{'' if decision.is_used else ' (only observed)'}")
        for case in decision.cases:
            line = "is not kept any more" if case.experience is None else one_line(summary_line(case.experience), 200)
            lines.append(f"  {case.id}  {line}")
    return "\n".join(lines) or "memory changed no decision of this cycle"


@operation("memory why", "GET /v1/memory/why/{cycle_id}", "read", where="store", served="stopping",
           command=CommandForm(sentence=_decisions, examples=("spar memory why 18ea256e7753",)))  # fmt: skip
async def why(store: AgentStore, given: CycleId) -> list[MemoryDecision]:
    """Show which decisions of a cycle experiences changed, with these experiences."""
    if (decisions := await _store(store).why(given.cycle_id)) is None:
        raise LookupError(f"no cycle {given.cycle_id!r} is recorded; spar cycles list shows those that are")
    return cast("list[MemoryDecision]", decisions)


def _text(name: str) -> Column:
    """Return a text of an experience in full, on one line."""
    return Column(name, lambda detail: getattr(detail.experience, name), "line")


def _calls(detail: ExperienceDetail) -> list[str]:
    return [one_line(f"{call.tool} {value_line(call.params)} {MARKS[call.success]} {call.cause}", 300)
            for call in detail.experience.calls]  # fmt: skip


def _times(detail: ExperienceDetail) -> str:
    return f"{detail.experience.count} time{'s' * (detail.experience.count != 1)}"


def _sources(detail: ExperienceDetail) -> list[str]:
    return [f"cycle {source.cycle_id or '?'}, run {source.run_id or '-'}, {moment(source.at)}"
            for source in detail.sources[:10]]  # fmt: skip


@operation("memory show", "GET /v1/memory/experiences/{id}", "read", where="store", served="stopping",
           command=CommandForm(
    title=lambda detail: f"experience {detail.experience.id}",
    fields=(
        *map(_text, ("situation", "said", "action", "outcome", "answer", "cause", "lesson")),
        Column("", lambda detail: "the lesson is retired" if detail.is_retired else ""),
        Column("call", _calls, "each"), Column("made", _times),
        Column("last", lambda detail: detail.experience.at, "time"),
        Column("first", lambda detail: detail.experience.first_at, "time"),
        Column("worked", lambda detail: f"{MARKS[detail.experience.success]} score {detail.experience.score}"),
        Column("helped", lambda detail: f"{detail.experience.helped}, harmed {detail.experience.harmed}"),
        *map(_text, ("trust", "key", "session")), Column("from", _sources, "each"),
    ),
    examples=("spar memory show 18ea256e7753",),
))  # fmt: skip
async def show(store: AgentStore, given: ExperienceId) -> ExperienceDetail:
    """Show one experience in full: its calls, how often it was made, how often it helped, and its sources."""
    if (detail := await _store(store).detail(given.id)) is None:
        raise LookupError(f"no experience {given.id!r}; spar memory search lists those that are")
    return detail


@operation("memory forget", "DELETE /v1/memory/experiences/{id}", "admin", is_stored=True,
           audit=AuditRule("experience.forget", ("experience",), subject="id"))  # fmt: skip
async def forget(store: AgentStore, given: ExperienceId) -> Forgotten:
    """Delete one experience permanently."""
    detail = await show.work(store, given)
    return Forgotten(await _store(store).forget(detail.experience.id))


@operation("memory forget-some", "POST /v1/memory/experiences:forget", "admin", is_stored=True,
           audit=AuditRule("experience.forget", ("experience",), subject="id"), command={"forget": CommandForm(
    arguments=("id",), hidden=("success", "since"),
    sentence=lambda given, row: f"{row.forgotten} experience{'s' * (row.forgotten != 1)} forgotten",
    does="Delete one experience permanently, or all for which every given option holds.",
    examples=("spar memory forget 18ea256e775307670000245362", "spar memory forget --session alice"),
)})  # fmt: skip
async def forget_some(store: AgentStore, given: SelectionBody) -> Forgotten:
    """Delete one experience, or all for which every given field holds; an empty selection is refused."""
    fields = asdict(given)
    id = fields.pop("id")
    if bool(id) == any(value is not None for value in fields.values()):
        raise ValueError("name one experience, or say which by their session, task or time")
    return await forget.work(store, ExperienceId(id)) if id else Forgotten(await _store(store).forget(**fields))


@operation("memory import", "POST /v1/memory/experiences:import", "admin", is_stored=True,
           audit=AuditRule("experience.import", ("experience",)))  # fmt: skip
async def import_(store: AgentStore, given: ImportBody) -> Imported:
    """Import experiences from JSON lines, all or none; they are untrusted unless `trust` is true. Existing ones
    stay."""
    return Imported(await _store(store).import_(io.StringIO(given.lines), trust=given.trust))
