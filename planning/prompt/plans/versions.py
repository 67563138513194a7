"""Versions of a piece of work, in its `meta`: domain, path, version and time; pure.

A solution proposes the next `meta`. Domain and path stay as they were, and a version that is not greater than the last
one is replaced by the next number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from spar.data.blackboard import Board, message_of

_NUMBER = re.compile(r"[0-9]{1,9}")


def versioned(messages: list[dict[str, Any]], proposed: Mapping[str, Any] | None, at: str) -> list[dict[str, Any]]:
    """Return the messages with the next `meta` in the place of the last one; without one they stay the same.

    Args: proposed: the meta of the solution; at: the ISO time of the next version.
    """
    now = meta_of(messages)
    if now is None:
        return messages
    old = [message for message in messages if is_meta(message)]
    about: dict[str, Any] = {key: old[-1][key] for key in ("schema", "description") if key in old[-1]}
    meta = {**about, **message_of("meta", next_meta(now, proposed, at))}
    return [
        meta if message is old[-1] else message for message in messages if not is_meta(message) or message is old[-1]
    ]


def is_meta(message: Mapping[str, Any]) -> bool:
    """Return whether a message is a `meta` message."""
    return "meta" in (message.get("type"), message.get("kind"))


def meta_of(messages: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the data of all `meta` messages, merged; None without one."""
    metas = [message for message in messages if is_meta(message)]
    merged = next(iter(Board(metas).messages_of(["meta"])), None) if metas else None
    data = merged.get("data") if merged is not None else None
    return data if isinstance(data, dict) else None


def next_meta(now: Mapping[str, Any], proposed: Mapping[str, Any] | None, at: str) -> dict[str, Any]:
    """Return the `meta` after a solution that proposed this `meta`, at the ISO time `at`."""
    meta = {**now, **(proposed or {}), **{key: now[key] for key in ("domain", "path") if key in now}}
    old, new = str(now.get("version") or "0.0.0"), meta.get("version")
    if proposed is None or not isinstance(new, str) or _order(new) <= _order(old):
        meta["version"], meta["createdAt"] = counted_up(old), at
    elif not isinstance(proposed.get("createdAt"), str):
        meta["createdAt"] = at
    return meta


def counted_up(version: str) -> str:
    """Return a version with its last number plus one: 1.2.3 → 1.2.4; on a branch 1.2.3.draft.1 → 1.2.3.draft.2."""
    parts = version.split(".")
    for at in reversed(range(len(parts))):
        if _NUMBER.fullmatch(parts[at]):
            parts[at] = str(int(parts[at]) + 1)
            return ".".join(parts)
    return f"{version}.1"


def _order(version: str) -> list[tuple[int, int, str]]:
    """Return the key for sorting versions: numbers by their value, then words by the alphabet."""
    return [(0, int(part), "") if _NUMBER.fullmatch(part) else (1, 0, part) for part in version.split(".")]
