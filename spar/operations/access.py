"""Operations on those who reach the agent: channels and notifiers, senders of messages, access tokens of programs."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast

from msgspec import Meta, Struct
from msgspec.structs import asdict

from spar.data.text import one_line, visible
from spar.decoding import convert
from spar.operations.operation import (
    NOT_RUNNING,
    AgentStore,
    AuditRule,
    Caller,
    Column,
    CommandForm,
    RowsChoice,
    TimedChoice,
    chosen,
    effect_form,
    operation,
    records_in,
)
from spar.records.senders import KIND, ChannelState, Delivery, Direction, SenderRow, SenderStatus, rules_of
from spar.service.token_rows import LONGEST_DAYS, NewToken, Scope, TokenView
from spar.types import Trust

if TYPE_CHECKING:
    from spar.agent.parts import AgentParts
    from spar.service.app import Service

#: The id of a message in examples.
_ID: Final = "18ea256e775307670000245362.9f3a0c1d2e4b"
#: Longest duration of a test, in seconds.
LONGEST_TEST: Final = 120.0


class MessageId(Struct, frozen=True, forbid_unknown_fields=True):
    """An undelivered message's id."""

    id: str


class NotifierState(Struct, frozen=True):
    """State of a notifier, and the numbers of notices that it has sent, that wait, and that it has given up."""

    name: str
    waiting: int
    sent: int = 0
    given_up: int = 0
    failures: int = 0
    last_error: str = ""
    is_quiet: bool = False


class NotifierName(Struct, frozen=True, forbid_unknown_fields=True):
    """A notifier's name."""

    name: str


class ChannelTest(Struct, frozen=True, forbid_unknown_fields=True):
    """A channel's or notifier's name, and the address that a channel sends to."""

    name: str
    to: Annotated[str, Meta(description="The address that a channel sends to; a notifier has its own.")] = ""


class TestResult(Struct, frozen=True):
    """Result of a test message; `error` is "" if it was sent."""

    name: str
    error: str


def _last_errors(state: ChannelState) -> str:
    directions = (state.receiving, state.sending)
    errors = (direction.last_error for direction in directions if direction.state != "ok")
    return one_line("; ".join(filter(None, errors)), 100)


async def _asked(agent: AgentParts, work: str, **given: str) -> Any:
    return await agent.attachments.get("channels").ask(work, **given)


async def _waiting(store: AgentStore, owner: str) -> list[dict[str, Any]]:
    """Return the rows of messages that wait in the store or were put aside there."""
    from spar.ports.rows import rows_in

    rows = await rows_in(store.memory, f"{owner}:{store.agent_name}")
    return [row for key, row in rows.items() if key.startswith("out/") and "channel" in row]


@operation("channels list", "GET /v1/channels", "read", is_stored=True, command=CommandForm(
    rows=lambda states: list(states.items()),
    columns=(
        Column("channel", lambda row: row[0]), Column("receives", lambda row: row[1].receiving.state),
        Column("sends", lambda row: row[1].sending.state), Column(">heard", lambda row: str(row[1].accepted)),
        Column(">sent", lambda row: str(row[1].sent)), Column(">waiting", lambda row: str(row[1].waiting)),
        Column(">failed", lambda row: str(row[1].undelivered)),
        Column("last error", lambda row: _last_errors(row[1])),
    ),
    empty="no channels are configured ([[channels]])",
    examples=("spar channels list",),
))  # fmt: skip
async def list_channels(store: AgentStore, given: RowsChoice) -> dict[str, ChannelState]:
    """List the channels by name: whether each receives and sends, how many messages wait, and how many came and went
    since the start."""
    if store.agent is not None:
        states = await _asked(store.agent, "list")
    else:
        counts = Counter((row["channel"], row["state"]) for row in await _waiting(store, "channels"))
        states = {
            part.label: ChannelState(Direction(NOT_RUNNING), Direction(NOT_RUNNING), counts[part.label, "waiting"],
                                     counts[part.label, "failed"])
            for part in store.configuration("channels").settings.channels
        }  # fmt: skip
    return cast("dict[str, ChannelState]", dict(chosen(given, states.items())))


