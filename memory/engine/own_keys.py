"""Keys in the table `state` that belong to the memory and not to the agent; the epoch and fences of an opening."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from memory.engine import hash_chain
from spar.types import Fault

if TYPE_CHECKING:
    from memory.engine.connection import Connection

EPOCH: Final = "epoch"  # the number of openings for writing
FENCE: Final = "fence"  # the number up to which fences are reserved
FLUSHED: Final = "flushed"  # the number of the last numbered flush (`memory.sqlite.wal_watermark`)
SEALS: Final = "seals"  # the totals of all seals (`memory.sqlite.seals`)
COUNTED: Final = "counted"  # the numbers of the fact and the cycle up to which `memory.counts` has added up
OWN_KEYS: Final = (EPOCH, FENCE, hash_chain.FACTS.anchor, hash_chain.AUDIT.anchor, FLUSHED, SEALS, COUNTED)

#: Fences reserved by one opening. A process that uses more has run for at least as many microseconds, so the clock from
#: which the next opening takes its first fence is beyond them.
FENCES: Final = 1 << 24
_CLOCK_LIMIT: Final = 1 << 52  # microseconds; a clock beyond the year 2112 is not believed


class Prepared(Struct, frozen=True):
    """Database that is ready to be written: its connection, its epoch, and the damage that the opening found.

    `fence` is the number above which the fences of this process begin; `broken` is the first of the newest facts that
    does not fit the chain.
    """

    connection: Any
    epoch: int
    fence: int
    broken: hash_chain.ChainBreak | None = None
    faults: tuple[Fault, ...] = ()


def prepared(connection: Connection, name: str, epoch: int, fence: int, damage: Iterable[str] = ()) -> Prepared:
    """Return a database that is ready to be written, whose newest facts are checked.

    Args: name: the database for people; epoch, fence: those of this opening; damage: sentences about what it found.
    """
    broken = hash_chain.check(connection, last=hash_chain.TAIL)
    if broken is not None:
        sentence = f"{name}: {broken}; everything that can be read is gone on with, see: spar memory verify"
        damage = (*damage, sentence)
    faults = tuple([Fault("damaged", sentence, "memory", retryable=False) for sentence in damage])
    return Prepared(connection, epoch, fence, broken, faults)


def first_fence(reserved: int, epoch: int) -> int:
    """Return the number above which the fences of an opening begin; all earlier openings of this data gave lower ones.

    It is the wall clock in microseconds or the end of the reserved fences. The clock keeps fences above those that a
    restored copy does not know of, and below 2**53, so that every reader of JSON distinguishes neighbours. Releases
    that reserved no fences gave `epoch << 52` and more: such a file continues above those while 64 bits have room.
    """
    if reserved <= 0 and epoch:
        reserved = min((epoch << 52) + (1 << 40), (1 << 63) - (1 << 48))
    now = time.time_ns() // 1_000
    return max(reserved, now if now < _CLOCK_LIMIT else 0)


#: The statement that writes a value of the table.
SAVE: Final = "INSERT INTO state (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"


def next_epoch(connection: Connection, earlier: int, reserved: int) -> tuple[int, int]:
    """Raise the epoch by one and reserve fences. Return the epoch, and the number above which its fences begin.

    Args: earlier: the epoch before; reserved: the fences that are reserved.
    """
    fence = first_fence(reserved, earlier)
    newest = [hash_chain.newest(connection), hash_chain.integer(connection, "SELECT max(seq) FROM cycle")]
    for key, value in ((EPOCH, earlier + 1), (FENCE, fence + FENCES)):
        connection.execute(SAVE, (key, str(value)))
    begin = "INSERT INTO state (key, value) VALUES (?, ?) ON CONFLICT DO NOTHING"
    connection.execute(begin, (COUNTED, f"[{newest[0]},{newest[1]}]"))
    return earlier + 1, fence
