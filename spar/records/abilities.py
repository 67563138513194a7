"""Names of situations, from the exact to the general, and the known ability of a tool at one.

A situation is named by the kind of what was noticed, its intent, what it is about, and the rule that deals with it:
`alert.disk/report[nginx,web1]#clean`. What is learnt is learnt for each of its names, so that experience with these
very things counts as soon as there is enough of it, and until then that of the rule with any, of all tasks of this kind
and intent, or of this kind. Abilities, cases and lessons go by the same names.

Trials that strangers had a say in count under names of their own, `untrusted:alert.disk`, which only decisions about
untrusted things go by: nobody drives a tool up or down for others by what he sends.

An `Ability` is a Beta posterior: on top of a prior that does not fade stands the evidence, of which half is gone after
each half-life.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from spar.clock import Clock
from spar.types import Ability, Perception, replace

#: Begins the names under which trials count that strangers had a say in.
_OF_STRANGERS = "untrusted:"
#: From so many trials on the experience with a more exact name counts alone.
ENOUGH_TRIALS = 5
#: Characters of one part of a name; of a longer one the beginning and a digest.
_LONGEST = 80
#: What a situation is about, at most, and characters of each.
MOST_ENTITIES = 4
_LONGEST_ENTITY = 60
#: The kind of what people say: it is about anything, and whom it is from says nothing of what it is about.
_MESSAGE = "message"
#: A prior weighs as much as two trials: with a prior of 0.5 it is the flat Beta(1, 1).
PRIOR_WEIGHT = 2.0
#: Evidence, in trials, that has to be left of what was tried often enough; with less it has faded.
_LEFT = 1.0
#: Evidence of fewer trials than this is none: it need not fade, and be written, any further.
NOTHING = 0.01
_WORD = re.compile(r"\w+")
#: Signs that part a name, in the place of which another one stands in its parts.
_APART = str.maketrans("[]#,", "()._")


def ability_key(tool: str, task: str) -> str:
    """Return the key of `Context.abilities`."""
    return f"{tool}|{task}"


def situation_of(perception: Perception, rule: str = "") -> str:
    """The most exact name of the situation that a perception tells of, for the rule that deals with it."""
    return task_name(kind_told(perception), perception.intent, rule, entities_told(perception))


def task_name(kind: str, intent: str = "", rule: str = "", entities: Sequence[str] = ()) -> str:
    """The most exact name of a task. Of the entities the first `MOST_ENTITIES` are named, in the order of letters."""
    name = "/".join([_part(part).translate(_APART) for part in (kind, intent) if part])
    if things := sorted({thing_named(each) for each in entities[:MOST_ENTITIES]} - {""}):
        name = f"{name}[{','.join(things)}]"
    return f"{name}#{_part(rule)}" if rule else name


def kind_told(perception: Perception) -> str:
    """Return the kind of what a perception tells of; the notice of an incident tells of what caused it, by its id."""
    return _told(perception).kind


def entities_told(perception: Perception) -> Sequence[str]:
    """Return what a perception tells of is about: the `entities` of its attributes, else its subject if it is a name.

    A subject is a name if it is one short word. The path of a file or the address of a page is another one each time,
    and so would every situation be.
    """
    told = _told(perception)
    if told.kind == _MESSAGE:
        return ()
    if found := tuple(_texts(told.attributes.get("entities"))):
        return found
    subject = told.subject or ""
    is_name = 0 < len(subject) <= _LONGEST_ENTITY and len(subject.split()) == 1 and "/" not in subject
    return (subject,) if is_name and not told.kind.startswith("log.") else ()


def kind_of_task(task: str) -> str:
    """The name of a task by kind and intent: without the rule, and without what it is about."""
    name = task.partition("#")[0]
    return name.rpartition("[")[0] if name.endswith("]") and "[" in name else name


def things_of(task: str) -> Sequence[str]:
    """Return the names of what a task is about, as they stand in its name."""
    name = task.partition("#")[0]
    return tuple(name[name.rindex("[") + 1 : -1].split(",")) if name.endswith("]") and "[" in name else ()


def thing_named(text: str) -> str:
    """Return what something is called in the names of tasks."""
    return _part(text, _LONGEST_ENTITY).translate(_APART)


def names_of(task: str) -> Sequence[str]:
    """The names of a task, the most exact first: in full, without entities, without its rule, and by its kind alone."""
    general, rule = kind_of_task(task), task[len(task.partition("#")[0]) :]
    return tuple(dict.fromkeys((task, f"{general}{rule}", general, general.partition("/")[0])))


def of_strangers(task: str) -> str:
    """Return the name under which a trial at this task counts that strangers had a say in."""
    return task if is_of_strangers(task) else f"{_OF_STRANGERS}{task}"


def is_of_strangers(task: str) -> bool:
    """Return whether a name is one for trials that strangers had a say in."""
    return task.startswith(_OF_STRANGERS)


def whoever(task: str) -> str:
    """Return the name of a task, whoever had a say in it."""
    return task.removeprefix(_OF_STRANGERS)


def looked_up(task: str) -> Sequence[str]:
    """Return the names that a decision at a task goes by, the most exact first. For strangers those of the trusted
    count as well, each behind their own; never the other way round."""
    own = names_of(task)
    if not is_of_strangers(task):
        return own
    return tuple(name for both in zip(own, names_of(whoever(task)), strict=True) for name in both)


def is_exact(task: str) -> bool:
    """Return whether a name of a task says what it is about: of such names there is no end."""
    return "[" in task.partition("#")[0]


class AgedAbilities(Mapping[str, Ability]):
    """Abilities as they are believed now: what time has taken is left out when one is looked at."""

    __slots__ = ("_clock", "_known")

    def __init__(self, known: Mapping[str, Ability], clock: Clock) -> None:
        self._known, self._clock = known, clock

    def __getitem__(self, key: str) -> Ability:
        return aged(self._known[key], self._clock.now().timestamp())

    def get(self, key: str, default: Any = None) -> Any:
        known = self._known.get(key)
        return default if known is None else aged(known, self._clock.now().timestamp())

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


class ReadAbilities(AgedAbilities):
    """Abilities as a reflector reads them: it changes what it read, and others may have changed that meanwhile."""

    __slots__ = ("_read",)

    def __init__(self, known: Mapping[str, Ability], clock: Clock) -> None:
        super().__init__(known, clock)
        self._read: dict[str, Ability | None] = {}

    def __getitem__(self, key: str) -> Ability:
        found = super().__getitem__(key)
        self._read[key] = self._known[key]
        return found

    def get(self, key: str, default: Any = None) -> Any:
        self._read[key] = self._known.get(key)
        return super().get(key, default)

    def taken(self, told: Ability) -> Ability:
        """Return an ability as it is after what was told of it: what others taught since it was read stays."""
        key = ability_key(told.tool, told.task)
        known = self._known.get(key)
        if known is None or self._read.get(key, known) is known:
            return told
        return merged(told, self._read[key], known)


def known_of(tool: str, task: str, abilities: Mapping[str, Ability]) -> Ability | None:
    """Return the ability of a tool at a task: by the most exact name under which enough is known, else the most.

    None when it was never tried at anything of the kind.
    """
    found = [known for name in looked_up(task) if (known := abilities.get(ability_key(tool, name))) is not None]
    return next(filter(is_known, found), None) or max(found, key=lambda known: sum(evidence_of(known)), default=None)


def is_known(ability: Ability) -> bool:
    """Return whether enough is known of a tool: it was tried often enough, and not all of that has faded."""
    return ability.trials >= ENOUGH_TRIALS and sum(evidence_of(ability)) >= _LEFT


def wording(text: str) -> str:
    """Return the words of a text as situations are compared by them: in small letters, and of what holds a digit, which
    is another one each time, only that it stands there."""
    words = (word.casefold() for word in _WORD.findall(text))
    return " ".join("#" if any(sign.isdigit() for sign in word) else word for word in words)


# -- posteriors: mean m and standard deviation s of a Beta distribution give its weight, m(1-m)/s² - 1


def mean_of(alpha: float, beta: float) -> float:
    return alpha / (alpha + beta)


def deviation_of(alpha: float, beta: float) -> float:
    weight = alpha + beta
    return math.sqrt(alpha * beta / (weight * weight * (weight + 1)))


def evidence_of(ability: Ability | None, prior: float = 0.5, longest: float = math.inf) -> tuple[float, float]:
    """Return the successes and failures behind an ability, at least 0 and together at most `longest`. Never raises:
    numbers that cannot be a posterior count as no evidence."""
    if ability is None or not (0 < ability.estimate < 1 and 0 < ability.uncertainty < 0.5):
        return 0.0, 0.0
    # A deviation below a millionth is no discounted posterior of ours; its square would be no number to divide by.
    weight = ability.estimate * (1 - ability.estimate) / max(ability.uncertainty, 1e-6) ** 2 - 1
    good = max(0.0, ability.estimate * weight - PRIOR_WEIGHT * prior)
    bad = max(0.0, (1 - ability.estimate) * weight - PRIOR_WEIGHT * (1 - prior))
    shrink = min(1.0, longest / (good + bad)) if good + bad > 0 else 1.0
    return good * shrink, bad * shrink


def share_left(ability: Ability, now: float) -> float:
    """Return the share of the evidence behind an ability that time has left, 0..1."""
    age = now - ability.at
    if ability.at <= 0 or ability.half_life <= 0 or not 0 < age < math.inf:
        return 1.0
    return float(0.5 ** (age / ability.half_life))


def aged(ability: Ability, now: float, prior: float = 0.5) -> Ability:
    """Return an ability as it is believed now; itself where hardly any time has passed.

    Args: now: in seconds since 1970.
    """
    left = share_left(ability, now)
    good, bad = evidence_of(ability, prior)
    if (1 - left) * (good + bad) < NOTHING:
        return ability
    alpha, beta = PRIOR_WEIGHT * prior + left * good, PRIOR_WEIGHT * (1 - prior) + left * bad
    return replace(ability, estimate=mean_of(alpha, beta), uncertainty=deviation_of(alpha, beta), at=now)


def merged(told: Ability, before: Ability | None, known: Ability) -> Ability:
    """Return an ability with what two taught of it who both began with `before`: `told` by the one, `known` by the
    other."""
    alphas, betas = zip(*[_posterior_of(each, told.at) for each in (told, known, before)], strict=True)
    alpha, beta = (max(NOTHING, one + other - both) for one, other, both in (alphas, betas))
    trials, cost, latency = (0, 0.0, 0.0) if before is None else (before.trials, before.cost, before.latency)
    return replace(
        told,
        estimate=mean_of(alpha, beta),
        uncertainty=deviation_of(alpha, beta),
        trials=max(told.trials, told.trials + known.trials - trials),
        cost=max(0.0, told.cost + known.cost - cost) if before is not None else max(told.cost, known.cost),
        latency=max(0.0, told.latency + known.latency - latency) if before is not None else told.latency,
    )


def _posterior_of(ability: Ability | None, now: float) -> tuple[float, float]:
    """Return both parameters of a posterior as it is believed at a time; of nothing known those of the flat prior."""
    if ability is None:
        return PRIOR_WEIGHT / 2, PRIOR_WEIGHT / 2
    ability = aged(ability, now)
    if not (0 < ability.estimate < 1 and 0 < ability.uncertainty < 0.5):
        return PRIOR_WEIGHT / 2, PRIOR_WEIGHT / 2
    weight = ability.estimate * (1 - ability.estimate) / max(ability.uncertainty, 1e-6) ** 2 - 1
    return ability.estimate * weight, (1 - ability.estimate) * weight


def _told(perception: Perception) -> Perception:
    if not perception.kind.startswith("incident."):
        return perception
    return next((part for part in perception.evidence if part.id == perception.id), perception)


def _texts(given: object) -> Iterator[str]:
    """Yield the first names of a list, or of a table of lists by kind, as an incident has it."""
    if isinstance(given, Mapping):
        given = [next(iter(names), None) for names in given.values() if isinstance(names, (list, tuple))]
    if isinstance(given, (list, tuple)):
        yield from (each for each in given[:MOST_ENTITIES] if isinstance(each, str) and each)


def _part(text: str, longest: int = _LONGEST) -> str:
    if len(text) <= longest and text.isprintable() and " " not in text:
        return text  # most are one short word
    plain = " ".join("".join(sign if sign.isprintable() else " " for sign in text[: 4 * longest]).split())
    if len(text) <= longest:
        return plain
    return f"{plain[: longest - 13]}…{blake2b(text.encode(errors='replace'), digest_size=6).hexdigest()}"