@operation("channels failed", "GET /v1/deliveries", "read", is_stored=True,
           command=CommandForm(
    columns=(
        Column("id", "id"), Column("state", "state"), Column("since", "at", "time"), Column("channel", "channel"),
        Column("address", "address"), Column(">tries", "attempts"),
        Column("why", lambda row: one_line(row.error, 60)), Column("text", lambda row: one_line(row.text, 40)),
    ),
    empty="all messages were delivered",
    examples=("spar channels failed",),
))  # fmt: skip
async def undelivered(store: AgentStore, given: TimedChoice) -> list[Delivery]:
    """List messages that could not be delivered, the oldest first: `failed` ones are not tried again, `waiting` ones
    are."""
    if store.agent is not None:
        rows = convert(await _asked(store.agent, "failed"), list[Delivery])
    else:
        settings = store.configuration("channels", "notifiers").settings
        names = {part.label for part in (*settings.channels, *settings.notifiers)}
        stored = [*await _waiting(store, "channels"), *await _waiting(store, "notices")]
        rows = [convert(row, Delivery) for row in stored if row["channel"] in names]
    failed = [row for row in rows if row.state == "failed" or row.attempts]
    return chosen(given, sorted(failed, key=lambda row: (row.at, row.id)), lambda row: row.at)


def _place(row: Delivery) -> str:
    return f"{row.id} to {row.address} on {row.channel}"


@operation("channels retry", "POST /v1/deliveries/{id}:retry", "operate",
           audit=AuditRule("delivery.retry", ("",), subject="id"),
           command=effect_form("tried again", _place, f"spar channels retry {_ID}"))  # fmt: skip
async def retry(service: Service, given: MessageId) -> Delivery:
    """Try a failed message again."""
    return convert(await _asked(service.agent, "retry", id=given.id), Delivery)


@operation("channels drop", "POST /v1/deliveries/{id}:drop", "operate",
           audit=AuditRule("delivery.drop", ("",), subject="id"),
           command=effect_form("dropped", _place, f"spar channels drop {_ID}"))  # fmt: skip
async def drop(service: Service, given: MessageId) -> Delivery:
    """Delete a failed message: it is never sent."""
    return convert(await _asked(service.agent, "drop", id=given.id), Delivery)


@operation("channels test", "POST /v1/channels/{name}:test", "operate", patience=LONGEST_TEST,
           audit=AuditRule("channel.test", subject="name", detail=("to",)), command=CommandForm(
    sentence=lambda given, result: f"{result.name}: sent", failure="error",
    examples=("spar channels test mail --to ada@example.org", "spar channels test ops"),
))  # fmt: skip
async def test_channel(service: Service, given: ChannelTest) -> TestResult:
    """Send a test message now, through a channel or a notifier of alerts. If it fails, `error` has the reason, with
    which the command ends (code 1)."""
    return TestResult(given.name, await _asked(service.agent, "test", name=given.name, address=given.to))


@operation("notifiers list", "GET /v1/notifiers", "read", is_stored=True,
           command=CommandForm(
    columns=(
        Column("notifier", "name"), Column(">sent", "sent"), Column(">waiting", "waiting"),
        Column(">given up", "given_up"), Column("last error", lambda row: one_line(row.last_error, 100)),
    ),
    empty="no notifiers are configured ([[notifiers]])",
    examples=("spar notifiers list",),
))  # fmt: skip
async def list_notifiers(store: AgentStore, given: RowsChoice) -> list[NotifierState]:
    """List the notifiers of alerts, with the numbers of notices that wait, and that each has sent since the start."""
    if store.agent is not None:
        return cast("list[NotifierState]", chosen(given, await _asked(store.agent, "notifiers")))
    counts = Counter((row["channel"], row["state"]) for row in await _waiting(store, "notices"))
    parts = store.configuration("notifiers").settings.notifiers
    return chosen(given, [NotifierState(part.label, counts[part.label, "waiting"]) for part in parts])


@operation("notifiers test", "POST /v1/notifiers/{name}:test", "operate", patience=LONGEST_TEST,
           audit=AuditRule("notifier.test", subject="name"))  # fmt: skip
async def test(service: Service, given: NotifierName) -> TestResult:
    """Send a test notice through a notifier now; `error` is "" if it was sent."""
    return TestResult(given.name, await service.agent.attachments.get("notices").test(given.name))


