"""Values that flow through a cycle, immutable, each with a reference to the value that it came from.

    Perception → Action(calls) → ActionResult(results) → Reflection(experiences)

`Action.perceptions`, `ActionResult.action` and `Reflection.result` lead back to the origin of a value, so each phase
needs only what the phase before it returned. They are `msgspec.Struct`s because every cycle makes one of each and the
store keeps all of them as they are. Wall times are aware UTC datetimes; durations are float seconds.

values    words of closed sets, faults, perceptions, messages to the context, remedies, feedback
cycle     calls, their results, verdicts of people; the decision of a plan and its result; lessons; record of a cycle
slotted   classes of mutable values whose fields are written often
"""

from typing import TYPE_CHECKING

from spar.lazy import lazy

if TYPE_CHECKING:
    from msgspec.structs import replace as replace

    from spar.types.cycle import *
    from spar.types.values import *

HOMES = {
    "msgspec.structs": "replace",
    "spar.types.cycle": (
        "ASKED RETIRED_AFTER SERVICE_KEYS Ability Action ActionResult Answer Call CallFailure CallResult "
        "CycleRecord Experience Reflection RunUsage Verdict answering copy_with count_calls least_trust trust_of "
        "was_misled without_service_keys"
    ),
    "spar.types.values": (
        "ACTION_STATUSES CALL_STATUSES OUTCOMES PHASES QUEUE_MODES ActionStatus Advised CallStatus Credit Fault "
        "Feedback FeedbackSource Learning Learnt Message Outcome OutputMethod Perception Phase QueueMode Reasoning "
        "Remedy RemedyAction TriedCall Trust trait utcnow"
    ),
}
__all__, __getattr__ = lazy(__name__, HOMES)
