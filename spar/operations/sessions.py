"""Operations on sessions: list, show, change, reset, forget; the next request to the model; sessions as people see
them.

A slash in the key of a session may be escaped in a path.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast

from msgspec import UNSET, Meta, Struct, UnsetType

from spar.data.text import one_line
from spar.errors import ConflictError
from spar.operations.fields import hook_line, word_of
from spar.operations.operation import (
    AgentStore,
    AuditRule,
    Caller,
    Column,
    CommandForm,
    Since,
    TimedChoice,
    chosen,
    demanded,
    operation,
)
from spar.records.session import Origin, SessionRecord
from spar.records.transcript import Entry, TranscriptSummary

if TYPE_CHECKING:
    from spar.agent.parts import AgentParts
    from spar.ports.store import SessionStore, TranscriptStore
    from spar.protocols import Home
    from spar.service.app import Service

#: Seconds that resetting or forgetting may take: a running run ends first.
LONG_WITHIN: Final = 120.0
#: Entries of a transcript in one answer.
LONGEST_TRANSCRIPT: Final = 10_000
#: Longest name of a session, in characters.
LONGEST_KEY: Final = 256
#: Longest message for which a prompt is shown, in characters.
LONGEST_MESSAGE: Final = 100_000
#: Sessions on a page: the default and the maximum.
USUAL_PAGE: Final = 50
LARGEST_PAGE: Final = 1_000
#: Most open runs that are read of an agent that does not run here.
_MOST_RUNS: Final = 10_000


class SessionsChoice(Struct, frozen=True, forbid_unknown_fields=True):
    """Choice of sessions."""

    limit: Annotated[int, Meta(ge=1, le=LARGEST_PAGE, description="How many.")] = USUAL_PAGE
    after: Annotated[str, Meta(description="The place where the page begins: `next` of the page before.")] = ""
    since: Since = None


class SessionKey(Struct, frozen=True, forbid_unknown_fields=True):
    """A session's key."""

    key: str


class SessionBody(SessionKey, frozen=True, forbid_unknown_fields=True):
    """A title, and default options of the session's runs by name; null removes an option."""

    title: str | UnsetType = UNSET
    defaults: dict[str, Any] | UnsetType = UNSET


class TranscriptChoice(SessionKey, frozen=True, forbid_unknown_fields=True):
    """Choice of entries of a transcript."""

    limit: Annotated[int, Meta(ge=1, le=LONGEST_TRANSCRIPT, description="How many, the newest.")] = 50
    before: Annotated[int | None, Meta(description="Only the entries before the one with this number.")] = None
    since: Since = None


class PromptChoice(SessionKey, frozen=True, forbid_unknown_fields=True):
    """Choice of a prompt."""

    message: Annotated[
        str, Meta(max_length=LONGEST_MESSAGE, description="The message of the request, if no run is open.")
    ] = ""
    full: Annotated[bool, Meta(description="Whether the texts are included.")] = False


class PromptPart(Struct, frozen=True, omit_defaults=True):
    """Part of a request to a model: its size, its origin, and its text if that was asked for."""

    part: str
    chars: int
    tokens: int
    origin: str
    note: str = ""
    text: str | UnsetType = UNSET


class Prompt(Struct, frozen=True):
    """Request to a model in parts, with what hooks changed and what is wrong with its files."""

    parts: list[PromptPart]
    chars: int
    tokens: int
    trust: str
    model: str | None
    hooks: list[dict[str, Any]]
    problems: list[str]


class Deleted(Struct, frozen=True):
    """Number of rows that were deleted."""

    deleted: int


#: State of a session: whether it has an open run, and whether one of these has begun.
SessionState = Literal["resting", "waiting", "running"]


class SessionView(Struct, frozen=True):
    """One session as people see it. `runs` are its open runs, `state` says whether one of them has begun."""

    key: str
    id: str
    ordinal: int
    title: str
    defaults: dict[str, Any]
    origin: Origin
    created_at: datetime
    began_at: datetime
    used_at: datetime
    state: SessionState = "resting"
    runs: tuple[str, ...] = ()
    workspace: str = ""


