"""Rows that nodes leave to the one of them that has the channels and the notifiers, until it has dealt with them.

A node writes a row for each message to people, for each end of a run that a channel began, and for each notice. The
node with the channels takes the rows in order, as if the events were its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from spar.bus.subscriptions import Subscription
from spar.channels.outbox import TurnRows
from spar.clock import Clock
from spar.decoding import convert
from spar.errors import SparError
from spar.events import MessageSent, RunEnded
from spar.loop.core import Core
from spar.observe.logs import get_logger
from spar.ports.channel import ChannelSpec
from spar.ports.notifier import Notice
from spar.runs.runs import Runs

if TYPE_CHECKING:
    from spar.channels.answers import Answers

log = get_logger("spar.channels")

#: Seconds between two looks at what other nodes have left, and how many of them are one at runs that have ended.
LOOK_EVERY: Final = 0.5
LOOKS: Final = 10


class Forwarded(Struct, frozen=True):
    """Message to people; or the end of a run, whose answer is `reply`, and which was merged into the run `into`; or a
    notice for the notifier `to`."""

    message: MessageSent | None = None
    run_id: str = ""
    reply: str | None = None
    into: str = ""
    to: str = ""
    notice: Notice | None = None


class ForwardedRows:
    """Rows in the order in which nodes have written them."""

    def __init__(self, clock: Clock, rows: TurnRows) -> None:
        self._clock, self._rows = clock, rows
        self._taken: set[str] = set()  # keys that the last look found

    def put(self, forwarded: Forwarded) -> None:
        """Leave something to the node that takes it."""
        self._rows.keep(self._clock.new_id(), forwarded)

    async def follow(
        self, deal: Callable[[str, Forwarded], object], then: Callable[[int], Awaitable[object]] | None = None
    ) -> None:
        """Have all rows dealt with, for ever. Args: deal: gets each row with its key; then: is called after each look,
        with its number."""
        for look in count():
            await self._clock.sleep(LOOK_EVERY)
            with suppress(SparError):  # the store cannot be read now
                await self._take(deal)
                if then is not None:
                    await then(look)

    async def _take(self, deal: Callable[[str, Forwarded], object]) -> None:
        rows = await self._rows.list()
        for key in sorted(rows.keys() - self._taken):
            try:
                deal(key, convert(rows[key], Forwarded))
            except msgspec.ValidationError as error:
                log.error("row cannot be read", key=key, reason=str(error))
            else:
                self._rows.drop(key)
        self._taken = set(rows)


class Forwarding:
    """Messages to people and ends of runs that this node leaves to the one that has the channels."""

    def __init__(self, core: Core, runs: Runs, specs: Sequence[ChannelSpec], rows: TurnRows) -> None:
        self._core, self._runs = core, runs
        self._specs = {spec.name: spec for spec in specs}
        self._is_here: Callable[[], bool] = lambda: True
        self._subscriptions: list[Subscription] = []
        self.rows = ForwardedRows(core.clock, rows)

    def open(self, is_here: Callable[[], bool]) -> None:
        """Begin to write rows. Args: is_here: whether this node has the channels, and needs none."""
        self._is_here, subscribe = is_here, self._core.events.subscribe
        self._subscriptions = [subscribe(MessageSent, self._on_message), subscribe(RunEnded, self._on_run_ended)]

    def close(self) -> None:
        """Write no more rows."""
        for unsubscribe in self._subscriptions:
            unsubscribe()

    async def take(self, answers: Answers) -> None:
        """Have the answers of this node, which has the channels, take what others leave, and settle those of nodes that
        have ended."""
        ended: set[str] = set()

        def deal(key: str, forwarded: Forwarded) -> None:
            if forwarded.message is not None:
                answers.send(forwarded.message, key)
            else:
                answers.end(forwarded.run_id, forwarded.reply, forwarded.into)

        async def settle(look: int) -> None:
            nonlocal ended
            if look % LOOKS == 0:
                ended = await answers.settle_ended(ended)

        await self.rows.follow(deal, settle)

    def _on_message(self, event: MessageSent) -> None:
        if not self._is_here() and self._may_concern(event):
            self.rows.put(Forwarded(event))

    def _may_concern(self, event: MessageSent) -> bool:
        """Return whether a message may be for people on a channel; they have no thoughts and answers of other runs."""
        run = self._runs.find(event.run_id)
        spec = self._specs.get(run.message.source) if run is not None else None
        if event.kind == "reasoning":
            return spec is not None and spec.reasoning
        return spec is not None or not event.is_answer or run is None or run.message.source != "message"

    def _on_run_ended(self, event: RunEnded) -> None:
        run = self._runs.find(event.run_id)
        if not self._is_here() and run is not None and run.message.source in self._specs:
            self.rows.put(Forwarded(run_id=event.run_id, reply=event.reply, into=run.state.into))
