"""Facts: what happened to the work of an agent, and will not change.

fact        the base of all facts: the session
messages    messages and perceptions: accepted, placed, absorbed, dropped
runs        runs: begun, ended, what they used
cycles      cycles: the work that each took, what it noticed, how it closed; interrupted work
calls       calls: planned, started, ended, continued without their cycle, in doubt
sessions    failed work: its retries, its end as a dead letter; conversations
agent       the agent itself: small state, counts, budgets

A *fact* is something that happened. It names its session and has a place in the order of that session's facts. The
class of a fact is named by what happened, in the past tense. `spar.state` adds up the facts of a session to its state;
some change no state: only the journal has them.
A *message* is a perception for which a *run* works out an answer; both have the run's id. An *item* is accepted work
with an id of its own: the message of a run, or a perception. A *place* is the queue in which a message waits.
"""

from spar.facts.agent import BudgetUsed, Judged, RowsChanged, TotalsCounted, ValueSaved
from spar.facts.calls import (
    AttemptStarted,
    CallAttached,
    CallDetached,
    CallDoubted,
    CallEnded,
    CallsPlanned,
    DoubtAnswered,
    Planned,
)
from spar.facts.cycles import CycleClosed, CycleOpened, CycleReopened, CycleWritten, WorkHandedOut, WorkTaken
from spar.facts.fact import Fact
from spar.facts.messages import (
    DroppedTold,
    MessageAbsorbed,
    MessageAccepted,
    MessageDropped,
    MessagePlaced,
    MessagesJoined,
    PerceptionAccepted,
    WorkAccepted,
    WorkChanged,
    WorkLeft,
)
from spar.facts.runs import AnswerChanged, RunAnswered, RunBegan, RunFinished, Spent
from spar.facts.sessions import (
    ConversationReset,
    LetterAnswered,
    PutAside,
    RetryPlanned,
)

__all__ = [
    "AnswerChanged",
    "AttemptStarted",
    "BudgetUsed",
    "CallAttached",
    "CallDetached",
    "CallDoubted",
    "CallEnded",
    "CallsPlanned",
    "ConversationReset",
    "CycleClosed",
    "CycleOpened",
    "CycleReopened",
    "CycleWritten",
    "DoubtAnswered",
    "DroppedTold",
    "Fact",
    "Judged",
    "LetterAnswered",
    "MessageAbsorbed",
    "MessageAccepted",
    "MessageDropped",
    "MessagePlaced",
    "MessagesJoined",
    "PerceptionAccepted",
    "Planned",
    "PutAside",
    "RetryPlanned",
    "RowsChanged",
    "RunAnswered",
    "RunBegan",
    "RunFinished",
    "Spent",
    "TotalsCounted",
    "ValueSaved",
    "WorkAccepted",
    "WorkChanged",
    "WorkHandedOut",
    "WorkLeft",
    "WorkTaken",
]
