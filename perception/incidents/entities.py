"""Entities of a perception: the hosts, services, containers, files, addresses and people that it is about.

They come from structured attributes and labels first, then from the words of the text. A text is read once, word by
word, without patterns, so the cost is linear in its length, up to `TEXT_LIMIT`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Any

from msgspec import Struct

from spar.data.text import safe_line
from spar.types import Perception

TEXT_LIMIT = 4_000  # characters of a text that are read
MOST = 24  # entities of one perception
LENGTH = 200  # characters of one entity's name
HEADER = 6  # first words of a log line that may name its host and program

Entity = tuple[str, str]

#: Kinds of entities by the names of labels and attributes.
NAMES: dict[str, str] = {
    **dict.fromkeys(("service", "service_name", "unit", "systemd_unit", "app", "application", "job", "deployment",
                     "component", "statefulset", "daemonset"), "service"),
    **dict.fromkeys(("host", "hostname", "instance", "node", "nodename", "machine", "server"), "host"),
    **dict.fromkeys(("container", "container_name", "container_id", "pod", "pod_name"), "container"),
    **dict.fromkeys(("file", "path", "device", "mountpoint", "filename"), "file"),
    **dict.fromkeys(("address", "ip", "remote_addr", "client_ip", "src_ip"), "address"),
    **dict.fromkeys(("user", "username", "owner", "email", "person"), "person"),
}  # fmt: skip

#: Names that identify nothing: they stand for the reporting machine, for everybody, or for the monitoring itself.
SAYS_NOTHING = frozenset(
    ("localhost", "localhost.localdomain", "127.0.0.1", "::1", "0.0.0.0", "::", "root", "nobody", "none", "null",
     "unknown", "default", "n/a", "systemd", "kernel", "init", "prometheus", "alertmanager", "/dev/null", "/tmp",
     "/etc", "/var", "/usr")
)  # fmt: skip
_UNITS = (".service", ".socket", ".timer", ".mount", ".scope", ".slice", ".target")
#: Words at the beginning of a line that do not name a program.
_NO_PROGRAM = frozenset(
    ("error", "warning", "warn", "info", "notice", "debug", "trace", "critical", "crit", "fatal", "panic", "emerg",
     "alert", "alarm", "problem", "recovery", "firing", "resolved", "note", "main", "exception", "traceback")
)  # fmt: skip
_APART = {ord(sign): " " for sign in "\"'`()[]{}<>,;|*"}


#: Kinds of entities that last; others (a container, a caller) are different each time.
_LASTING = ("service", "host", "file")


class Mentions(Struct, frozen=True):
    """Entities of one perception, and the words of its text that may name a known entity."""

    entities: tuple[Entity, ...] = ()
    words: frozenset[str] = frozenset()


def mentions_in(perception: Perception, labels: Mapping[str, Any]) -> Mentions:
    """Return the entities of a perception.

    Args: labels: the labels of the perception.
    """
    content = perception.content
    entities = dict.fromkeys(entity for _, entity in _labelled(perception, labels))
    if not isinstance(content, str):
        return Mentions(tuple(entities)[:MOST])
    text = content[:TEXT_LIMIT]
    for named_entity in _header(text):
        entities.setdefault(named_entity)
    words = text.translate(_APART).split()
    for head in sorted(_heads(text)) if perception.kind.startswith("log.") else ():
        entities.setdefault(("program", head))
    for former, word in zip(("", *words), words, strict=False):
        if (entity := _of_word(word, former)) is not None:
            entities.setdefault(entity)
    return Mentions(tuple(entities)[:MOST], frozenset(_plain(word) for word in words))


def lasting(perception: Perception) -> list[str]:
    """Return the names of the services, hosts and files that a perception is about, from structured places only.

    These are attributes, labels and the header of a log line, not the words of a text. Containers, addresses of
    callers and people are left out: they are different each time, so a situation that included them would never come
    again.
    """
    attributes, content = perception.attributes, perception.content
    labels = attributes.get("labels") or (content.get("labels") if isinstance(content, Mapping) else None)
    labelled = list(_labelled(perception, labels if isinstance(labels, Mapping) else {}))
    if isinstance(content, str) and perception.kind.startswith("log."):
        labelled += [(entity[0], entity) for entity in _header(content)]
    by_kind = {kind: [entity[1] for label, entity in labelled if label == kind] for kind in _LASTING}
    return list(dict.fromkeys(name for kind in _LASTING for name in by_kind[kind]))


def _labelled(perception: Perception, labels: Mapping[str, Any]) -> Iterator[tuple[str, Entity]]:
    """Yield the entities in attributes, labels and data, each with the kind that the label states."""
    content = perception.content
    for table in (labels, perception.attributes, content if isinstance(content, Mapping) else {}):
        for name, value in table.items():
            kind = NAMES.get(name.lower()) if isinstance(name, str) else None
            if kind is None or not isinstance(value, str) or (name.lower() == "unit" and not value.endswith(_UNITS)):
                continue  # only a unit of systemd counts, not a unit of measurement
            if (entity := named(kind, value)) is not None:
                yield kind, entity


def named(kind: str, value: str) -> Entity | None:
    """Return an entity in the form that is compared; None for a name that identifies nothing."""
    name = safe_line(value, LENGTH).strip(".:")
    if kind == "host":
        name = _without_port(name).casefold()
    elif kind == "service":
        name = name.removesuffix(".service").casefold()
    elif kind == "address":
        name = _without_port(name)
    if len(name) < 2 or name.casefold() in SAYS_NOTHING:
        return None
    if kind in ("host", "address"):
        return ("address", name) if _is_address(name) else (kind, name)
    return kind, name


def _of_word(word: str, former: str) -> Entity | None:
    """Return the entity that a word of a text is by its form, None for other words."""
    word = word.strip(".:!?")
    name, sign, value = word.partition("=")
    if sign:
        kind = NAMES.get(name.lower())
        return named(kind, value) if kind is not None and value else None
    if word.endswith(_UNITS) and len(word) > len(".service"):
        return named("service", word)
    if word.startswith("/") and word.count("/") > 1:
        return named("file", word)
    if "@" in word[1:-1] and "." in word.partition("@")[2] and ":" not in word:
        return named("person", word.casefold())
    if word[:1].isalnum() and (word.count(".") == 3 or word.count(":") > 1) and _is_address(_without_port(word)):
        return named("address", word)
    if former.casefold() == "container" and len(word) in (12, 64) and _is_hex(word):
        return named("container", word)
    return None


def _header(text: str) -> Iterator[Entity]:
    """Yield the program and the host at the beginning of a line of the system's log: `… web1 nginx[812]: …`."""
    words = text[:400].split(None, HEADER)[:HEADER]
    for place, word in enumerate(words):
        program, bracket, process_id = word.partition("[")
        if not (bracket and word.endswith("]:") and process_id[:-2].isdigit() and program):
            continue
        if (entity := named("service", program)) is not None:
            yield entity
        host = words[place - 1] if place else ""
        if host and ":" not in host and not host[:1].isdigit() and (entity := named("host", host)) is not None:
            yield entity
        return


def _heads(text: str) -> frozenset[str]:
    """Return the words at the beginning by which a program may name itself: `shop: …`, `[shop] …`."""
    words = text[:400].split(None, HEADER)[:HEADER]
    heads = (_plain(word.partition("[")[0] or word) for word in words
             if word.endswith((":", "]")) or word.startswith("["))  # fmt: skip
    return frozenset(head for head in heads if _is_name(head) and head not in _NO_PROGRAM)


def _is_name(word: str) -> bool:
    return 1 < len(word) <= 60 and word[0].isalpha() and all(sign.isalnum() or sign in "-_." for sign in word)


def _plain(word: str) -> str:
    return word.strip(".:!?[]()").casefold()


def _without_port(name: str) -> str:
    host, colon, port = name.rpartition(":")
    return host.strip("[]") if colon and port.isdigit() and (host.count(":") == 0 or host.endswith("]")) else name


def _is_address(name: str) -> bool:
    if len(name) > 45:
        return False
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _is_hex(word: str) -> bool:
    return all(sign in "0123456789abcdef" for sign in word) and not word.isdigit() and not word.isalpha()
