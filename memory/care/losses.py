"""Notes of losses and damage, kept beside the file until somebody acknowledges them.

A line of JSON for each loss, in a file of its own: it is there also when the database is replaced or cannot be read.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from memory.codec.encoding import encode

#: Appended to the name of the database.
SUFFIX = ".losses"
#: Losses that are known; of more the newest.
MOST = 100


class Loss(msgspec.Struct):
    """A loss: in seconds of UTC when it was noticed, and when somebody acknowledged it."""

    at: datetime
    what: str
    acknowledged_at: datetime | None = None


def note(path: str, sentences: list[str]) -> None:
    """Note these; what is known, acknowledged or not, is not noted twice. Raises: OSError."""
    known = read(path)
    said = {loss.what for loss in known}
    new = [Loss(datetime.now(UTC), sentence) for sentence in dict.fromkeys(sentences) if sentence not in said]
    if new:
        _write(path, [*known, *new])


def acknowledge(path: str) -> list[Loss]:
    """Note that somebody has seen them; returns those that were not acknowledged before. Raises: OSError."""
    known, now = read(path), datetime.now(UTC)
    new = [loss for loss in known if loss.acknowledged_at is None]
    for loss in new:
        loss.acknowledged_at = now
    if new:
        _write(path, known)
    return new


def unseen(path: str) -> list[Loss]:
    """Return the losses that nobody has acknowledged, the oldest first."""
    return [loss for loss in read(path) if loss.acknowledged_at is None]


def read(path: str) -> list[Loss]:
    """Return all noted losses, the oldest first; a line that cannot be read counts as a loss."""
    try:
        lines = Path(f"{path}{SUFFIX}").read_bytes().splitlines()
    except OSError:
        return []
    found: list[Loss] = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(msgspec.json.decode(line, type=Loss))
        except msgspec.DecodeError:
            found.append(Loss(datetime.now(UTC), f"line {number} of {path}{SUFFIX} cannot be read"))
    return found


def _write(path: str, losses: list[Loss]) -> None:
    from memory.experiences.jsonl import write_lines  # most processes lose nothing

    write_lines(f"{path}{SUFFIX}", (encode(loss) for loss in losses[-MOST:]))