# -- senders

Terms = Annotated[Literal["trusted", "untrusted"], Meta(description="The trust in its text.")]
Person = Annotated[str, Meta(description="The name of the person.")]


class SenderView(Struct, frozen=True):
    """Sender in a list. `origin` is "settings" or "people"; `messages` counts the messages that were not accepted."""

    sender: str
    status: SenderStatus
    origin: str
    person: str = ""
    trust: Trust = "untrusted"
    messages: int = 0
    first_at: datetime | None = None
    last_at: datetime | None = None
    decided_at: datetime | None = None
    by: str = ""
    code_expires_at: datetime | None = None


def _view_of(row: SenderRow) -> SenderView:
    """Return a row as it is listed."""
    return SenderView(row.id, row.status, "people", row.person, row.trust, row.messages, row.first_at, row.last_at,
                      row.decided_at, row.by, row.expires_at)  # fmt: skip


def _newest(row: SenderRow) -> tuple[float, str]:
    at = row.last_at or row.decided_at or row.first_at
    return (at.timestamp() if at is not None else 0.0, row.id)


class SenderChoice(TimedChoice, frozen=True, forbid_unknown_fields=True):
    """Choice of senders."""

    status: Annotated[SenderStatus | None, Meta(description="Only with this status.")] = None


class PairBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The code that a sender received, the person's name, and the trust in its text."""

    code: str
    person: Person = ""
    trust: Terms = "trusted"


class AllowBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A sender (channel:address), the person's name, and the trust in its text."""

    sender: str
    person: Person = ""
    trust: Terms = "trusted"


class SenderBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A sender (channel:address)."""

    sender: str


def _decided(argument: str, done: str, *examples: str, has_trust: bool = False) -> CommandForm:
    """Return the command of a decision about a sender. Args: done: the word for it."""

    def subject(sender: SenderView) -> str:
        who = f" ({visible(sender.person)})" if sender.person else ""
        return f"{visible(sender.sender)}{who}{f', {sender.trust}' if has_trust else ''}"

    return effect_form(done, subject, *examples, arguments=(argument,))


async def _ask(service: Service, work: str, given: Struct, **more: Any) -> SenderView:
    return _view_of(await service.agent.attachments.get("senders").ask(work, **asdict(given), **more))


def _nobody(given: SenderChoice) -> str:
    return f"no sender is {given.status}" if given.status else "nobody has written, and the configuration names nobody"


@operation("senders list", "GET /v1/senders", "read", is_stored=True, command=CommandForm(
    columns=(
        Column("sender", "sender"), Column("status", "status"), Column("person", "person"),
        Column("trust", lambda row: row.trust if row.status == "allowed" else ""), Column("from", "origin"),
        Column(">unheard", "messages"), Column("last", "last_at", "time"),
    ),
    empty=_nobody,
    examples=("spar senders list", "spar senders list --status waiting"),
))  # fmt: skip
async def list_senders(store: AgentStore, given: SenderChoice) -> list[SenderView]:
    """List the senders that the configuration names, that have written, or that people have decided about.

    Messages of unknown senders are not read, only counted."""
    if store.agent is None:
        rows = [row for row in await records_in(store, KIND, SenderRow) if row.agent == store.agent_name]
    else:
        rows = await store.agent.attachments.get("senders").rows()
    rules, status = rules_of(store.configuration("senders").settings.senders), given.status
    views = [_view_of(row) for row in sorted(rows, key=_newest, reverse=True)]
    views += [SenderView(name, "allowed", "settings", terms.person, terms.trust) for name, terms in rules.allow.items()]
    views += [SenderView(name, "denied", "settings") for name in sorted(rules.deny)]
    views = [view for view in views if status in (None, view.status)]
    return chosen(given, views, lambda row: row.last_at or row.decided_at)


@operation("senders pair", "POST /v1/senders:pair", "admin",
           audit=AuditRule("sender.pair", ("sender",), subject="person", detail=("trust",)),
           command=_decided("code", "let in", "spar senders pair K7QF-2M9X",
                            "spar senders pair K7QF-2M9X --person bob --trust untrusted", has_trust=True))  # fmt: skip
async def pair(service: Service, given: PairBody, caller: Caller) -> SenderView:
    """Allow the sender that received a code and gave it to you. A code is valid once, for a day."""
    return await _ask(service, "pair", given, by=caller.by)


@operation("senders allow", "POST /v1/senders:allow", "admin",
           audit=AuditRule("sender.allow", ("sender",), subject="sender", detail=("trust", "person")),
           command=_decided("sender", "let in", "spar senders allow mail:bob@example.org --person bob",
                            has_trust=True))  # fmt: skip
async def allow(service: Service, given: AllowBody, caller: Caller) -> SenderView:
    """Allow a sender (channel:address) by name, without a code."""
    return await _ask(service, "allow", given, by=caller.by)


@operation("senders deny", "POST /v1/senders:deny", "admin",
           audit=AuditRule("sender.deny", ("sender",), subject="sender"),
           command=_decided("sender", "denied", "spar senders deny mail:spam@example.org"))  # fmt: skip
async def deny(service: Service, given: SenderBody, caller: Caller) -> SenderView:
    """Ignore all messages of a sender (channel:address)."""
    return await _ask(service, "deny", given, by=caller.by)


@operation("senders forget", "POST /v1/senders:forget", "admin",
           audit=AuditRule("sender.forget", ("sender",), subject="sender"),
           command=_decided("sender", "forgotten", "spar senders forget mail:bob@example.org"))  # fmt: skip
async def forget(service: Service, given: SenderBody) -> SenderView:
    """Delete the decision about a sender: it is unknown again."""
    return await _ask(service, "forget", given)


# -- tokens


class TokenBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A token's name, its scopes, and its validity in days (null: until it is revoked)."""

    name: str
    scopes: Annotated[
        list[Scope],
        Meta(min_length=1, max_length=20, description="Its rights: read, operate, step, approve, admin (all)."),
    ]
    days: (
        Annotated[float, Meta(gt=0, le=LONGEST_DAYS, description="Validity in days; default: until it is revoked.")]
        | None
    ) = None


