"""Names of situations, and the known ability of a tool in a situation.

situations   the names of situations, from the exact to the general
posterior    the numbers of an ability: evidence, and how it fades
known        abilities by tool and task, as they are now
"""

from spar.records.abilities.known import (
    MOST_COMPARED,
    AgedAbilities,
    KnownAbilities,
    ReadAbilities,
    ability_key,
    halvings_at,
    known_of,
    tools_at,
)
from spar.records.abilities.posterior import (
    ENOUGH_TRIALS,
    PRIOR_WEIGHT,
    aged,
    deviation_of,
    evidence_of,
    is_known,
    mean_of,
    merged,
    share_left,
    weakened,
)
from spar.records.abilities.situations import (
    MOST_ENTITIES,
    is_exact,
    is_of_strangers,
    kind_of_task,
    looked_up,
    names_of,
    of_strangers,
    reported_entities,
    reported_kind,
    situation_of,
    task_name,
    thing_named,
    things_of,
    whoever,
    wording,
)

__all__ = [
    "ENOUGH_TRIALS",
    "MOST_COMPARED",
    "MOST_ENTITIES",
    "PRIOR_WEIGHT",
    "AgedAbilities",
    "KnownAbilities",
    "ReadAbilities",
    "ability_key",
    "aged",
    "deviation_of",
    "evidence_of",
    "halvings_at",
    "is_exact",
    "is_known",
    "is_of_strangers",
    "kind_of_task",
    "known_of",
    "looked_up",
    "mean_of",
    "merged",
    "names_of",
    "of_strangers",
    "reported_entities",
    "reported_kind",
    "share_left",
    "situation_of",
    "task_name",
    "thing_named",
    "things_of",
    "tools_at",
    "weakened",
    "whoever",
    "wording",
]
