"""Operations on channels and notifiers: their states, undelivered messages, tests."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

from msgspec import Meta, Struct

from spar.data.text import one_line
from spar.decoding import convert
from spar.operations.operation import (
    NOT_RUNNING,
    AgentStore,
    AuditRule,
    Column,
    CommandForm,
    RowsChoice,
    TimedChoice,
    chosen,
    effect_form,
    operation,
)
from spar.records.senders import ChannelState, Delivery, Direction

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
