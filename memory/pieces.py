"""Parts that many cycles share, kept once: long texts and objects of their notes, by their digest.

What a model is asked repeats almost all of what it was asked before. Written whole with each cycle, a conversation
would take the square of its length; so each long part is a row of its own, and the note on the tape refers to it. Long
lists of such references are cut where their content says so, and are pieces again: what follows a change is the same.

A piece goes when the newest cycle that refers to it has gone. Cycles go the oldest first, so it is enough to know which
that is; it is noted with some slack, because a row that is changed is written whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from memory.codec.columns import sealed, unsealed
from memory.codec.encoding import encode
from spar.data.scrub import mask_json

if TYPE_CHECKING:
    from apsw import Connection

#: The key of a reference in the place of a value, and of one in the place of several items of a list.
VALUE: Final = "$piece"
ITEMS: Final = "$pieces"
#: Characters of JSON from which on a value is a piece of its own.
LONG = 200
#: Items of a list that are not worth a piece; how many one has on average, and at most.
FEW, RUN, LONGEST_RUN = 8, 8, 64
#: Cycles by which `last` may be behind.
SLACK = 64
BATCH = 250


class Pieces:
    """The pieces of one cycle, taken out of its notes."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}  # by digest

    def without(self, value: Any) -> Any:
        """A note with references in the place of its long parts."""
        if isinstance(value, Mapping) and not {VALUE, ITEMS} & value.keys():
            return {str(key): self._part(item) for key, item in value.items()}
        return self._part(value)

    def _part(self, value: Any) -> Any:
        if isinstance(value, str) and len(value) < LONG:
            return value
        if isinstance(value, (list, tuple)):
            return self._list([self._part(item) for item in value])
        if value is None or isinstance(value, (bool, int, float)):
            return value
        text = _json(value)
        if len(text) < LONG and VALUE not in text:
            return value
        return {VALUE: self._keep(text)}

    def _list(self, items: list[Any]) -> list[Any]:
        if len(items) <= FEW:
            return items
        parts: list[Any] = []
        run: list[Any] = []
        for item in items:
            run.append(item)
            if int(_digest(_json(item))[:4], 16) % RUN == 0 or len(run) == LONGEST_RUN:
                parts += self._run(run)
                run = []
        parts += run
        return self._list(parts) if len(parts) < len(items) else parts

    def _run(self, items: list[Any]) -> list[Any]:
        text = _json(items)
        return [{ITEMS: self._keep(text)}] if len(text) >= LONG else items

    def _keep(self, text: str) -> str:
        text = mask_json(text)
        digest = _digest(text)
        self.texts[digest] = text
        return digest


def write(connection: Connection, texts: Mapping[str, str], cycle: int) -> None:
    """Keep the pieces of the cycle of this number."""
    for digest, text in texts.items():
        known = connection.execute("SELECT seq, last FROM tape_piece WHERE digest = ?", (digest,)).fetchone()
        if known is None:
            connection.execute(
                "INSERT INTO tape_piece (digest, last, bytes, text) VALUES (?, ?, ?, ?)",
                (digest, cycle, len(text) + 100, sealed(text)),
            )
        elif int(str(known[1])) < cycle - SLACK // 2:
            connection.execute("UPDATE tape_piece SET last = ? WHERE seq = ?", (cycle, known[0]))


def with_pieces(connection: Connection, value: Any, missed: Callable[[str], object]) -> Any:
    """A note as it was before its pieces were taken out; `missed` hears of each that cannot be found or read."""
    if isinstance(value, dict):
        if value.keys() == {VALUE}:
            return _read(connection, str(value[VALUE]), missed)
        return {key: with_pieces(connection, item, missed) for key, item in value.items()}
    if isinstance(value, list):
        return list(_items(connection, value, missed))
    return value


def trim(connection: Connection) -> int:
    """Delete one batch of the pieces that no cycle refers to any more; returns how many went."""
    first = connection.execute("SELECT min(seq) FROM cycle").get
    # Without any cycle all may go but those of one that is being written, which is never so in this thread.
    end = first - SLACK if isinstance(first, int) else 1 << 62
    connection.execute(
        "DELETE FROM tape_piece WHERE seq IN (SELECT seq FROM tape_piece WHERE last < ? ORDER BY last LIMIT ?)",
        (end, BATCH),
    )
    return connection.changes()


def held(connection: Connection) -> int:
    """About how many bytes all pieces take."""
    size = connection.execute("SELECT total(bytes) FROM tape_piece").get
    return int(size) if isinstance(size, (int, float)) else 0


def _items(connection: Connection, items: list[Any], missed: Callable[[str], object]) -> Iterator[Any]:
    for item in items:
        if isinstance(item, dict) and item.keys() == {ITEMS}:
            run = _read(connection, str(item[ITEMS]), missed)
            yield from _items(connection, run, missed) if isinstance(run, list) else [run]
        else:
            yield with_pieces(connection, item, missed)


def _read(connection: Connection, digest: str, missed: Callable[[str], object]) -> Any:
    text = connection.execute("SELECT text FROM tape_piece WHERE digest = ?", (digest,)).get
    try:
        return json.loads(unsealed(str(text)))
    except ValueError:
        missed(digest)
        return {"truncated": True, "reference": digest}


def _json(value: Any) -> str:
    return encode(value, limit=1 << 62)


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=12).hexdigest()
