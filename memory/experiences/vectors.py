"""Vectors of experiences: which are missing, how they are kept, how near they are to what is asked for.

They are kept as one byte a number beside the fingerprint of the model that made them: those of two models cannot be
compared, and are made anew when there is time. They are derived, as the index is, so that they have no seals.
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

    from apsw import Connection

#: Rows that are looked at in one read for missing vectors.
LOOKED_AT: Final = 2_000
#: Characters of a text that are embedded: a model reads no more.
_LONGEST: Final = 2_000

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


#: How numbers are kept, beside the fingerprint of the model: vectors that were kept in another way are made anew.
_KIND: Final = "int8"
#: What stands before the bytes: the number by which each is multiplied.
_SCALE: Final = struct.calcsize("<e")


class Missing(Struct, frozen=True):
    """Some rows without a vector of the present model, with their texts, and up to which row was looked."""

    rows: tuple[tuple[int, int, str], ...] = ()
    upto: int = 0
    is_end: bool = True


def missing(connection: Connection, fingerprint: str, after: int, number: int) -> Missing:
    """Return some rows whose words have changed, or else the next after this one that have no vector of this model."""
    if stale := [int(str(seq)) for (seq,) in connection.execute(_STALE, (number,))]:
        return Missing(_texts(connection, stale), after, is_end=False)
    model = _model(connection, fingerprint) or 0
    found = [(int(str(seq)), bool(lacks)) for seq, lacks in connection.execute(_MISSING, (after, model, LOOKED_AT))]
    lacking = [seq for seq, lacks in found if lacks][:number]
    is_cut = len(lacking) == number
    upto = lacking[-1] if is_cut else found[-1][0] if found else after
    return Missing(_texts(connection, lacking), upto, is_end=not is_cut and len(found) < LOOKED_AT)


def _texts(connection: Connection, seqs: Sequence[int]) -> tuple[tuple[int, int, str], ...]:
    rows = []
    for seq, experience in read_rows(connection, seqs):
        words = connection.execute("SELECT words FROM experience WHERE seq = ?", (seq,)).get
        told = [experience.said or experience.situation, experience.answer]
        rows.append((seq, int(str(words)), "\n".join(filter(None, told))[:_LONGEST]))
    return tuple(rows)


def keep(
    connection: Connection, fingerprint: str, rows: Sequence[tuple[int, int, str]], vectors: Sequence[bytes]
) -> None:
    """Keep the packed vectors of these rows, but for those whose words have changed since."""
    name = _named(fingerprint)
    connection.execute("INSERT OR IGNORE INTO experience_vector_model (fingerprint) VALUES (?)", (name,))
    model = _model(connection, fingerprint)
    for (seq, words, _), vector in zip(rows, vectors, strict=True):
        connection.execute(_KEEP, (seq, model, words, vector))


def nearness(fingerprint: str, wanted: array[float]) -> Callable[[Connection, Sequence[int]], dict[int, float]]:
    """Return what says of rows how near their texts are to this vector; who has none of this model is left out."""

    def near(connection: Connection, seqs: Sequence[int]) -> dict[int, float]:
        model = _model(connection, fingerprint)
        if model is None or not seqs:
            return {}
        marks = ", ".join(map(str, seqs))
        query = f"SELECT experience, vector FROM experience_vector WHERE model = ? AND experience IN ({marks})"
        size = _SCALE + len(wanted)
        found = {seq: blob for seq, blob in connection.execute(query, (model,)) if len(blob) == size}
        return _products(found, wanted)

    return near


def held(connection: Connection, fingerprint: str) -> int:
    """Return how many vectors of this model there are."""
    query = "SELECT count(*) FROM experience_vector WHERE model = ?"
    return int(str(connection.execute(query, (_model(connection, fingerprint) or 0,)).get))


def _model(connection: Connection, fingerprint: str) -> int | None:
    number = connection.execute(_MODEL, (_named(fingerprint),)).get
    return None if number is None else int(str(number))


def _named(fingerprint: str) -> str:
    return f"{fingerprint} {_KIND}"


def packed(vector: Sequence[float]) -> bytes:
    """Return a vector as a scale and one byte a number; cosines of MiniLM are wrong by at most 0.004 then.

    Raises: ValueError, OverflowError for what is no number.
    """
    scale = max(map(abs, vector), default=0.0) / 127 or 1.0
    return struct.pack(f"<e{len(vector)}b", scale, *(round(number / scale) for number in vector))


def _products(found: Mapping[Any, Any], wanted: array[float]) -> dict[int, float]:
    if not found:
        return {}
    if find_spec("numpy") is None:  # an embedder of another kind: slower, and the same
        layout = f"<e{len(wanted)}b"
        rows = ((seq, struct.unpack(layout, blob)) for seq, blob in found.items())
        return {seq: scale * sum(map(mul, numbers, wanted)) for seq, (scale, *numbers) in rows}
    numpy: Any = import_module("numpy")
    bytes_of = numpy.frombuffer(b"".join(found.values()), numpy.int8).reshape(len(found), -1)
    scales = bytes_of[:, :_SCALE].copy().view("<f2")[:, 0]
    # By this thread alone: a product of matrices wakes others, which take more time to begin than it takes.
    products = numpy.einsum(
        "ij,j->i", bytes_of[:, _SCALE:].astype(numpy.float32), numpy.frombuffer(wanted, numpy.float32)
    )
    return dict(zip(found, (scales * products).tolist(), strict=True))
