"""Facts: what happened to the work of an agent, and will not change.

A *fact* is something that happened. It names its session and has a place in the order of that session's facts. The
class of a fact is named by what happened, in the past tense. `spar.state` adds up the facts of a session to its state;
some change no state: only the journal has them.
A *message* is a perception for which a *run* works out an answer; both have the run's id. An *item* is accepted work
with an id of its own: the message of a run, or a perception. A *place* is the queue in which a message waits.

`cycle` is the id of a cycle; in a fact of a call that of the action if an actor carries it out without a cycle. Facts
of the agent itself are in the state of no session.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal, Self

from msgspec import Struct, field

from spar.data.reply import End
from spar.records.journal import Closing, DeadLetter, Doubt, Item, RowChange, Spend, Unfinished
from spar.records.session import Reset, SessionUse
from spar.records.transcript import Entry
from spar.types import Action, Call, CallResult, Credit, Feedback, Perception, utcnow


class Fact(Struct, frozen=True, tag=True, kw_only=True):
    """Something that happened in a session. Its place in the order of that session's facts is when it is told."""

    session: str


class LocalFact(Fact, frozen=True, kw_only=True):
    """Fact that no later process needs: no journal is given it."""


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


class WorkLeft(LocalFact, frozen=True, kw_only=True):
    """Accepted work, work put aside, calls in doubt and calls without a cycle are left to the next start, which finds
    them in the journal."""

    items: tuple[str, ...]


class PerceptionAccepted(LocalFact, frozen=True, kw_only=True):
    """A perception waits for the next cycle of its session."""

    perception: Perception


class MessageAccepted(LocalFact, frozen=True, kw_only=True):
    """A message became a run: its `item`, which has what an earlier process knew of the run.

    `verifies` says whether an answer about failed calls is asked for once more, `results` is the number of its cycles
    in an earlier process.
    """

    item: Item
    verifies: bool = True
    results: int = 0


class MessagePlaced(LocalFact, frozen=True, kw_only=True):
    """A message waits in a queue. `is_interrupting` says that a newer interrupting message will replace it; `outcome`
    what its sender is told, "" for nothing."""

    run: str
    place: MessagePlace
    is_interrupting: bool = False
    outcome: Literal["", "queued", "interrupting"] = ""


class MessageAbsorbed(LocalFact, frozen=True, kw_only=True):
    """A message joined another run and ends with it. `is_new` says that the planner still has to be given it."""

    run: str
    into: str
    outcome: Literal["steered", "collected"] = "steered"
    is_new: bool = True


class MessagesJoined(LocalFact, frozen=True, kw_only=True):
    """The collected messages of a run that has begun became one message."""

    run: str
    message: Perception


class MessageDropped(LocalFact, frozen=True, kw_only=True):
    """A message left its queue for lack of room. `gist` is what the next run is told of it; None for nothing."""

    run: str
    gist: Perception | None = None


class DroppedTold(LocalFact, frozen=True, kw_only=True):
    """The gists of dropped messages became a message of a run; `run` is empty if the conversation ended before."""

    run: str = ""
    message: Perception | None = None


class RunBegan(LocalFact, frozen=True, kw_only=True):
    """A run began, or began again in a new process."""

    run: str


class Spent(LocalFact, frozen=True, kw_only=True):
    """A run used these amounts, by quantity."""

    run: str
    amounts: Mapping[str, int]


class RunFinished(LocalFact, frozen=True, kw_only=True):
    """A run ended, with its answer or an error."""

    run: str
    end: End


class RunAnswered(Fact, frozen=True, kw_only=True):
    """The answer of a run that ended, as people can ask for it, unless the end of its cycle has it."""

    run: str
    answer: Any


class AnswerChanged(Fact, frozen=True, kw_only=True):
    """Hooks changed the answer of a run after its end."""

    run: str
    answer: Any


class RetryPlanned(Fact, frozen=True, kw_only=True):
    """Failed work waits until `item.due_at` for its next attempt; `item.attempts` counts those so far."""

    item: Item