class SessionPage(Struct, frozen=True):
    """A page of sessions, the last used first. `next` asks for the page after it; "" on the last page."""

    sessions: tuple[SessionView, ...]
    next: str = ""


def _about(session: SessionView) -> str:
    defaults = [f"{name}={word_of(value, 40)}" for name, value in session.defaults.items()]
    return " ".join([*([session.title] if session.title else []), *defaults])


def _sessions(store: AgentStore) -> SessionStore:
    from spar.ports.store import DurableStore

    return demanded(store.memory, DurableStore.sessions, "this store keeps no sessions")


async def _viewing(store: AgentStore, keys: Iterable[str]) -> Callable[[SessionRecord], SessionView]:
    """Return the function that shows these sessions: those of other processes, and of an agent that does not run, by
    the open runs in the store."""
    agent = store.agent
    if agent is None:
        from spar.parts.factory import home_of

        home: Home | None = home_of(store.configuration("service", "acting"))
    else:
        home = agent.home
    stored = {} if agent is not None and all(map(agent.core.owns, keys)) else await _stored_runs(store)

    def view(record: SessionRecord) -> SessionView:
        key, runs = record.key, stored.get(record.key, [])
        if agent is not None and agent.core.owns(key):
            runs = [(run.id, run.started_at is not None) for run in agent.runs.open_in(key) if not run.state.is_command]
        state: SessionState = "running" if any(begun for _, begun in runs) else "waiting" if runs else "resting"
        return SessionView(key, record.id, record.ordinal, record.title, record.defaults.given, record.origin,
                           record.created_at, record.began_at, record.used_at, state, tuple([id for id, _ in runs]),
                           "" if home is None else home.folder_of(key))  # fmt: skip

    return view


async def _shown(store: AgentStore, record: SessionRecord) -> SessionView:
    """Return a session as people see it."""
    return (await _viewing(store, [record.key]))(record)


async def _stored_runs(store: AgentStore) -> dict[str, list[tuple[str, bool]]]:
    """Return the ids of the open runs in a store by session, each with whether it has begun."""
    from spar.ports.any_part import has
    from spar.ports.store import DurableStore

    runs: dict[str, list[tuple[str, bool]]] = {}
    if has(store.memory, DurableStore.run_rows, DurableStore.run_record):
        for row in reversed(await store.memory.run_rows(store.agent_name, _MOST_RUNS, is_open=True)):
            runs.setdefault(row.session, []).append((row.run_id, row.status == "running"))
    return runs


def _token(record: SessionRecord) -> str:
    """Return a page token: the position of a session in the list, encoded."""
    position = json.dumps([record.used_at.isoformat(), record.key])
    return base64.urlsafe_b64encode(position.encode("ascii")).decode("ascii").rstrip("=")


def _position(token: str) -> tuple[datetime, str] | None:
    """Return the position that a page token encodes, None for no token. Raises: ValueError."""
    if not token:
        return None
    try:
        at, key = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        position = datetime.fromisoformat(at), str(key)
    except (binascii.Error, ValueError, TypeError, RecursionError):
        position = None
    if position is None or position[0].tzinfo is None:
        raise ValueError(f"after = {token[:60]!r}: must be the 'next' of the page before")
    return position


@operation("sessions list", "GET /v1/sessions", "read", is_stored=True, command=CommandForm(
    rows=lambda page: page.sessions,
    columns=(
        Column("last used", "used_at", "time"), Column("state", "state"), Column(">conversation", "ordinal"),
        Column("session", "key"), Column("about", _about),
    ),
    empty="no sessions",
    more=lambda given, page: f"--after {page.next}" if page.next else "",
    examples=("spar sessions list", "spar --json sessions list --limit 1000"),
))  # fmt: skip
async def list_sessions(store: AgentStore, given: SessionsChoice) -> SessionPage:
    """List the sessions, the last used one first."""
    before, since = _position(given.after), given.since
    if store.agent is not None:
        records = await store.agent.conversations.records.page(given.limit, before)
    else:
        records = await _sessions(store).page(store.agent_name, given.limit, before)
    view = await _viewing(store, [record.key for record in records])
    recent = [record for record in records if since is None or record.used_at >= since]
    return SessionPage(tuple(map(view, recent)), _token(recent[-1]) if len(recent) == given.limit else "")


