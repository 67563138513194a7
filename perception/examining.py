"""Examination of perceptions: what a pipeline makes of each, for people who look."""

from __future__ import annotations

from collections.abc import Sequence

from perception.pipeline import Pipeline
from spar.ids import new_id
from spar.records.perceived.examined import Examined
from spar.types import Perception, replace


def examined(pipeline: Pipeline, batch: Sequence[Perception]) -> list[Examined]:
    """Return what a pipeline makes of each perception of a batch, in order.

    Each is given an id of its own for that, so that what repeats another one's is told apart.
    """
    given = [replace(perception, id=new_id()) for perception in batch]
    pipeline.dropped.clear()
    out = {perception.id: perception for perception in pipeline.process(given)}
    taken = {decision.id: decision for decision in pipeline.dropped}
    found: list[Examined] = []
    for perception in given:
        decision = taken.get(perception.id)
        if (result := out.get(perception.id)) is not None or decision is None:
            found.append(Examined(perception, result))
        else:
            found.append(Examined(perception, None, decision.stage, decision.reason, decision.into))
    return found
