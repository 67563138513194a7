"""Answers about examples for people: the known labels, a taught example, the reading of a text."""

from __future__ import annotations

from spar.cli.blocks import Block, table
from spar.cli.tables import local, zoned
from spar.data.text import visible
from spar.operations.perceived import Examples, ReadingRow, Taught, TeachBody


def taught_blocks(given: TeachBody, row: Taught) -> list[Block]:
    """Return the sentence about an example that was just taught."""
    later = "; texts like it count when the training has ended" if row.is_training else ""
    return [f"learnt: {visible(given.text)!r} has the {given.what} {visible(row.label)}{later}"]


def examples_blocks(given: object, answer: Examples) -> list[Block]:
    """Return the known labels and the taught examples as tables."""
    labels = [(row.what, row.label, str(row.written), str(row.taught)) for row in answer.labels]
    taught = [(row.id, row.what, row.label, row.text, row.by, local(row.at)) for row in answer.taught]
    blocks: list[Block] = [
        table(("what", "label", ">written", ">taught"), labels) if labels else "nothing was learnt yet"
    ]
    if taught:
        blocks += ["", table(("id", "what", "label", "text", "by", zoned("at")), taught)]
    return [*blocks, *([f"\n{answer.failure}"] if answer.failure else [])]


def reading_blocks(given: object, readings: dict[str, ReadingRow | None]) -> list[Block]:
    """Return a line for each reading of a text."""
    return [f"{what:<8}{_reading_line(reading)}" for what, reading in readings.items()]


def _reading_line(reading: ReadingRow | None) -> str:
    """Return the label of a text with its confidence, slots and reason."""
    if reading is None:
        return "nothing was learnt"
    slots = "".join(f", {name} {visible(value)!r}" for name, value in reading.slots.items())
    label = "unknown" if reading.label is None else visible(reading.label)
    return f"{label} ({reading.confidence:.2f}){slots}: {visible(reading.why)}"
