"""Operations on channels and notifiers: their states, undelivered messages, test notices."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Struct

from spar.data.text import one_line
from spar.operations.operation import AuditRule, Column, CommandForm, Nothing, operation

if TYPE_CHECKING:
    from spar.service.app import Service

#: Longest duration of a test of a notifier, in seconds.
LONGEST_TEST: Final = 120.0


class Direction(Struct, frozen=True):
    """State of a channel in one direction: its failures in a row, and the last error."""

    state: str
    failures: int = 0
    last_error: str | None = None


class ChannelState(Struct, frozen=True):
    """State of a channel: its directions, and its numbers of messages; `undelivered` ones are not tried again."""

    receiving: Direction
    sending: Direction
    waiting: int
    undelivered: int
    left_behind: int = 0
    accepted: int = 0
    known: int = 0
    refused: int = 0
    sent: int = 0
    failed: int = 0


class DeliveryRow(Struct, frozen=True):
    """Message that could not be delivered: `failed` is not tried again, `waiting` is."""

    id: str
    channel: str
    address: str
    text: str
    at: datetime
    state: str
    attempts: int
    error: str
    kind: str = "answer"
    session: str = ""
    run_id: str = ""
    sent: int = 0
    reference: str = ""
    reply: dict[str, Any] = {}


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


class TestResult(Struct, frozen=True):
    """Result of a test notice; `error` is "" if it was sent."""

    name: str
    error: str


def _last_errors(state: ChannelState) -> str:
    directions = (state.receiving, state.sending)
    return one_line("; ".join(str(direction.last_error) for direction in directions if direction.state != "ok"), 100)


@operation("channels list", "GET /v1/channels", "read", where="service", command=CommandForm(
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
async def list_channels(service: Service, given: Nothing) -> dict[str, ChannelState]:
    """List the channels by name: whether each receives and sends, and how many messages wait."""
    return cast("dict[str, ChannelState]", service.agent.channels.snapshot())


@operation("channels failed", "GET /v1/deliveries", "read", where="service", command=CommandForm(
    columns=(
        Column("id", "id"), Column("state", "state"), Column("since", "at", "time"), Column("channel", "channel"),
        Column("address", "address"), Column(">tries", "attempts"),
        Column("why", lambda row: one_line(row.error, 60)), Column("text", lambda row: one_line(row.text, 40)),
    ),
    empty="all messages were delivered",
    examples=("spar channels failed",),
))  # fmt: skip
async def undelivered(service: Service, given: Nothing) -> list[DeliveryRow]:
    """List messages that could not be delivered: `failed` ones are not tried again, `waiting` ones are."""
    return cast("list[DeliveryRow]", service.agent.channels.undelivered())


def _settled(verb: str, done: str) -> CommandForm:
    """Return the command of a decision about an undelivered message. Args: done: the words for it."""
    return CommandForm(
        sentence=lambda given, row: f"{done}: {row.id} to {row.address} on {row.channel}",
        examples=(f"spar channels {verb} 18ea256e775307670000245362.9f3a0c1d2e4b",),
    )


@operation("channels retry", "POST /v1/deliveries/{id}:retry", "operate",
           audit=AuditRule("delivery.retry", ("",), subject="id"),
           command=_settled("retry", "tried again"))  # fmt: skip
async def retry(service: Service, given: MessageId) -> DeliveryRow:
    """Try a failed message again."""
    return cast("DeliveryRow", service.agent.channels.holder_of(given.id).retry(given.id))


@operation("channels drop", "POST /v1/deliveries/{id}:drop", "operate",
           audit=AuditRule("delivery.drop", ("",), subject="id"), command=_settled("drop", "dropped"))  # fmt: skip
async def drop(service: Service, given: MessageId) -> DeliveryRow:
    """Delete a failed message: it is never sent."""
    return cast("DeliveryRow", service.agent.channels.holder_of(given.id).drop(given.id))


@operation("notifiers list", "GET /v1/notifiers", "read", where="service", command=CommandForm(
    columns=(
        Column("notifier", "name"), Column(">sent", "sent"), Column(">waiting", "waiting"),
        Column(">given up", "given_up"), Column("last error", lambda row: one_line(row.last_error, 100)),
    ),
    empty="no notifiers are configured ([[notifiers]])",
    examples=("spar notifiers list",),
))  # fmt: skip
async def list_notifiers(service: Service, given: Nothing) -> list[NotifierState]:
    """List the notifiers of alerts, with the numbers of notices that each has sent and that wait."""
    states = service.notices.snapshot() if service.notices is not None else []
    return cast("list[NotifierState]", states)


@operation("notifiers test", "POST /v1/notifiers/{name}:test", "operate", patience=LONGEST_TEST,
           audit=AuditRule("notifier.test", subject="name"))  # fmt: skip
async def test(service: Service, given: NotifierName) -> TestResult:
    """Send a test notice through a notifier now; `error` is "" if it was sent."""
    if service.notices is None:
        raise LookupError("no notifiers are configured")
    return TestResult(given.name, await service.notices.test(given.name))