class PutAside(Fact, frozen=True, kw_only=True):
    """Work was put aside after too many attempts, until a person decides about it."""

    item: Item
    reason: str


class LetterAnswered(Fact, frozen=True, kw_only=True):
    """A person decided about work that had been put aside: it is tried again, or dropped."""

    letter: DeadLetter
    is_tried_again: bool


class ConversationReset(Fact, frozen=True, kw_only=True):
    """The conversation of a session ended. One that has ended already is not ended again.

    `entries` are those of its runs, before the entry of the reset; from now on, entries of earlier runs are refused.
    `cut` is the current cycle as the next process shall see it; None for none.
    """

    reset: Reset
    entries: tuple[Entry, ...] = ()
    cut: Unfinished | None = None


class AgentPaused(Fact, frozen=True, kw_only=True):
    """The agent begins no cycle until it is resumed, also in the next process."""

    session: str = ""
    at: datetime


class AgentResumed(Fact, frozen=True, kw_only=True):
    """The pause of the agent is over."""

    session: str = ""
    at: datetime


class ValueSaved(Fact, frozen=True, kw_only=True):
    """A small value is another from now on, as `DurableStore.save` says."""

    session: str = ""
    key: str
    value: Any


class RowsChanged(Fact, frozen=True, kw_only=True):
    """Small rows changed, in order, all or none.

    `cycle` is an open cycle: the rows then become durable with its decision or its end, and not at all if it is cut off
    before; "" for none.
    """

    session: str = ""
    changes: tuple[RowChange, ...]
    cycle: str = ""


class TotalsCounted(Fact, frozen=True, kw_only=True):
    """Totals of the agent's counts, in place of all that was written of them before."""

    session: str = ""
    total: Mapping[str, Any]


class BudgetUsed(Fact, frozen=True, kw_only=True):
    """Budgets were used by these amounts, which may be negative.

    A sum stays within 0 and 2**60; within them nothing is rounded or lost.
    """

    session: str = ""
    spends: tuple[Spend, ...]


class Judged(Fact, frozen=True, kw_only=True):
    """Credits for what helped and harmed, and feedback on cycles and runs that have ended.

    The end of a cycle has its own in its `Closing`.
    """

    session: str = ""
    credits: tuple[Credit, ...] = ()
    feedback: tuple[Feedback, ...] = ()


#: What became of the plan of a cycle: it was made; it failed; the planner waits for its provider; a hook refused the
#: cycle; the actor must not continue the run; the cycle was cut off; it did not come so far.
PlanOutcome = Literal["made", "failed", "deferred", "refused", "barred", "cut", "none"]


class WorkHandedOut(LocalFact, frozen=True, kw_only=True):
    """Interrupted or failed work waits for a cycle of its own.

    `work` is the id of the `cycle` to continue, or of the item to deal with again; `run` is its run. `is_suspect` says
    that it may have killed a process; such work is tried one piece at a time.
    """

    work: str
    run: str = ""
    cycle: Unfinished | None = None
    is_suspect: bool = False

    @property
    def items(self) -> tuple[str, ...]:
        """Return the ids of the accepted work that it was begun on."""
        return (self.work,) if self.cycle is None else self.cycle.items


class WorkTaken(LocalFact, frozen=True, kw_only=True):
    """A cycle took the work that it deals with: interrupted work, or the waiting perceptions and messages of its run.

    `work` is the piece of interrupted work, "" for none. `items` are the ids of the accepted work.
    """

    cycle: str
    run: str = ""
    work: str = ""
    items: tuple[str, ...] = ()


