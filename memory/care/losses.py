"""Notes of losses and damage, in a file beside the database, until a person acknowledges them.

The file has a line of JSON for each loss. It remains when the database is replaced or cannot be read.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from memory.codec import encode
from spar.decoding import decode

#: Appended to the name of the database.
SUFFIX = ".losses"
#: Most losses that are kept; of more the newest.
MOST = 100


class Loss(msgspec.Struct):
    """Loss: the time when it was noticed, a sentence about it, and the time when a person acknowledged it."""

    at: datetime
    what: str
    acknowledged_at: datetime | None = None


def note(path: str, sentences: list[str]) -> None:
    """Note losses. A sentence that is already noted, acknowledged or not, is not noted twice. Raises: OSError."""
    known = read(path)
    noted = {loss.what for loss in known}
    new = [Loss(datetime.now(UTC), sentence) for sentence in dict.fromkeys(sentences) if sentence not in noted]
    if new:
        _write(path, [*known, *new])


def acknowledge(path: str) -> list[Loss]:
    """Mark all losses as acknowledged. Return those that were not acknowledged before. Raises: OSError."""
    known, now = read(path), datetime.now(UTC)
    new = [loss for loss in known if loss.acknowledged_at is None]
    for loss in new:
        loss.acknowledged_at = now
    if new:
        _write(path, known)
    return new


def unseen(path: str) -> list[Loss]:
    """Return the losses that are not acknowledged, the oldest first."""
    return [loss for loss in read(path) if loss.acknowledged_at is None]


def read(path: str) -> list[Loss]:
    """Return all noted losses, the oldest first. A line that cannot be read counts as a loss."""
    try:
        lines = Path(f"{path}{SUFFIX}").read_bytes().splitlines()
    except OSError:
        return []
    losses: list[Loss] = []
    for number, line in enumerate(lines, 1):
        try:
            losses.append(decode(line, Loss))
        except msgspec.DecodeError:
            losses.append(Loss(datetime.now(UTC), f"line {number} of {path}{SUFFIX} cannot be read"))
    return losses


def _write(path: str, losses: list[Loss]) -> None:
    from memory.experiences.jsonl import write_lines  # imported late, since most processes have no losses

    write_lines(f"{path}{SUFFIX}", (encode(loss) for loss in losses[-MOST:]))