@operation("sessions reset", "POST /v1/sessions/{key:path}:reset", "operate", patience=LONG_WITHIN,
           audit=AuditRule("session.reset", ("session.reset",), subject="key"), command=CommandForm(
    sentence=lambda given, session: f"{session.id}: the next message begins a conversation",
    examples=("spar sessions reset alice",),
))  # fmt: skip
async def reset(service: Service, given: SessionKey, caller: Caller) -> SessionView:
    """Reset a session: its next message begins a new conversation, without the earlier messages.

    Its running and waiting runs end with the reason "reset". The transcript stays."""
    return await _shown(service, await service.agent.conversations.resets.reset(given.key, caller.by))


class ForkBody(SessionKey, frozen=True, forbid_unknown_fields=True):
    """A session, the cycle up to whose end it is copied, and the name of the copy."""

    at: Annotated[
        str, Meta(description="The cycle up to whose end the conversation is copied, by its id; default: all of it.")
    ] = ""
    name: Annotated[str, Meta(max_length=LONGEST_KEY, description="The name of the copy; default: one is made.")] = ""


@operation("sessions fork", "POST /v1/sessions/{key:path}:fork", "operate", patience=LONG_WITHIN, status=201,
           audit=AuditRule("session.fork", ("session",), subject="key", detail=("at", "name")), command=CommandForm(
    spelled={"name": ("--as",)},
    sentence=lambda given, session: f"{session.key}: goes on from {given.key}{f' at {given.at}' if given.at else ''}",
    examples=("spar sessions fork alice", "spar sessions fork alice --at 18ea10a4 --as other-way"),
))  # fmt: skip
async def fork(service: Service, given: ForkBody, caller: Caller) -> SessionView:
    """Copy a session: the copy goes on from there by itself, and nothing that was done is done again.

    It has the conversation up to the end of a cycle, the title and the defaults. Its calls with effects ask for
    approval (`fork.effects`)."""
    agent = service.agent
    record = await agent.forks.fork(given.key, given.at.strip(), given.name.strip(), caller.by)
    return await _shown(service, record)


def _parts(prompt: Prompt) -> list[PromptPart]:
    """Return the parts of a request, and their sum."""
    about = f"trust: {prompt.trust}{f', model: {prompt.model}' if prompt.model else ''}"
    return [*prompt.parts, PromptPart("all", prompt.chars, prompt.tokens, about)]


def _besides(given: object, prompt: Prompt) -> str:
    """Return lines about changes by hooks, about problems, and the texts if they are included."""
    texts = [f"\n--- {part.part} ({one_line(part.origin)})\n{part.text}" for part in prompt.parts
             if part.text is not UNSET]  # fmt: skip
    problems = [one_line(f"problem: {problem}") for problem in prompt.problems]
    return "\n".join([*map(hook_line, prompt.hooks), *problems, *texts]).removeprefix("\n")


