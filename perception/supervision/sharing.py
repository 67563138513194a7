"""Order in which the perceptions of all sensors are taken: the most important first, equal ones in turn by sensor."""

from __future__ import annotations

from collections.abc import Sequence

from perception.supervision.buffer import SensorBuffer
from spar.types import Perception


def most_important(buffers: Sequence[SensorBuffer], at_most: int, most_bytes: int) -> list[Perception]:
    """Take the most important waiting perceptions of these buffers, at least one of any size.

    The others stay in their buffers. Of equal importance each sensor gives its oldest in turn, so that a flood of one
    does not delay the others. The result holds those of the first buffer, then of the next, each in the order of
    arrival.
    """
    offers = [
        (-level, rank, place, number, size)
        for place, buffer in enumerate(buffers)
        for level, rank, number, size in buffer.best(at_most)
    ]
    offers.sort()
    chosen: list[list[int]] = [[] for _ in buffers]
    for count, (_, _, place, number, size) in enumerate(offers[:at_most]):
        most_bytes -= size
        if count and most_bytes < 0:
            break
        chosen[place].append(number)
    return [item for buffer, numbers in zip(buffers, chosen, strict=True) for item in buffer.take(numbers)]
