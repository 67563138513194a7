"""Values that flow through a cycle, immutable, each with a reference to the value that it came from.

    Perception → Action(calls) → ActionResult(results) → Reflection(experiences)

`Action.perceptions`, `ActionResult.action` and `Reflection.result` lead back to the origin of a value, so each phase
needs only what the phase before it returned. They are `msgspec.Struct`s because every cycle makes one of each and the
store keeps all of them as they are. Wall times are aware UTC datetimes; durations are float seconds.

literals      the closed sets of words: phases, outcomes, states
value         the base of all values
fault         an error as data
perception    what a sensor noticed or a person said; messages to the context
learning      remedies, tried calls, feedback, decisions that memory changed
action        calls, their results, verdicts of people; the decision of a plan, and its result
reflection    lessons of a result; the record of a cycle
"""

from msgspec.structs import replace

from spar.checks import copy_with
from spar.types.action import (
    ASKED,
    SERVICE_KEYS,
    Action,
    ActionResult,
    Answer,
    Call,
    CallFailure,
    CallResult,
    RunUsage,
    Verdict,
    count_calls,
    without_service_keys,
)
from spar.types.fault import Fault
from spar.types.learning import (
    Advised,
    Credit,
    Feedback,
    FeedbackSource,
    Learning,
    Learnt,
    Remedy,
    RemedyAction,
    TriedCall,
)
from spar.types.literals import (
    ACTION_STATUSES,
    CALL_STATUSES,
    OUTCOMES,
    PHASES,
    QUEUE_MODES,
    ActionStatus,
    CallStatus,
    Outcome,
    OutputMethod,
    Phase,
    QueueMode,
    Reasoning,
    Trust,
)
from spar.types.perception import Message, Perception
from spar.types.reflection import RETIRED_AFTER, Ability, CycleRecord, Experience, Reflection
from spar.types.value import utcnow

__all__ = [
    "ACTION_STATUSES",
    "ASKED",
    "CALL_STATUSES",
    "OUTCOMES",
    "PHASES",
    "QUEUE_MODES",
    "RETIRED_AFTER",
    "SERVICE_KEYS",
    "Ability",
    "Action",
    "ActionResult",
    "ActionStatus",
    "Advised",
    "Answer",
    "Call",
    "CallFailure",
    "CallResult",
    "CallStatus",
    "Credit",
    "CycleRecord",
    "Experience",
    "Fault",
    "Feedback",
    "FeedbackSource",
    "Learning",
    "Learnt",
    "Message",
    "Outcome",
    "OutputMethod",
    "Perception",
    "Phase",
    "QueueMode",
    "Reasoning",
    "Reflection",
    "Remedy",
    "RemedyAction",
    "RunUsage",
    "TriedCall",
    "Trust",
    "Verdict",
    "copy_with",
    "count_calls",
    "replace",
    "utcnow",
    "without_service_keys",
]
