"""Rows that nodes leave to the one of them that has the channels and the notifiers, until it has dealt with them.

A node writes a row for each message to people, for each end of a run that a channel began, and for each notice. The
node with the channels takes the rows in order, as if the events were its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from spar.channels.outbox import TurnRows, read_rows
from spar.errors import SparError
from spar.events import MessageSent, RunEnded
from spar.loop.core import Core
from spar.observe.logs import get_logger
from spar.ports.channel import ChannelSpec, Notice
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


class Forwarding:
    """Rows of one agent, which nodes write, and the one with the channels takes in order.

    Args: is_here: whether this node has the channels, and writes none.
    """

    def __init__(self, core: Core, runs: Runs, specs: Sequence[ChannelSpec], rows: TurnRows,
                 is_here: Callable[[], bool]) -> None:  # fmt: skip
        self._core, self._runs, self._rows, self._is_here = core, runs, rows, is_here
        self._specs = {spec.name: spec for spec in specs}
        self._taken: set[str] = set()  # keys that the last look found
        subscribe = core.events.subscribe
        self._subscriptions = (
            [subscribe(MessageSent, self._on_message), subscribe(RunEnded, self._on_run_ended)] if specs else []
        )

    def close(self) -> None:
        """Write no more rows."""
        for unsubscribe in self._subscriptions:
            unsubscribe()

    def put(self, forwarded: Forwarded) -> None:
        """Leave something to the node with the channels."""
        self._rows.keep(self._core.clock.new_id(), forwarded)

    async def take(self, answers: Answers, notifiers: Mapping[str, Any]) -> None:
        """Deal with all rows, for ever, and settle the answers of nodes that have ended. Args: notifiers: by name."""
        ended: set[str] = set()
        for look in count():
            await self._core.clock.sleep(LOOK_EVERY)
            try:
                rows = await self._rows.list()
                for key in sorted(rows.keys() - self._taken):
                    self._taken.add(key)  # one that fails is dealt with again by the next node, or at the next start
                    self._deal(key, rows[key], answers, notifiers)
                self._taken &= rows.keys()
                if look % LOOKS == 0:
                    ended = await answers.settle_ended(ended)
            except SparError:  # the store cannot be read now
                continue
            except Exception as error:
                log.error("message of another node not dealt with", type=type(error).__name__, reason=str(error))

    def _deal(self, key: str, row: Any, answers: Answers, notifiers: Mapping[str, Any]) -> None:
        for forwarded in read_rows({key: row}, "", Forwarded):
            if forwarded.message is not None:
                answers.send(forwarded.message, key)
            elif forwarded.notice is None:
                answers.end(forwarded.run_id, forwarded.reply, forwarded.into)
            elif (notifier := notifiers.get(forwarded.to)) is not None:
                notifier.add(forwarded.notice)
            self._rows.drop(key)

    def _on_message(self, event: MessageSent) -> None:
        if not self._is_here() and self._may_concern(event):
            self.put(Forwarded(event))

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
            self.put(Forwarded(run_id=event.run_id, reply=event.reply, into=run.state.into))
