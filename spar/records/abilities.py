"""Abilities by tool and task, as they are now, and the names of situations.

A trial at a task fades the evidence of all tools there. So that it costs one row however many tools are known, a task
counts how often its trials have halved evidence, and each ability remembers that number as of its own last trial: the
difference is what it has faded by, and is applied when it is read.

An `Ability` is a prior that does not fade, plus evidence. The evidence halves with each half-life, and fades with each
trial at the task, of whatever tool. The mean m and the standard deviation s of a Beta distribution give its weight,
m(1-m)/s² - 1, and so the evidence behind an ability.

The name of a situation consists of the kind of perception, its intent, what it is about, and the rule that deals with
it: `alert.disk/report[nginx,web1]#clean`. Lessons are stored under each of its names, from the exact to the general:
experience with exactly these things is used once there is enough of it, and until then that of the rule with any
things, of all tasks of this kind and intent, or of this kind. Abilities, cases and lessons use the same names. Trials
that strangers influenced count under separate names, `untrusted:alert.disk`, which only decisions about untrusted
perceptions use: nobody can raise or lower a tool's ability for others by what he sends.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Reversible, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from typing import Any, Final

from msgspec import Struct, field

from spar.clock import Clock
from spar.types import Ability, Perception, replace

#: Prefix of the names for trials that strangers influenced.
_OF_STRANGERS = "untrusted:"
#: Most characters of one part of a name; a longer one is shortened to its beginning and a digest.
_LONGEST = 80
#: Most entities in the name of a situation, and most characters of each.
MOST_ENTITIES = 4
_LONGEST_ENTITY = 60
#: Kind of people's messages: they can be about anything, and the sender does not say what a message is about.
_MESSAGE = "message"
_WORD = re.compile(r"\w+")
#: Characters that separate the parts of a name, with their replacements inside the parts.
_APART = str.maketrans("[]#,", "()._")


def situation_of(perception: Perception, rule: str = "") -> str:
    """Return the most exact name of the situation that a perception reports, for the rule that deals with it."""
    return task_name(reported_kind(perception), perception.intent, rule, reported_entities(perception))


def task_name(kind: str, intent: str = "", rule: str = "", entities: Sequence[str] = ()) -> str:
    """Return the most exact name of a task, with at most `MOST_ENTITIES` of its entities in alphabetical order."""
    name = "/".join([_part(part).translate(_APART) for part in (kind, intent) if part])
    if things := sorted({thing_named(entity) for entity in entities[:MOST_ENTITIES]} - {""}):
        name = f"{name}[{','.join(things)}]"
    return f"{name}#{_part(rule)}" if rule else name


def reported_kind(perception: Perception) -> str:
    """Return the kind of a perception; for the notice of an incident, that of the perception which caused it."""
    return _cause_of(perception).kind


def reported_entities(perception: Perception) -> Sequence[str]:
    """Return what a perception is about: the `entities` of its attributes, or else its subject if that is a name.

    A subject is a name if it is one short word. A file path or a web address differs each time, and so would every
    situation.
    """
    cause = _cause_of(perception)
    if cause.kind == _MESSAGE:
        return ()
    if entities := tuple(_texts(cause.attributes.get("entities"))):
        return entities
    subject = cause.subject or ""
    is_name = 0 < len(subject) <= _LONGEST_ENTITY and len(subject.split()) == 1 and "/" not in subject
    return (subject,) if is_name and not cause.kind.startswith("log.") else ()


def kind_of_task(task: str) -> str:
    """Return the name of a task by kind and intent: without the rule, and without what it is about."""
    name = task.partition("#")[0]
    return name.rpartition("[")[0] if name.endswith("]") and "[" in name else name


def things_of(task: str) -> Sequence[str]:
    """Return the names of what a task is about, as they stand in its name."""
    name = task.partition("#")[0]
    return tuple(name[name.rindex("[") + 1 : -1].split(",")) if name.endswith("]") and "[" in name else ()


def thing_named(text: str) -> str:
    """Return the form of an entity in the names of tasks."""
    return _part(text, _LONGEST_ENTITY).translate(_APART)


@lru_cache(maxsize=1024)
def names_of(task: str) -> Sequence[str]:
    """Return the names of a task, the most exact first: in full, without entities, without its rule, by its kind
    alone."""
    general, rule = kind_of_task(task), task[len(task.partition("#")[0]) :]
    return tuple(dict.fromkeys((task, f"{general}{rule}", general, general.partition("/")[0])))


def of_strangers(task: str) -> str:
    """Return the name under which a trial at this task counts if strangers influenced it."""
    return task if is_of_strangers(task) else f"{_OF_STRANGERS}{task}"


def is_of_strangers(task: str) -> bool:
    """Return whether a name is one for trials that strangers influenced."""
    return task.startswith(_OF_STRANGERS)


def whoever(task: str) -> str:
    """Return the name of a task without the prefix for strangers."""
    return task.removeprefix(_OF_STRANGERS)


def looked_up(task: str) -> Sequence[str]:
    """Return the names that a decision at a task uses, the most exact first.

    For tasks of strangers, each name is followed by the same name without the prefix, because trusted trials count as
    well; never the other way round.
    """
    names = names_of(task)
    if not is_of_strangers(task):
        return names
    return tuple(name for both in zip(names, names_of(whoever(task)), strict=True) for name in both)


def is_exact(task: str) -> bool:
    """Return whether a task name contains what the task is about: the number of such names is unbounded."""
    return "[" in task.partition("#")[0]


def wording(text: str) -> str:
    """Return the words of a text for the comparison of situations: in lower case, with "#" for each word with a digit,
    since such words differ each time."""
    words = (word.casefold() for word in _WORD.findall(text))
    return " ".join("#" if any(character.isdigit() for character in word) else word for word in words)


def _cause_of(perception: Perception) -> Perception:
    if not perception.kind.startswith("incident."):
        return perception
    return next((part for part in perception.evidence if part.id == perception.id), perception)


def _texts(names_or_table: object) -> Iterator[str]:
    """Yield the first names of a list, or of a table of lists by kind, as an incident has it."""
    if isinstance(names_or_table, Mapping):
        names_or_table = [
            next(iter(names), None) for names in names_or_table.values() if isinstance(names, (list, tuple))
        ]
    if isinstance(names_or_table, (list, tuple)):
        yield from (name for name in names_or_table[:MOST_ENTITIES] if isinstance(name, str) and name)


def _part(text: str, longest: int = _LONGEST) -> str:
    if len(text) <= longest and text.isprintable() and " " not in text:
        return text  # most parts are one short word
    plain = " ".join(
        "".join(character if character.isprintable() else " " for character in text[: 4 * longest]).split()
    )
    if len(text) <= longest:
        return plain
    return f"{plain[: longest - 13]}…{blake2b(text.encode(errors='replace'), digest_size=6).hexdigest()}"


#: Number of trials from which on the experience with a more exact name is enough.
ENOUGH_TRIALS: Final = 5
#: Weight of a prior, in trials: with a prior of 0.5 it is the flat Beta(1, 1).
PRIOR_WEIGHT: Final = 2.0
#: Least evidence, in trials, for a known ability; with less it has faded.
_LEFT: Final = 1.0
#: Evidence, in trials, that counts as none: an ability that would lose so little with time is left as it is.
_NOTHING: Final = 0.01
#: Most tools of one task that are compared: of the others hardly any evidence is left.
MOST_COMPARED: Final = 24


# -- the numbers of one ability: a Beta posterior, its evidence, and how that fades


def is_known(ability: Ability) -> bool:
    """Return whether enough is known of a tool: it was tried often enough, and not all of the evidence has faded."""
    return ability.trials >= ENOUGH_TRIALS and sum(evidence_of(ability)) >= _LEFT


def mean_of(alpha: float, beta: float) -> float:
    return alpha / (alpha + beta)


def deviation_of(alpha: float, beta: float) -> float:
    weight = alpha + beta
    return math.sqrt(alpha * beta / (weight * weight * (weight + 1)))


def evidence_of(ability: Ability | None, prior: float = 0.5, longest: float = math.inf) -> tuple[float, float]:
    """Return the successes and failures behind an ability, at least 0 and together at most `longest`.

    Never raises: numbers that cannot be a posterior count as no evidence.
    """
    if ability is None or not (0 < ability.estimate < 1 and 0 < ability.uncertainty < 0.5):
        return 0.0, 0.0
    # A deviation below a millionth cannot come from a discounted posterior; its square would be too small a divisor.
    weight = ability.estimate * (1 - ability.estimate) / max(ability.uncertainty, 1e-6) ** 2 - 1
    good = max(0.0, ability.estimate * weight - PRIOR_WEIGHT * prior)
    bad = max(0.0, (1 - ability.estimate) * weight - PRIOR_WEIGHT * (1 - prior))
    shrink = min(1.0, longest / (good + bad)) if good + bad > 0 else 1.0
    return good * shrink, bad * shrink


def share_left(ability: Ability, now: float) -> float:
    """Return the share of an ability's evidence that has not faded with time, 0..1."""
    age = now - ability.at
    if ability.at <= 0 or ability.half_life <= 0 or not 0 < age < math.inf:
        return 1.0
    return float(0.5 ** (age / ability.half_life))


