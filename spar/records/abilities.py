"""Names of kinds of tasks, from the exact to the general, and the known ability of a tool at one.

A task is named by the kind of what was noticed, its intent, and the rule that deals with it: `alert.disk/report#clean`.
What is learnt is learnt for each of its names, so that a rule's own experience counts as soon as there is enough of it,
and until then that of all tasks of this kind and intent, or of this kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b

from spar.types import Ability

#: From so many trials on the experience with a more exact name counts alone.
ENOUGH_TRIALS = 5
#: Characters of one part of a name; of a longer one the beginning and a digest.
_LONGEST = 80


def ability_key(tool: str, task: str) -> str:
    """Return the key of `Context.abilities`."""
    return f"{tool}|{task}"


def task_name(kind: str, intent: str = "", rule: str = "") -> str:
    """The most exact name of a task."""
    name = "/".join([_part(part) for part in (kind, intent) if part])
    return f"{name}#{_part(rule)}" if rule else name


def kind_of_task(task: str) -> str:
    """The name of a task without the rule."""
    return task.rpartition("#")[0] if "#" in task else task


def names_of(task: str) -> Sequence[str]:
    """The names of a task, the most exact first: with its rule, without, and by its kind alone."""
    name = kind_of_task(task)
    names = (task,) if name == task else (task, name)
    return (*names, name.partition("/")[0]) if "/" in name else names


def known_of(tool: str, task: str, abilities: Mapping[str, Ability]) -> Ability | None:
    """Return the ability of a tool at a task: by the most exact name with enough trials, else with most of them.

    None when it was never tried at anything of the kind.
    """
    found = [known for name in names_of(task) if (known := abilities.get(ability_key(tool, name))) is not None]
    for known in found:
        if known.trials >= ENOUGH_TRIALS:
            return known
    return max(found, key=lambda known: known.trials, default=None)


def _part(text: str) -> str:
    plain = " ".join("".join(sign if sign.isprintable() else " " for sign in text[: 4 * _LONGEST]).split())
    if len(text) <= _LONGEST:
        return plain
    return f"{plain[: _LONGEST - 13]}…{blake2b(text.encode(errors='replace'), digest_size=6).hexdigest()}"
