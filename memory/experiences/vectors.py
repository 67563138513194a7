"""Vectors of experiences: finds missing ones, stores them, computes their nearness to a query.

A vector is stored with one byte for each number, and with the fingerprint of its model: vectors of two models cannot
be compared, so those of a former model are computed again in idle time. Vectors, like the index, are derived from the
rows, so they have no seals.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from operator import mul
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from memory.experiences.rows import read_rows

if TYPE_CHECKING:
    from array import array

    from memory.engine.connection import Connection

#: Rows of one read that are checked for missing vectors.
LOOKED_AT: Final = 2_000
#: Characters of a text that are embedded; models read no more.
_LONGEST: Final = 2_000

_NAME = "INSERT INTO experience_vector_model (fingerprint) VALUES (?) ON CONFLICT DO NOTHING"
_MODEL = "SELECT number FROM experience_vector_model WHERE fingerprint = ?"
_MISSING = (
    "SELECT e.seq, v.experience IS NULL OR v.model <> ?2 OR v.words <> e.words FROM experience AS e "
    "LEFT JOIN experience_vector AS v ON v.experience = e.seq WHERE e.seq > ?1 ORDER BY e.seq LIMIT ?3"
)
_STALE = "SELECT experience FROM experience_vector WHERE model = 0 LIMIT ?"
_KEEP = (
    "INSERT INTO experience_vector (experience, model, words, vector) "
    "SELECT seq, ?2, words, ?4 FROM experience WHERE seq = ?1 AND words = ?3 "
    "ON CONFLICT (experience) DO UPDATE SET model = excluded.model, words = excluded.words, vector = excluded.vector"
)


#: Name of the storage format, beside the fingerprint of the model: vectors in another format are computed again.
_KIND: Final = "int8"
#: Head of a stored vector: the number by which its bytes are multiplied.
_SCALE: Final = struct.calcsize("<e")


class Missing(Struct, frozen=True):
    """Rows without a vector of the present model, with their texts; `upto` is the last row that was checked."""

    rows: tuple[tuple[int, int, str], ...] = ()
    upto: int = 0
    is_end: bool = True


def missing(connection: Connection, fingerprint: str, after: int, number: int) -> Missing:
    """Return rows whose words have changed, or the next rows after `after` without a vector of this model."""
    if stale := [int(str(seq)) for (seq,) in connection.execute(_STALE, (number,))]:
        return Missing(_texts(connection, stale), after, is_end=False)
    model = _model(connection, fingerprint) or 0
    checked = [(int(str(seq)), bool(lacks)) for seq, lacks in connection.execute(_MISSING, (after, model, LOOKED_AT))]
    lacking = [seq for seq, lacks in checked if lacks][:number]
    is_cut = len(lacking) == number
    upto = lacking[-1] if is_cut else checked[-1][0] if checked else after
    return Missing(_texts(connection, lacking), upto, is_end=not is_cut and len(checked) < LOOKED_AT)


def _texts(connection: Connection, seqs: Sequence[int]) -> tuple[tuple[int, int, str], ...]:
    rows = []
    for seq, experience in read_rows(connection, seqs):
        words = connection.execute("SELECT words FROM experience WHERE seq = ?", (seq,)).get
        parts = [experience.said or experience.situation, experience.answer]
        rows.append((seq, int(str(words)), "\n".join(filter(None, parts))[:_LONGEST]))
    return tuple(rows)


def keep(
    connection: Connection, fingerprint: str, rows: Sequence[tuple[int, int, str]], vectors: Sequence[bytes]
) -> None:
    """Store the packed vectors of these rows, except rows whose words have changed meanwhile."""
    name = _named(fingerprint)
    connection.execute(_NAME, (name,))
    model = _model(connection, fingerprint)
    for (seq, words, _), vector in zip(rows, vectors, strict=True):
        connection.execute(_KEEP, (seq, model, words, vector))


def nearness(fingerprint: str, wanted: array[float]) -> Callable[[Connection, Sequence[int]], dict[int, float]]:
    """Return a function that computes the nearness of rows to this vector; rows without a vector are left out."""

    def near(connection: Connection, seqs: Sequence[int]) -> dict[int, float]:
        model = _model(connection, fingerprint)
        if model is None or not seqs:
            return {}
        marks = ", ".join(map(str, seqs))
        query = f"SELECT experience, vector FROM experience_vector WHERE model = ? AND experience IN ({marks})"
        size = _SCALE + len(wanted)
        blobs = {seq: blob for seq, blob in connection.execute(query, (model,)) if len(blob) == size}
        return _products(blobs, wanted)

    return near


def held(connection: Connection, fingerprint: str) -> int:
    """Return the number of vectors of this model."""
    query = "SELECT count(*) FROM experience_vector WHERE model = ?"
    return int(str(connection.execute(query, (_model(connection, fingerprint) or 0,)).get))


def _model(connection: Connection, fingerprint: str) -> int | None:
    number = connection.execute(_MODEL, (_named(fingerprint),)).get
    return None if number is None else int(str(number))


def _named(fingerprint: str) -> str:
    return f"{fingerprint} {_KIND}"


def packed(vector: Sequence[float]) -> bytes:
    """Return a vector as a scale and one byte for each number. Cosines of MiniLM then differ by at most 0.004.

    Raises: ValueError, OverflowError for values that are no finite numbers.
    """
    scale = max(map(abs, vector), default=0.0) / 127 or 1.0
    return struct.pack(f"<e{len(vector)}b", scale, *(round(number / scale) for number in vector))


def _products(blobs: Mapping[Any, Any], wanted: array[float]) -> dict[int, float]:
    if not blobs:
        return {}
    if find_spec("numpy") is None:  # without numpy it is slower, with the same result
        layout = f"<e{len(wanted)}b"
        rows = ((seq, struct.unpack(layout, blob)) for seq, blob in blobs.items())
        return {seq: scale * sum(map(mul, numbers, wanted)) for seq, (scale, *numbers) in rows}
    numpy: Any = import_module("numpy")
    bytes_of = numpy.frombuffer(b"".join(blobs.values()), numpy.int8).reshape(len(blobs), -1)
    scales = bytes_of[:, :_SCALE].copy().view("<f2")[:, 0]
    # In this thread only: a product of matrices starts other threads, which costs more time than it saves.
    products = numpy.einsum(
        "ij,j->i", bytes_of[:, _SCALE:].astype(numpy.float32), numpy.frombuffer(wanted, numpy.float32)
    )
    return dict(zip(blobs, (scales * products).tolist(), strict=True))