def weakened(ability: Ability, halvings: float, prior: float) -> Ability:
    """Return an ability as it is when the trials at its task have halved evidence `halvings` times since the first."""
    share = 0.5 ** (halvings - ability.halvings)
    return replace(_with_share(ability, share, prior), halvings=halvings)


def aged(ability: Ability, now: float) -> Ability:
    """Return an ability as of `now`; itself if hardly any time has passed.

    Args: now: seconds since 1970.
    """
    share = share_left(ability, now)
    if share == 1 or (1 - share) * sum(evidence_of(ability, ability.prior)) < _NOTHING:
        return ability
    return replace(_with_share(ability, share, ability.prior), at=now)


def merged(ability: Ability, before: Ability | None, known: Ability) -> Ability:
    """Return an ability with the changes of two writers who both began with `before`: `ability` is the one's, `known`
    the other's."""
    alphas, betas = zip(
        *[_posterior_of(version, ability.prior, ability.at) for version in (ability, known, before)], strict=True
    )
    alpha, beta = (max(_NOTHING, one + other - both) for one, other, both in (alphas, betas))
    trials, cost, latency = (0, 0.0, 0.0) if before is None else (before.trials, before.cost, before.latency)
    return replace(
        ability,
        estimate=mean_of(alpha, beta),
        uncertainty=deviation_of(alpha, beta),
        trials=max(ability.trials, ability.trials + known.trials - trials),
        cost=max(0.0, ability.cost + known.cost - cost) if before is not None else max(ability.cost, known.cost),
        latency=max(0.0, ability.latency + known.latency - latency) if before is not None else ability.latency,
    )