@operation("sessions prompt", "GET /v1/sessions/{key:path}:prompt", "read", is_masked=True, command=CommandForm(
    default={"key": "main"}, spelled={"message": ("--message", "-m")}, rows=_parts,
    columns=(
        Column("part", "part"), Column(">chars", lambda part: f"{part.chars:,}"),
        Column(">tokens", lambda part: f"{part.tokens:,}"),
        Column("origin", lambda part: f"{part.origin}{f' ({part.note})' if part.note else ''}"),
    ),
    also=(CommandForm(sentence=_besides),),
    examples=("spar sessions prompt", 'spar sessions prompt alice --message "how is the weather?"',
              "spar sessions prompt --full", "spar --json sessions prompt alice"),
))  # fmt: skip
async def prompt(service: Service, given: PromptChoice) -> Prompt:
    """Show the parts of the next request to the model, with size and origin; nothing is sent.

    Tokens are estimated. Hooks are called as for a request, with the reason "preview".
    """
    return cast("Prompt", await prompt_of(service.agent, given.key, given.message, with_text=given.full))


async def prompt_of(agent: AgentParts, session: str, message: str = "", *, with_text: bool = False) -> dict[str, Any]:
    """Return the parts of a session's next request to a model, with the size and origin of each.

    The request is that of the current run. Without one it is that of a new run about `message` with the session's
    options.

    Args: with_text: include the text of each part.
    Raises: ConflictError if the planner asks no model; and the errors of hooks that refuse the request.
    """
    from spar.ports.any_part import has
    from spar.ports.planners import OptionalPlanner
    from spar.protocols import Context, RunContext
    from spar.records.run_options import NO_OPTIONS
    from spar.types import Perception

    planner: OptionalPlanner = agent.setup.modules["plan"].part
    if not has(planner, OptionalPlanner.prompt):
        raise ConflictError(f'{agent.setup.modules["plan"].name} asks no model: it has no prompt (plan.use = "llm")')
    known = agent.sessions.by_key.get(session)
    run = known.run if known is not None else None
    record = await agent.conversations.records.find(session)
    options = NO_OPTIONS if record is None else record.defaults
    first_message = Perception(message, source="messages", kind="message", session=session, trust="trusted")
    first = first_message if first_message.text else None  # without text the run has no message
    about = run.context() if run is not None else RunContext("preview", message, message=first, options=options)
    context = Context(agent.core.name, "", session, about, agent.memory, agent.agent_state.abilities,
                      clock=agent.core.clock)  # fmt: skip
    return await planner.prompt([first_message] if message and run is None else [], context, with_text=with_text)


def _transcripts(store: AgentStore) -> TranscriptStore:
    from spar.ports.store import DurableStore

    return demanded(store.memory, DurableStore.transcripts, "this store keeps no transcripts")


@operation("sessions transcripts", "GET /v1/transcripts", "read", where="store", served="stopping",
           command=CommandForm(
    columns=(
        Column("last entry", "last_at", "time"), Column(">entries", "entries"),
        Column(">size", lambda row: f"{-(-row.bytes // 1024)} KiB"), Column("session", "session"),
    ),
    empty="no transcripts yet", examples=("spar sessions transcripts",),
))  # fmt: skip
async def list_transcripts(store: AgentStore, given: TimedChoice) -> list[TranscriptSummary]:
    """List the sessions that have a transcript, the one with the newest entry first."""
    return chosen(given, await _transcripts(store).sessions(store.agent_name), lambda row: row.last_at)


@operation("sessions transcript", "GET /v1/sessions/{key:path}:transcript", "read", where="store", served="stopping",
           command=CommandForm(
    default={"key": "main"},
    columns=(Column(">seq", "seq"), Column("at", "at", "time"), Column("kind", "kind"), Column("text", "line")),
    empty="no entries then",
    examples=("spar sessions transcript", "spar --json sessions transcript alice --limit 200"),
))  # fmt: skip
async def transcript(store: AgentStore, given: TranscriptChoice) -> list[Entry]:
    """Show the newest messages and actions of a session, the oldest first, and its resets."""
    entries = await _transcripts(store).tail(store.agent_name, given.key, given.limit, given.before)
    recent = chosen(given, entries, lambda entry: entry.at)
    if not entries and given.before is None:
        advice = "spar sessions transcripts lists those that are"
        raise LookupError(f"no transcript of session {given.key!r:.300}; {advice}")
    return [entry.shown for entry in recent]