class TokenName(Struct, frozen=True, forbid_unknown_fields=True):
    """A token's name."""

    name: str


@operation("tokens list", "GET /v1/tokens", "admin", is_stored=True, command=CommandForm(
    columns=(
        Column("name", "name"), Column("scopes", "scopes", "list"), Column("made", "made_at", "time"),
        Column("by", "by"), Column("last used", "used_at", "time", "never"),
        Column("good until", "expires_at", "time", "it is revoked"),
        Column("", lambda row: "expired" if row.is_expired else ""),
    ),
    empty="no tokens: nobody reaches /v1 over the network",
    examples=("spar tokens list",),
))  # fmt: skip
async def list_tokens(store: AgentStore, given: TimedChoice) -> list[TokenView]:
    """List the tokens, without their secret texts: scopes, creation, last use (to the hour), and validity."""
    return chosen(given, await store.tokens.list(), lambda row: row.made_at)


@operation("tokens create", "POST /v1/tokens", "admin", is_stored=True, status=201,
           audit=AuditRule("token.create", ("token",), subject="name", detail=("scopes", "days")), command=CommandForm(
    arguments=("name",), sentence=lambda given, token: token.token,
    examples=("spar tokens create dashboard --scopes read",
              "spar tokens create chat-bot --scopes read,operate --days 90"),
))  # fmt: skip
async def create(store: AgentStore, given: TokenBody, caller: Caller) -> NewToken:
    """Create a token and return its text, which cannot be read again: only its digest is stored.

    Programs send it as `Authorization: Bearer TOKEN` to /v1 at service.host and service.port. In the audit log their
    actor is `token NAME`."""
    return await store.tokens.create(given.name, given.scopes, days=given.days, by=caller.by)


@operation("tokens revoke", "DELETE /v1/tokens/{name}", "admin", is_stored=True,
           audit=AuditRule("token.revoke", ("token",), subject="name"),
           command=effect_form("revoked", lambda token: token.name, "spar tokens revoke dashboard"))  # fmt: skip
async def revoke(store: AgentStore, given: TokenName) -> TokenView:
    """Revoke a token: it becomes invalid, and the streams that it has opened end."""
    return await store.tokens.revoke(given.name)
