"""Optional ports of parts: one Protocol of one to three members for each ability that a part may offer besides its
phase, and `offers`, which tells whether a part has one.

The core does not call a port that a part lacks. A method may be a plain function where nothing else is stated; a method
that is awaited is declared `async`. The ports of a store are in `spar.ports.store`.

any_part  tells whether a part has a port; ports of any part
sense     ports of a sense module
plan      ports of a planner
act       ports of an actor, its approvals and its tools, and of a reflector
"""

from spar.ports.optional.act import (
    Abandonable,
    AcceptsTools,
    BringsUntrusted,
    ClosesQuestions,
    EndsConversations,
    HasApprovals,
    HasTerms,
    HasTools,
    HearsFeedback,
    HoldsCalls,
    HoldsQuestions,
    ListsAtOnce,
    StatesEffect,
    StatesJournal,
    TakesOver,
    TellsInterrupted,
    ToolSource,
)
from spar.ports.optional.any_part import Attachable, Named, Plugin, Sheddable, TellsListeners, Watchable, offers
from spar.ports.optional.plan import (
    ClosableStream,
    Degradable,
    ExplainsRules,
    NamesModels,
    Restorable,
    RuleLook,
    ShowsPrompt,
    StatesDegradation,
    StatesRules,
    TakesOptions,
)
from spar.ports.optional.sense import (
    ChangesCycleRows,
    ChangesRows,
    Examines,
    Hears,
    IncidentsKept,
    KeepsCursors,
    KeepsIncidents,
    Learns,
    ListsStoredExamples,
    Perceives,
    RestoresSensors,
    Settles,
)

__all__ = [
    "Abandonable",
    "AcceptsTools",
    "Attachable",
    "BringsUntrusted",
    "ChangesCycleRows",
    "ChangesRows",
    "ClosableStream",
    "ClosesQuestions",
    "Degradable",
    "EndsConversations",
    "Examines",
    "ExplainsRules",
    "HasApprovals",
    "HasTerms",
    "HasTools",
    "Hears",
    "HearsFeedback",
    "HoldsCalls",
    "HoldsQuestions",
    "IncidentsKept",
    "KeepsCursors",
    "KeepsIncidents",
    "Learns",
    "ListsAtOnce",
    "ListsStoredExamples",
    "Named",
    "NamesModels",
    "Perceives",
    "Plugin",
    "Restorable",
    "RestoresSensors",
    "RuleLook",
    "Settles",
    "Sheddable",
    "ShowsPrompt",
    "StatesDegradation",
    "StatesEffect",
    "StatesJournal",
    "StatesRules",
    "TakesOptions",
    "TakesOver",
    "TellsInterrupted",
    "TellsListeners",
    "ToolSource",
    "Watchable",
    "offers",
]
