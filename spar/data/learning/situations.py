"""Names of situations and of tasks.

The name of a situation consists of the kind of perception, its intent, what it is about, and the rule that deals with
it: `alert.disk/report[nginx,web1]#clean`. Lessons are stored under each of its names, from the exact to the general:
experience with exactly these things is used once there is enough of it, and until then that of the rule with any
things, of all tasks of this kind and intent, or of this kind. Abilities, cases and lessons use the same names. Trials
that strangers influenced count under separate names, `untrusted:alert.disk`, which only decisions about untrusted
perceptions use: nobody can raise or lower a tool's ability for others by what he sends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b

from spar.types import Perception

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
