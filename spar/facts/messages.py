"""Facts of messages and perceptions: from their acceptance to the run or cycle that takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from spar.facts.fact import Fact
from spar.records.journal import Item
from spar.records.run_options import NO_OPTIONS, RunOptions
from spar.records.session import SessionUse
from spar.types import Perception

#: The queue in which a message waits: at its end, at its front, for the current run, or for others to join it.
MessagePlace = Literal["queue", "front", "steer", "collect"]
#: What becomes of a message.
Outcome = Literal["queued", "started", "steered", "collected", "interrupting", "dropped"]

#: The attribute that marks a message as a command. Only the agent sets it.
COMMAND: Final = "command"
#: The most gists of dropped messages that wait to be told; the oldest go.
MOST_GISTS: Final = 50


class WorkAccepted(Fact, frozen=True, kw_only=True):
    """Work was accepted: it is on disk before its sender hears so. `use` is the use of its session, None if no message
    came there."""

    item: Item
    use: SessionUse | None = None


class WorkChanged(Fact, frozen=True, kw_only=True):
    """Accepted work is now known like this; or it was accepted, and nobody waits for the disk."""

    item: Item


class WorkLeft(Fact, frozen=True, kw_only=True):
    """Accepted work, work put aside, calls in doubt and calls without a cycle are left to the next start, which finds
    them in the journal."""

    items: tuple[str, ...]


class PerceptionAccepted(Fact, frozen=True, kw_only=True):
    """A perception waits for the next cycle of its session."""

    perception: Perception


class MessageAccepted(Fact, frozen=True, kw_only=True):
    """A message became a run. `options` are those of its sender, `defaults` those of its session. `verifies` says
    whether an answer about failed calls is asked for once more.

    The other fields are set for a run that an earlier process worked on: the number of its cycles so far, the answer
    that it gave together with failed calls, the amounts that it used, the seconds that it waited for its provider, and
    the number of failed plans in a row.
    """

    run: str
    perception: Perception
    options: RunOptions = NO_OPTIONS
    defaults: RunOptions = NO_OPTIONS
    verifies: bool = True
    results: int = 0
    output: Any = None
    used: Mapping[str, int] = {}
    waited: float = 0.0
    failures: int = 0


class MessagePlaced(Fact, frozen=True, kw_only=True):
    """A message waits in a queue. `is_interrupting` says that a newer interrupting message will replace it; `outcome`
    what its sender is told, "" for nothing."""

    run: str
    place: MessagePlace
    is_interrupting: bool = False
    outcome: Literal["", "queued", "interrupting"] = ""


class MessageAbsorbed(Fact, frozen=True, kw_only=True):
    """A message joined another run and ends with it. `is_new` says that the planner still has to be given it."""

    run: str
    into: str
    outcome: Literal["steered", "collected"] = "steered"
    is_new: bool = True


class MessagesJoined(Fact, frozen=True, kw_only=True):
    """The collected messages of a run that has begun became one message."""

    run: str
    message: Perception


class MessageDropped(Fact, frozen=True, kw_only=True):
    """A message left its queue for lack of room. `gist` is what the next run is told of it; None for nothing."""

    run: str
    gist: Perception | None = None


class DroppedTold(Fact, frozen=True, kw_only=True):
    """The gists of dropped messages became a message of a run; `run` is empty if the conversation ended before."""

    run: str = ""
    message: Perception | None = None