def _with_share(ability: Ability, share: float, prior: float) -> Ability:
    good, bad = evidence_of(ability, prior)
    alpha, beta = PRIOR_WEIGHT * prior + share * good, PRIOR_WEIGHT * (1 - prior) + share * bad
    return replace(ability, estimate=mean_of(alpha, beta), uncertainty=deviation_of(alpha, beta), prior=prior)


def _posterior_of(ability: Ability | None, prior: float, now: float) -> tuple[float, float]:
    """Return both parameters of a posterior as of `now`; those of the prior if nothing is known."""
    good, bad = evidence_of(None if ability is None else aged(ability, now), prior)
    return PRIOR_WEIGHT * prior + good, PRIOR_WEIGHT * (1 - prior) + bad


# -- abilities by tool and task


def ability_key(tool: str, task: str) -> str:
    """Return the key of a tool and task in `Context.abilities`."""
    return f"{tool}|{task}"


class _Task(Struct):
    """Task with known abilities: how often its trials have halved evidence, the prior of the last one, and its tools,
    that of the last trial at the end."""

    halvings: float = 0.0
    prior: float = 0.5
    tools: dict[str, None] = field(default_factory=dict)


_NO_TASK = _Task()


class KnownAbilities(MutableMapping[str, Ability]):
    """Abilities by `ability_key`, each as it is after all trials at its task; the oldest trial comes first.

    Attributes: stored: the abilities as they were after their own last trials.
    """

    __slots__ = ("_tasks", "stored")

    def __init__(self, abilities: Iterable[Ability] = ()) -> None:
        self.stored: dict[str, Ability] = {}
        self._tasks: dict[str, _Task] = {}
        self.put(abilities)

    def put(self, abilities: Iterable[Ability]) -> None:
        """Store abilities under their keys."""
        for ability in abilities:
            self[ability_key(ability.tool, ability.task)] = ability

    def halvings_of(self, task: str) -> float:
        """Return how often the trials at a task have halved evidence."""
        return self._tasks.get(task, _NO_TASK).halvings

    def tools_of(self, task: str) -> Reversible[str]:
        """Return the tools with an ability at a task, that of the last trial at the end."""
        return self._tasks.get(task, _NO_TASK).tools

    def __getitem__(self, key: str) -> Ability:
        ability = self.stored[key]
        task = self._tasks[ability.task]
        if task.halvings <= ability.halvings:
            return ability
        return weakened(ability, task.halvings, task.prior)

    def __setitem__(self, key: str, ability: Ability) -> None:
        self.stored.pop(key, None)  # the newest trial comes last
        self.stored[key] = ability
        task = self._tasks.get(ability.task)
        if task is None:
            task = self._tasks[ability.task] = _Task()
        task.tools.pop(ability.tool, None)
        task.tools[ability.tool] = None
        task.prior = ability.prior if 0 < ability.prior < 1 else task.prior
        if task.halvings < ability.halvings < math.inf:
            task.halvings = ability.halvings

    def __delitem__(self, key: str) -> None:
        ability = self.stored.pop(key)
        task = self._tasks[ability.task]
        del task.tools[ability.tool]
        if not task.tools:
            del self._tasks[ability.task]

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored)

    def __len__(self) -> int:
        return len(self.stored)