class CycleOpened(Fact, frozen=True, kw_only=True):
    """A cycle noticed something and plans. From here on it is finished, also after a crash.

    `at` is when it began, `attempts` counts its beginnings so far. `cursors` and `changes` are the places and small
    rows of the sensors whose perceptions it takes: one that cannot be stored is reported, and keeps its old value.
    `cursors` is None for a cycle whose session polls no sensors.
    """

    cycle: str
    run: str = ""
    items: tuple[str, ...] = ()
    perceptions: tuple[Perception, ...] = ()
    is_stepped: bool = False
    at: datetime = field(default_factory=utcnow)
    attempts: int = 1
    cursors: Mapping[str, Any] | None = None
    changes: tuple[RowChange, ...] = ()

    @classmethod
    def of(cls, cycle: Unfinished) -> Self:
        """Return the beginning of a cycle as the next process knows it."""
        return cls(session=cycle.session, cycle=cycle.cycle_id, run=cycle.run_id or "", items=cycle.items,
                   perceptions=cycle.perceptions, is_stepped=cycle.is_stepped, at=cycle.opened_at,
                   attempts=cycle.attempts)  # fmt: skip

    @property
    def unfinished(self) -> Unfinished:
        """Return the cycle as the next process needs it."""
        return Unfinished(self.cycle, self.session, self.perceptions, self.items, self.run or None,
                          attempts=self.attempts, opened_at=self.at, is_stepped=self.is_stepped)  # fmt: skip


class CycleReopened(CycleOpened, frozen=True, kw_only=True):
    """An interrupted cycle is about to be continued: this counts as an attempt, whatever happens next."""


class CycleWritten(Fact, frozen=True, kw_only=True):
    """Results of a cycle, and all that becomes durable together with its end."""

    cycle: str
    closing: Closing


class CycleClosed(LocalFact, frozen=True, kw_only=True):
    """A cycle ended.

    `is_put_back` says that its interrupted work waits again. `calls` counts the calls that were attempted, `has_failed`
    says that not all went well. `error` is why the plan failed, was deferred, refused, barred, or cut off by people;
    `is_final` says that the plan shall not be tried again. `requests` is 1 if a model decided. `waits` is the number of
    seconds that its run waits for a provider. `answers` says that the plan gave the answer `output` for now.
    """

    cycle: str
    run: str = ""
    is_put_back: bool = False
    calls: int = 0
    has_failed: bool = False
    plan: PlanOutcome = "none"
    error: str = ""
    is_final: bool = False
    requests: int = 0
    waits: float = 0.0
    answers: bool = False
    output: Any = None


class Planned(Fact, frozen=True, kw_only=True):
    """The plan of a cycle is carried out from now on. `effect` is that of an actor that does not record its calls."""

    cycle: str
    action: Action
    effect: str = ""


class CallsPlanned(Fact, frozen=True, kw_only=True):
    """A plan that is still being written has further calls."""

    cycle: str
    calls: tuple[Call, ...]


class AttemptStarted(Fact, frozen=True, kw_only=True):
    """An attempt at a call begins.

    `effect` is that of its tool. `allowed` is what allowed it: "auto", "retry" or the id of an approval. `values` are
    its parameters if the call itself only refers to them.
    """

    cycle: str
    call: str
    attempt: int
    effect: str
    allowed: str = "auto"
    values: Mapping[str, Any] | None = None


class CallEnded(Fact, frozen=True, kw_only=True):
    """A call ended; `result.output` is what its tool returned, also a `Message`."""

    cycle: str
    result: CallResult


class CallDetached(Fact, frozen=True, kw_only=True):
    """The only call of this action continues, and no cycle waits for it."""

    cycle: str
    action: Action
    effect: str


class CallAttached(Fact, frozen=True, kw_only=True):
    """A detached call ended; its end is a fact like that of any other call."""

    cycle: str
    call: str


class CallDoubted(Fact, frozen=True, kw_only=True):
    """Nobody knows whether a call had its effect."""

    doubt: Doubt


class DoubtAnswered(Fact, frozen=True, kw_only=True):
    """A person said what became of a call in doubt; `again` is the cycle that makes it again, None for none."""

    doubt: Doubt
    again: Unfinished | None = None
