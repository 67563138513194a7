"""Pieces: long texts and objects in the notes of cycles, stored once under their digest.

A request to a model repeats almost all of the request before. If each cycle stored it whole, the space of a
conversation would grow with the square of its length. So each long part is a row of its own, and the note in the cycle
log refers to it. Long lists of such references are cut into runs, which are pieces again. The content decides where a
list is cut, so the runs after a changed item stay the same.

A piece is deleted when the newest cycle that refers to it was deleted. Cycles are deleted oldest first, so a piece
stores only the number of that cycle. This number may be a little behind, because each change writes the whole row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from memory.codec.columns import sealed
from memory.codec.decoding import unsealed
from memory.codec.encoding import encode
from spar.data.scrub import mask_json

if TYPE_CHECKING:
    from apsw import Connection

#: Keys of references: one in the place of a value, one in the place of several items of a list.
VALUE: Final = "$piece"
ITEMS: Final = "$pieces"
#: Characters of JSON from which a value becomes a piece.
LONG = 200
#: A list of at most `FEW` items is not cut. A run has `RUN` items on average and at most `LONGEST_RUN`.
FEW, RUN, LONGEST_RUN = 8, 8, 64
#: Number of cycles by which the column `last` may be behind.
SLACK = 64
BATCH = 250


class Pieces:
    """Pieces that were taken out of the notes of one cycle."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}  # by digest

    def without(self, value: Any) -> Any:
        """Return a note with references in the place of its long parts."""
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
    """Write the pieces of the cycle with this number."""
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
    """Return a note with its pieces put back; call `missed` with each digest that cannot be found or read."""
    if isinstance(value, dict):
        if value.keys() == {VALUE}:
            return _read(connection, str(value[VALUE]), missed)
        return {key: with_pieces(connection, item, missed) for key, item in value.items()}
    if isinstance(value, list):
        return list(_items(connection, value, missed))
    return value


def trim(connection: Connection) -> int:
    """Delete one batch of the pieces that no cycle refers to any more. Return the number of deleted pieces."""
    first = connection.execute("SELECT min(seq) FROM cycle").get
    # Without cycles all pieces can go. No cycle is being written now, since this thread is the only one that writes.
    end = first - SLACK if isinstance(first, int) else 1 << 62
    connection.execute(
        "DELETE FROM tape_piece WHERE seq IN (SELECT seq FROM tape_piece WHERE last < ? ORDER BY last LIMIT ?)",
        (end, BATCH),
    )
    return connection.changes()


def held(connection: Connection) -> int:
    """Return the approximate bytes of all pieces."""
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
