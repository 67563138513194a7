"""The order in which perceptions of all sensors are taken: the most important first, equal ones in turn by sensor."""

from __future__ import annotations

from collections.abc import Sequence

from perception.supervision.buffer import SensorBuffer
from spar.types import Perception


def most_important(buffers: Sequence[SensorBuffer], at_most: int, most_bytes: int) -> list[Perception]:
    """Take the most important that wait in any of these buffers, at least one however large it is.

    What is left stays where it is. Of equal importance each sensor gives its oldest in turn, so that a flood of one
    does not keep the others waiting. Returned are those of the first buffer, then of the next, each as they came.
    """
    offers = [
        (-level, rank, of, number, size)
        for of, buffer in enumerate(buffers)
        for level, rank, number, size in buffer.best(at_most)
    ]
    offers.sort()
    chosen: list[list[int]] = [[] for _ in buffers]
    for count, (_, _, of, number, size) in enumerate(offers[:at_most]):
        most_bytes -= size
        if count and most_bytes < 0:
            break
        chosen[of].append(number)
    return [item for buffer, numbers in zip(buffers, chosen, strict=True) for item in buffer.take(numbers)]