class AgedAbilities(Mapping[str, Ability]):
    """Abilities as of now: evidence that has faded with trials and with time is left out when one is read."""

    __slots__ = ("_clock", "_known")

    def __init__(self, known: KnownAbilities, clock: Clock) -> None:
        self._known, self._clock = known, clock

    def halvings_of(self, task: str) -> float:
        """Return how often the trials at a task have halved evidence."""
        return self._known.halvings_of(task)

    def tools_of(self, task: str) -> Reversible[str]:
        """Return the tools with an ability at a task, that of the last trial at the end."""
        return self._known.tools_of(task)

    def __getitem__(self, key: str) -> Ability:
        return aged(self._known[key], self._clock.now().timestamp())

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self._known.stored else default

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


class ReadAbilities(AgedAbilities):
    """Abilities that a reflector reads and then changes, while others may change them too."""

    __slots__ = ("_read", "_read_at")

    def __init__(self, known: KnownAbilities, clock: Clock) -> None:
        super().__init__(known, clock)
        #: What was read, as it was stored, and as it was after all trials at its task.
        self._read: dict[str, tuple[Ability, Ability] | None] = {}
        self._read_at: dict[str, float] = {}  # the halvings of the tasks that were read

    def halvings_of(self, task: str) -> float:
        return self._read_at.setdefault(task, self._known.halvings_of(task))

    def __getitem__(self, key: str) -> Ability:
        ability = self._known[key]
        self._read[key] = self._known.stored[key], ability
        self.halvings_of(ability.task)
        return aged(ability, self._clock.now().timestamp())

    def get(self, key: str, default: Any = None) -> Any:
        if key in self._known.stored:
            return self[key]
        self._read[key] = None
        return default

    def taken(self, ability: Ability) -> Ability:
        """Return a reflector's new ability, merged with the changes that others made since it was read."""
        key, known = ability_key(ability.tool, ability.task), self._known
        halvings = known.halvings_of(ability.task)
        read_at, stored = self._read_at.get(ability.task, halvings), known.stored.get(key)
        read = self._read.get(key, (stored, stored))
        before, before_faded = read or (None, None)
        is_changed = stored is not before or halvings != read_at
        if stored is not None and is_changed and key in self._read:
            ability = merged(ability, before_faded, known[key])
        own = max(0.0, ability.halvings - read_at)
        halvings = halvings + own if is_changed else max(halvings, ability.halvings)
        return ability if halvings == ability.halvings else replace(ability, halvings=halvings)


def halvings_at(task: str, abilities: Mapping[str, Ability]) -> float:
    """Return how often the trials at a task have halved evidence; 0 where these abilities do not count them."""
    return abilities.halvings_of(task) if isinstance(abilities, (AgedAbilities, KnownAbilities)) else 0.0


def tools_at(tasks: Iterable[str], abilities: Mapping[str, Ability]) -> set[str]:
    """Return the tools with an ability at one of these tasks, of each task the `MOST_COMPARED` of the last trials."""
    if isinstance(abilities, (KnownAbilities, AgedAbilities)):
        return {tool for task in tasks for tool in islice(reversed(abilities.tools_of(task)), MOST_COMPARED)}
    names = set(tasks)
    return {ability.tool for ability in abilities.values() if ability.task in names}


def known_of(tool: str, task: str, abilities: Mapping[str, Ability]) -> Ability | None:
    """Return the ability of a tool at a task: for the most exact name with enough evidence, or else the one with most.

    None when the tool was never tried at anything of the kind.
    """
    candidates = [known for name in looked_up(task) if (known := abilities.get(ability_key(tool, name))) is not None]
    return next(filter(is_known, candidates), None) or max(
        candidates, key=lambda known: sum(evidence_of(known)), default=None
    )