def _defaults(session: SessionView) -> list[str]:
    return [f"{name} = {word_of(value)}" for name, value in session.defaults.items()]


#: The fields of a session for people.
FIELDS: Final = (
    Column("session", "key"), Column("id", "id"), Column("title", "title"), Column("defaults", _defaults, "list"),
    Column("origin", lambda row: " ".join(filter(None, (row.origin.door, row.origin.channel, row.origin.sender)))),
    Column("begun", "created_at", "time"), Column("conversation since", "began_at", "time"),
    Column("last used", "used_at", "time"), Column("state", "state"), Column("runs", "runs", "list"),
    Column("workspace", "workspace"),
)  # fmt: skip


@operation("sessions show", "GET /v1/sessions/{key:path}", "read", is_stored=True, command=CommandForm(
    fields=FIELDS, examples=("spar sessions show alice",),
))  # fmt: skip
async def show(store: AgentStore, given: SessionKey) -> SessionView:
    """Show one session: its conversation, its defaults, its origin, its open runs."""
    if store.agent is not None:
        return await _shown(store, await store.agent.conversations.records.get(given.key))
    if (record := await _sessions(store).get(store.agent_name, given.key)) is None:
        raise LookupError(f"no session {given.key!r:.300}; a session begins with its first message")
    return await _shown(store, record)


#: The options of runs for which a session may have defaults.
DEFAULTS: Final = ("model", "thinking", "timeout", "verbose", "instructions")
_FLAGS: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def _assigned(given: SessionBody) -> SessionBody:
    """Return the input of typed assignments; an empty value removes a default. Raises: ValueError."""
    from spar.config.tables.section import seconds

    values: dict[str, Any] = {}
    texts: Any = given.defaults
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name not in ("title", *DEFAULTS):
            raise ValueError(f"{text!r}: must be NAME=VALUE; names: {', '.join(('title', *DEFAULTS))}")
        values[name] = value if value or name == "title" else None
    if (duration := seconds(values.get("timeout"))) is not None:
        values["timeout"] = duration
    if "verbose" in values:
        values["verbose"] = _FLAGS.get(str(values["verbose"]).lower(), values["verbose"])
    return SessionBody(given.key, values.pop("title", UNSET), values or UNSET)


@operation("sessions set", "PATCH /v1/sessions/{key:path}", "operate",
           audit=AuditRule("session.change", ("session",), subject="key", detail=("title", "defaults")),
           command=CommandForm(
    arguments=("key", "defaults"), hidden=("title",), spelled={"key": ("SESSION",), "defaults": ("NAME=VALUE...",)},
    read=_assigned, fields=FIELDS,
    does="Set a session's title, or default options of its runs; an empty value removes one.",
    examples=("spar sessions set alice thinking=high", 'spar sessions set alice title="Holidays" model= timeout=120'),
))  # fmt: skip
async def change(service: Service, given: SessionBody) -> SessionView:
    """Set the title or the defaults of a session and return it; null removes a default."""
    title = None if given.title is UNSET else given.title
    defaults = None if given.defaults is UNSET else given.defaults
    if title is None and not defaults:
        record = await service.agent.conversations.records.get(given.key)
    else:
        record = await service.agent.conversations.records.set(given.key, title=title, defaults=defaults)
    return await _shown(service, record)


@operation("sessions forget", "DELETE /v1/sessions/{key:path}", "admin", patience=LONG_WITHIN,
           audit=AuditRule("session.forget", ("session",), subject="key"), command=CommandForm(
    sentence=lambda given, rows: f"{given.key}: forgotten, {rows.deleted} rows",
    confirm="delete everything that is kept of session {key!r}?", examples=("spar sessions forget alice",),
))  # fmt: skip
async def forget(service: Service, given: SessionKey, caller: Caller) -> Deleted:
    """Delete a session with its transcript, its cycles, the answers of its runs, and its workspace."""
    return Deleted(await service.agent.conversations.resets.forget(given.key, caller.by))
