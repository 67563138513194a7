"""FrozenLake on four by four fields, the deterministic version: find the way over the ice without falling into a hole.

As in Gymnasium's `FrozenLake-v1` with `is_slippery=False`: four moves, and only the goal gives a reward.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from benchmarks.environments.environment import Change, Observation, Offer

FIELDS = "SFFFFHFHFFFHHFFG"
WIDTH = 4
MOVES = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}


class FrozenLake:
    """Environment of sixteen fields. An episode ends on the goal, in a hole, or after `most_steps` moves.

    Args: order: seed that shuffles the offered moves, None leaves them in Gymnasium's order.
    """

    name = "lake"
    seconds = 1.0

    def __init__(self, *, most_steps: int = 100, order: int | None = None) -> None:
        moves = list(MOVES) if order is None else random.Random(order).sample(list(MOVES), len(MOVES))
        self.offers = [Offer(move, f"Go one field {move}.") for move in moves]
        self._most, self._field, self._steps = most_steps, 0, 0

    def reset(self, seed: int | None = None) -> Observation:
        self._field, self._steps = 0, 0
        return self._observation()

    def step(self, tool: str, params: Mapping[str, Any]) -> Change:
        self._steps += 1
        down, right = MOVES.get(tool, (0, 0))
        row, column = divmod(self._field, WIDTH)
        row, column = (min(max(row + down, 0), WIDTH - 1), min(max(column + right, 0), WIDTH - 1))
        self._field = row * WIDTH + column
        there = FIELDS[self._field]
        is_cut = there not in "GH" and self._steps >= self._most
        error = "there was a hole in the ice" if there == "H" else ""
        return Change(self._observation(), float(there == "G"), is_cut or there in "GH", error, is_cut=is_cut)

    def _observation(self) -> Observation:
        row, column = divmod(self._field, WIDTH)
        return Observation(
            f"on the ice, row {row + 1}, column {column + 1}",
            kind="lake",
            subject=f"field {self._field}",
            attributes={"field": str(self._field)},
        )
