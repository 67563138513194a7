"""Examination of perceptions: the result of a pipeline for each, for people."""

from __future__ import annotations

from collections.abc import Sequence

from perception.pipeline import Pipeline
from spar.ids import new_id
from spar.records.perceived import Examined
from spar.types import Perception, replace


def examined(pipeline: Pipeline, batch: Sequence[Perception]) -> list[Examined]:
    """Return the result of a pipeline for each perception of a batch, in order.

    Each perception gets a new id, so that repetitions in the batch stay apart.
    """
    renamed = [replace(perception, id=new_id()) for perception in batch]
    pipeline.dropped.clear()
    out = {perception.id: perception for perception in pipeline.process(renamed)}
    decisions = {decision.id: decision for decision in pipeline.dropped}
    results: list[Examined] = []
    for perception in renamed:
        decision = decisions.get(perception.id)
        if (result := out.get(perception.id)) is not None or decision is None:
            results.append(Examined(perception, result))
        else:
            results.append(Examined(perception, None, decision.stage, decision.reason, decision.into))
    return results
