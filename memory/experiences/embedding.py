"""Vectors of experiences: computes missing ones in idle time, in a thread of its own, and their nearness to a query.

The writer's maintenance wakes it when the writer is idle. A batch is read, embedded in the thread, and handed to the
writer. An embedder that cannot be loaded is reported once, and recall then uses words alone.

A vector is stored with one byte for each number, and with the fingerprint of its model: vectors of two models cannot
be compared, so those of a former model are computed again in idle time. Vectors, like the index, are derived from the
rows, so they have no seals.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from operator import mul
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct

from memory.experiences.rows import read_rows
from memory.experiences.search import Nearness
from spar.clock import Clock
from spar.errors import TransientError
from spar.ports.services import Embedder
from spar.threads import Threads
from spar.types import Fault

if TYPE_CHECKING:
    from array import array

    from memory.engine.connection import Connection
    from memory.engine.session import DatabaseSession


Vectors = TypeVar("Vectors")

#: Texts of one batch, and batches after which the writer must be idle again.
BATCH, BATCHES = 16, 16


class Embedding:
    """Embeds for one memory while it is open.

    Args: file: returns the open file; report: called for an embedder that does not work.
    """

    def __init__(
        self,
        embedder: Embedder,
        clock: Callable[[], Clock],
        file: Callable[[], DatabaseSession],
        report: Callable[[Fault], None],
    ) -> None:
        self._embedder, self._clock, self._file, self._report = embedder, clock, file, report
        self._threads: Threads | None = None
        self._upto, self._is_broken = 0, False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start the task that waits for idle moments."""
        self._loop, self._idle = asyncio.get_running_loop(), asyncio.Event()
        self._task = asyncio.create_task(self._live(), name="memory embedding")

    async def end(self) -> None:
        """Stop the task. The next process computes the vectors that are still missing."""
        task, self._task, self._loop = self._task, None, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def wake(self) -> None:
        """Note that the writer is idle. Safe from any thread."""
        loop, idle = self._loop, self._idle
        if loop is not None and idle is not None and not self._is_broken:
            with suppress(RuntimeError):  # the loop is being closed
                loop.call_soon_threadsafe(idle.set)

    async def nearness(self, query: str) -> Nearness | None:
        """Return a function that computes how near rows are to a query; None if there is no vector of the query."""
        if self._is_broken:
            return None
        try:
            [vector] = await self._run(self._embedder.embed, [query])
        except Exception as error:  # an embedder is a stranger's
            self._fail(error)
            return None
        return nearness(self._embedder.fingerprint, vector)

    async def step(self) -> bool:
        """Embed one batch. Return whether there may be more. Raises: the errors of the embedder and the file."""
        fingerprint = self._embedder.fingerprint
        file = self._file()
        lacking = await file.read(partial(missing, fingerprint=fingerprint, after=self._upto, number=BATCH))
        if lacking.rows:
            packed = await self._run(self._packed, [text for _, _, text in lacking.rows])
            write = partial(keep, fingerprint=fingerprint, rows=lacking.rows, vectors=packed)
            await file.put(write, sum(map(len, packed)))
        self._upto = lacking.upto
        return not lacking.is_end

    async def _live(self) -> None:
        assert self._idle is not None
        while not self._is_broken:
            await self._idle.wait()
            self._idle.clear()
            try:
                for _ in range(BATCHES):
                    if not await self.step():
                        break
            except TransientError:  # the file cannot be read or written now, which the writer reports
                continue
            except Exception as error:  # an embedder is a stranger's
                self._fail(error)

    def _packed(self, texts: list[str]) -> list[bytes]:
        return [packed(text) for text in self._embedder.embed(texts)]

    async def _run(self, work: Callable[[list[str]], Vectors], texts: list[str]) -> Vectors:
        if self._threads is None:
            self._threads = Threads("memory embedding", self._clock(), limit=2)
        return await self._threads.run(work, texts)

    def _fail(self, error: Exception) -> None:
        if not self._is_broken:
            self._is_broken = True
            self._report(Fault.of(error, part="memory"))


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
