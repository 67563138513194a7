"""The meta of a piece of work from one version to the next; pure.

A solution says what the next meta is, and is not trusted with it: domain and path stay, and where the version did not
grow it is counted up here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from spar.data.blackboard import Board, message_of

_NUMBER = re.compile(r"[0-9]{1,9}")


def versioned(messages: list[dict[str, Any]], said: Mapping[str, Any] | None, at: str) -> list[dict[str, Any]]:
    """The messages with the next meta in the place of the one there was; the same without one.

    Args: said: the meta of the solution; at: the ISO time of the next version.
    """
    now = meta_of(messages)
    if now is None:
        return messages
    old = [each for each in messages if is_meta(each)]
    about: dict[str, Any] = {key: old[-1][key] for key in ("schema", "description") if key in old[-1]}
    meta = {**about, **message_of("meta", next_meta(now, said, at))}
    return [meta if each is old[-1] else each for each in messages if not is_meta(each) or each is old[-1]]


def is_meta(message: Mapping[str, Any]) -> bool:
    """Return whether a message says which version of a piece of work this is."""
    return "meta" in (message.get("type"), message.get("kind"))


def meta_of(messages: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the context's meta messages, folded; None without one."""
    found = [each for each in messages if is_meta(each)]
    told = next(iter(Board(found).messages_of(["meta"])), None) if found else None
    data = told.get("data") if told is not None else None
    return data if isinstance(data, dict) else None


def next_meta(now: Mapping[str, Any], said: Mapping[str, Any] | None, at: str) -> dict[str, Any]:
    """The meta after a solution, which said `said`, at the ISO time `at`."""
    meta = {**now, **(said or {}), **{key: now[key] for key in ("domain", "path") if key in now}}
    old, new = str(now.get("version") or "0.0.0"), meta.get("version")
    if said is None or not isinstance(new, str) or _order(new) <= _order(old):
        meta["version"], meta["createdAt"] = counted_up(old), at
    elif not isinstance(said.get("createdAt"), str):
        meta["createdAt"] = at
    return meta


def counted_up(version: str) -> str:
    """The version with its last number one greater, also on a branch: 1.2.3 → 1.2.4, 1.2.3.draft.1 → 1.2.3.draft.2."""
    parts = version.split(".")
    for at in reversed(range(len(parts))):
        if _NUMBER.fullmatch(parts[at]):
            parts[at] = str(int(parts[at]) + 1)
            return ".".join(parts)
    return f"{version}.1"


def _order(version: str) -> list[tuple[int, int, str]]:
    """Numbers by their value; words after them, by the alphabet."""
    return [(0, int(part), "") if _NUMBER.fullmatch(part) else (1, 0, part) for part in version.split(".")]
