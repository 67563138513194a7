"""Operations on sessions: list, show, change, reset, forget; the next request to the model.

A slash in the key of a session may be escaped in a path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, cast

from msgspec import UNSET, Meta, Struct, UnsetType

from spar.operations.operation import AuditRule, Caller, CommandForm, operation
from spar.records.session import LARGEST_PAGE, USUAL_PAGE, SessionPage, SessionView

if TYPE_CHECKING:
    from spar.service.app import Service

#: Seconds that resetting or forgetting may take: a running run ends first.
LONG_WITHIN: Final = 120.0
#: Longest message for which a prompt is shown, in characters.
LONGEST_MESSAGE: Final = 100_000


class SessionsChoice(Struct, frozen=True, forbid_unknown_fields=True):
    """Choice of sessions."""

    limit: Annotated[int, Meta(ge=1, le=LARGEST_PAGE, description="How many.")] = USUAL_PAGE
    after: Annotated[str, Meta(description="The place where the page begins: `next` of the page before.")] = ""


class SessionKey(Struct, frozen=True, forbid_unknown_fields=True):
    """A session's key."""

    key: str


class SessionBody(SessionKey, frozen=True, forbid_unknown_fields=True):
    """A title, and default options of the session's runs by name; null removes an option."""

    title: str | UnsetType = UNSET
    defaults: dict[str, Any] | UnsetType = UNSET


class PromptChoice(SessionKey, frozen=True, forbid_unknown_fields=True):
    """Choice of a prompt."""

    message: Annotated[
        str, Meta(max_length=LONGEST_MESSAGE, description="The message that the request would be about.")
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


@operation("sessions list", "GET /v1/sessions", "read")
async def list_sessions(service: Service, given: SessionsChoice) -> SessionPage:
    """List the sessions, the last used one first; `next` is the place where the next page begins."""
    return await service.agent.session_control.list(given.limit, given.after)


@operation("sessions reset", "POST /v1/sessions/{key:path}:reset", "operate", patience=LONG_WITHIN,
           audit=AuditRule("session.reset", ("session.reset",), subject="key"), command=CommandForm(
    sentence=lambda given, session: f"{session.id}: the next message begins a conversation",
    examples=("spar sessions reset alice",),
))  # fmt: skip
async def reset(service: Service, given: SessionKey, caller: Caller) -> SessionView:
    """Reset a session: its next message begins a new conversation, without the earlier messages.

    Its running and waiting runs end with the reason "reset". The transcript stays."""
    return await service.agent.session_control.reset(given.key, caller.by)


@operation("sessions prompt", "GET /v1/sessions/{key:path}:prompt", "read", is_masked=True)
async def prompt(service: Service, given: PromptChoice) -> Prompt:
    """Return the next request of a session to a model by part, size and origin."""
    from spar.session.preview import prompt_of

    parts: Any = await prompt_of(service.agent, given.key, given.message, with_text=given.full)
    return cast("Prompt", parts)


@operation("sessions show", "GET /v1/sessions/{key:path}", "read", command=CommandForm(
    examples=("spar sessions show alice",),
))  # fmt: skip
async def show(service: Service, given: SessionKey) -> SessionView:
    """Show one session: its conversation, its defaults, its origin, its open runs."""
    return await service.agent.session_control.show(given.key)


@operation("sessions set", "PATCH /v1/sessions/{key:path}", "operate",
           audit=AuditRule("session.change", ("session",), subject="key", detail=("title", "defaults")))  # fmt: skip
async def change(service: Service, given: SessionBody) -> SessionView:
    """Set the title or the defaults of a session and return it; null removes a default."""
    title = None if given.title is UNSET else given.title
    defaults = None if given.defaults is UNSET else given.defaults
    return await service.agent.session_control.change(given.key, title=title, defaults=defaults)


@operation("sessions forget", "DELETE /v1/sessions/{key:path}", "admin", patience=LONG_WITHIN,
           audit=AuditRule("session.forget", ("session",), subject="key"), command=CommandForm(
    sentence=lambda given, rows: f"{given.key}: forgotten, {rows.deleted} rows",
    confirm="delete everything that is kept of session {key!r}?", examples=("spar sessions forget alice",),
))  # fmt: skip
async def forget(service: Service, given: SessionKey, caller: Caller) -> Deleted:
    """Delete a session with its transcript, its cycles, the answers of its runs, and its workspace."""
    return Deleted(await service.agent.session_control.forget(given.key, caller.by))
