"""Pieces: long texts and objects in the notes of cycles, stored once under their digest.

A request to a model repeats almost all of the request before. If each cycle stored it whole, the space of a
conversation would grow with the square of its length. So each long part is a row of its own, and the note in the cycle
log refers to it. A long list is a chain: a piece for each item, which names the piece of the item before. So a list to
which an item is added costs this item, and the note names the last piece. The content decides where a chain ends and
the next one begins, so the chains after a changed item stay the same.

The digest of a whole note is kept beside its pieces, and verified when it is read.

A piece is deleted when the newest cycle that refers to it was deleted. Cycles are deleted oldest first, so a piece
stores only the number of that cycle. This number may be a little behind, because each change writes the whole row.

Cycles of a session that people forget are deleted out of this order. The transaction that deletes them marks their
pieces as suspects: the number is inverted, so it is negative. A cycle that is written from then on makes a suspect that
it refers to an ordinary piece again. All other cycles and pieces are searched for references to suspects; those without
one are deleted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from memory.codec import encode, sealed, unsealed
from spar.data.scrub import mask_json

if TYPE_CHECKING:
    from memory.engine.connection import Connection

#: Keys of references: one in the place of a value, one in the place of the items of a chain, one in the place of
#: several items of a list, as earlier releases wrote it. Each begins with the first.
VALUE: Final = "$piece"
CHAIN: Final = "$piece>"
ITEMS: Final = "$pieces"
#: Keys of the digest of a whole note, and of the piece that has its keys and the references that stay the same.
WHOLE: Final = "$piece="
FORM: Final = "$piece:"
_MARKS: Final = frozenset({VALUE, CHAIN, ITEMS, WHOLE, FORM})
#: References in a note from which on they are one piece, with its keys: those to what stays the same in all requests of
#: a conversation, such as its prompts and its tools.
_FORMED: Final = 2
#: Characters of JSON from which a value becomes a piece.
LONG = 200
#: A list of at most `FEW` items is no chain. A chain has `RUN` items on average and at most `LONGEST_RUN`.
FEW, RUN, LONGEST_RUN = 4, 16, 64
#: Number of cycles by which the column `last` may be behind.
SLACK = 64
BATCH = 250
#: Digest of a piece, as the bodies of cycles and other pieces refer to it.
_REFERENCE: Final = re.compile(r'"([0-9a-f]{24})"')
#: Beginnings of queries of the texts of rows that refer to pieces.
REFERRING: Final = {
    "cycle": "SELECT seq, body FROM cycle WHERE",
    "tape_piece": "SELECT seq, text FROM tape_piece WHERE last >= 0 AND",
}

#: Texts of pieces by digest; those of a chain are together, in its order.
Texts = Mapping[str, str]
#: Write a piece, or note that the cycle refers to it; a piece that is recent enough is not written again.
_KEEP: Final = (
    "INSERT INTO tape_piece (digest, last, bytes, text) VALUES (?, ?, ?, ?) ON CONFLICT (digest) DO UPDATE SET "
    f"last = excluded.last WHERE tape_piece.last < excluded.last - {SLACK // 4} OR tape_piece.last < 0"
)


class Pieces:
    """Pieces that were taken out of the notes of one cycle."""

    def __init__(self) -> None:
        self.texts: list[Texts] = []

    def without(self, value: Any) -> Any:
        """Return a note with references in the place of its long parts, without secrets."""
        plain = json.loads(mask_json(_json(value)))
        if not isinstance(plain, dict) or _MARKS & plain.keys():
            return self._part(plain)
        before = len(self.texts)
        note = {key: self._part(item) for key, item in plain.items()}
        whole = {WHOLE: _digest(_json(plain))} if len(self.texts) > before else {}
        if sum(map(_is_piece, note.values())) < _FORMED:
            return {**note, **whole}
        form = [[key, item if _is_piece(item) else None] for key, item in note.items()]
        values = [item for item in note.values() if not _is_piece(item)]
        return {FORM: self._piece(_json(form))[VALUE], "values": values, **whole}

    def _part(self, value: Any) -> Any:
        """Return a value with references in the place of its long texts and lists, and of itself if it is long then."""
        if isinstance(value, str):
            return value if len(value) < LONG else self._piece(_json(value))
        if isinstance(value, list):
            return self._list([self._part(item) for item in value])
        if not isinstance(value, dict):
            return value
        text = _json(value)
        if VALUE in text:  # it may have the key of a reference, so it is not looked into
            return self._piece(text)
        if len(text) < LONG:
            return value
        apart = Pieces()
        short = apart.without_texts(value)
        if len(_json(short)) >= LONG:
            return self._piece(text)
        self.texts += apart.texts
        return short

    def without_texts(self, value: Any) -> Any:
        """Return parsed JSON with references in the place of its long texts only. Raises: ValueError for a value in
        which an object has the key of a reference."""
        if isinstance(value, str):
            return value if len(value) < LONG else self._piece(_json(value))
        if isinstance(value, list):
            return [self.without_texts(item) for item in value]
        if not isinstance(value, dict):
            return value
        if not _MARKS.isdisjoint(value):
            raise ValueError("an object has the key of a reference")
        return {key: self.without_texts(item) for key, item in value.items()}

    def _piece(self, text: str) -> dict[str, str]:
        digest = _digest(text)
        self.texts.append({digest: text})
        return {VALUE: digest}

    def _list(self, items: list[Any]) -> list[Any]:
        """Return references to the complete chains of a list, and behind them one to the last chain."""
        if len(items) <= FEW:
            return items
        complete: list[Any] = []
        chain: list[Any] = []
        for item in items:
            chain.append(item)
            if int(_digest(_json(item))[:4], 16) % RUN == 0 or len(chain) == LONGEST_RUN:
                complete.append(self._chain(chain))
                chain = []
        if len(complete) < len(items):
            complete = self._list(complete)
        return [*complete, *([self._chain(chain)] if chain else [])]

    def _chain(self, items: Sequence[Any]) -> Any:
        texts, digest = dict[str, str](), ""
        for item in items:
            text = _json([digest, item])
            digest = _digest(text)
            texts[digest] = text
        self.texts.append(texts)
        return {CHAIN: digest}


def _is_piece(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {VALUE}


def write(connection: Connection, pieces: Sequence[Texts], cycle: int) -> None:
    """Write the pieces of the cycle with this number. Those of a chain are as recent as its last one."""
    for texts in pieces:
        *_, last = texts
        known = connection.execute("SELECT last FROM tape_piece WHERE digest = ?", (last,)).get
        if known is None or int(str(known)) < max(0, cycle - SLACK // 2):
            rows = [(digest, cycle, len(text) + 100, sealed(text)) for digest, text in texts.items()]
            connection.executemany(_KEEP, rows)


def with_pieces(connection: Connection, value: Any, missed: Callable[[str], object]) -> Any:
    """Return notes with their pieces put back; call `missed` with each digest that cannot be found or read, or of a
    note that is not what was recorded."""
    return [_note(connection, note, missed) for note in value]


def _note(connection: Connection, note: Any, missed: Callable[[str], object]) -> Any:
    gone, whole = list[str](), ""
    if isinstance(note, dict):
        whole = note.get(WHOLE, "")
        note = {key: value for key, value in note.items() if key != WHOLE}
        if FORM in note:
            values, form = iter(note["values"]), _read(connection, str(note[FORM]), gone.append)
            note = form if gone else {key: next(values) if item is None else item for key, item in form}
    plain = with_texts(connection, note, gone.append)
    if whole and not gone and _digest(_json(plain)) != whole:
        gone.append(str(whole))
    for digest in gone:
        missed(digest)
    return plain


def with_texts(connection: Connection, value: Any, missed: Callable[[str], object]) -> Any:
    """Return what `Pieces.without_texts` was given; call `missed` as `with_pieces` does."""
    if isinstance(value, dict):
        if _is_piece(value):
            return _read(connection, str(value[VALUE]), missed)
        return {key: with_texts(connection, item, missed) for key, item in value.items()}
    return list(_items(connection, value, missed)) if isinstance(value, list) else value


def trim(connection: Connection) -> int:
    """Delete one batch of the pieces that no cycle refers to any more. Return the number of deleted pieces."""
    first = connection.execute("SELECT min(seq) FROM cycle").get
    # Without cycles all pieces can go. No cycle is being written now, since this thread is the only one that writes.
    end = first - SLACK if isinstance(first, int) else 1 << 62
    connection.execute(
        "DELETE FROM tape_piece WHERE seq IN "
        "(SELECT seq FROM tape_piece WHERE last < ? AND last > ? ORDER BY last LIMIT ?)",
        (end, ~end, BATCH),
    )
    return connection.changes()


# -- pieces of cycles that are deleted before older ones


def suspect(connection: Connection, body: str) -> None:
    """Mark the pieces to which the body of a cycle refers, directly or through other pieces, as suspects."""
    names = _REFERENCE.findall(body)
    while names:
        names += _turn(connection, names.pop(), ">= 0")


def suspect_unused(connection: Connection) -> int:
    """Mark one batch of the pieces that are kept only because their number may be behind. Return their number."""
    connection.execute(
        "UPDATE tape_piece SET last = ~last WHERE seq IN (SELECT seq FROM tape_piece WHERE last >= 0 "
        "AND last < (SELECT coalesce(min(seq), ?) FROM cycle) LIMIT ?)",
        (1 << 62, BATCH),
    )
    return connection.changes()


def suspects(connection: Connection) -> list[str]:
    """Return the digests of all suspects."""
    return [str(digest) for (digest,) in connection.execute("SELECT digest FROM tape_piece WHERE last < 0")]


def referred(connection: Connection, table: str, after: int) -> tuple[set[str], int | None]:
    """Return the digests to which one batch of rows refers, and the number of its last row; None for no more rows.

    Args: table: a key of `REFERRING`; after: the number of the row behind which the batch begins.
    """
    digests, last = set[str](), None
    rows = connection.execute(f"{REFERRING[table]} seq > ? ORDER BY seq LIMIT ?", (after, BATCH))
    for seq, text in rows:
        last = int(str(seq))
        digests.update(_REFERENCE.findall(str(text)))
    return digests, last


def acquit(connection: Connection, digests: Sequence[str]) -> list[str]:
    """Make one batch of suspects ordinary pieces. Return the digests that are left, and those that the batch refers
    to."""
    names = list(digests[BATCH:])
    for digest in digests[:BATCH]:
        names += _turn(connection, digest, "< 0")
    return names


def drop(connection: Connection, digests: Sequence[str]) -> None:
    """Delete those of the pieces that are still suspects."""
    connection.executemany("DELETE FROM tape_piece WHERE digest = ? AND last < 0", [(digest,) for digest in digests])


def _turn(connection: Connection, digest: str, where: str) -> list[str]:
    """Invert the number of a piece if it is as `where` says. Return the digests to which the piece refers."""
    query = f"SELECT text FROM tape_piece WHERE digest = ? AND last {where}"
    if (text := connection.execute(query, (digest,)).get) is None:
        return []
    connection.execute("UPDATE tape_piece SET last = ~last WHERE digest = ?", (digest,))
    return _REFERENCE.findall(str(text))


def held(connection: Connection) -> int:
    """Return the approximate bytes of all pieces."""
    return int(connection.execute("SELECT coalesce(sum(bytes), 0) FROM tape_piece").get)


def _items(connection: Connection, items: list[Any], missed: Callable[[str], object]) -> Iterator[Any]:
    for item in items:
        if isinstance(item, dict) and item.keys() == {CHAIN}:
            yield from _items(connection, _chained(connection, str(item[CHAIN]), missed), missed)
        elif isinstance(item, dict) and item.keys() == {ITEMS}:
            run = _read(connection, str(item[ITEMS]), missed)
            yield from _items(connection, run, missed) if isinstance(run, list) else [run]
        else:
            yield with_texts(connection, item, missed)


def _chained(connection: Connection, digest: str, missed: Callable[[str], object]) -> list[Any]:
    """Return the items of a chain by the digest of its last piece."""
    items = []
    while digest:
        piece = _read(connection, digest, missed)
        digest, item = piece if isinstance(piece, list) and len(piece) == 2 else ("", piece)
        items.append(item)
    return items[::-1]


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
