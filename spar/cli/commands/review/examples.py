"""Commands for examples: teach the intent or kind of texts, list examples, try a text."""

from __future__ import annotations

from typing import Any, Literal

import click

from spar.cli.blocks import Block, table
from spar.cli.context import Options, show
from spar.cli.nouns import ask
from spar.cli.tables import local, zoned
from spar.operations.operation import Nothing
from spar.operations.perceived import TeachBody, TryBody, attempt, list_examples, teach


@click.command("teach")
@click.argument("text")
@click.argument("label")
@click.option("--what", type=click.Choice(["intent", "kind"]), default="intent", show_default=True,
              help="Whether LABEL is the intent of a text, or the kind of a line of a log.")  # fmt: skip
@click.pass_obj
def teach_example(options: Options, text: str, label: str, what: Literal["intent", "kind"]) -> None:
    """Teach that TEXT has the intent LABEL. The example is stored, and counts at once, also for similar texts.

    {name} in TEXT marks a word that the planner gets as a slot.

    \b
    Examples:
      spar examples teach "the shop is slow again" restart_shop
      spar examples teach "bounce {service} please" restart_service
      spar examples teach --what kind "RAS KERNEL FATAL data TLB error interrupt" log.alert
    """
    from spar.data.text import visible

    row = ask(options, teach, TeachBody(text, label, what))
    later = "; texts like it count when the training has ended" if row["is_training"] else ""
    show(options, row, f"learnt: {visible(text)!r} has the {what} {visible(row['label'])}{later}")


@click.command("list")
@click.pass_obj
def show_examples(options: Options) -> None:
    """List the known labels, and the taught examples.

    \b
    Example:
      spar examples list
    """
    answer = ask(options, list_examples, Nothing())
    labels = [(row["what"], row["label"], str(row["written"]), str(row["taught"])) for row in answer["labels"]]
    taught = [
        (row["id"], row["what"], row["label"], row["text"], row["by"], local(row["at"])) for row in answer["taught"]
    ]
    blocks: list[Block] = [
        table(("what", "label", ">written", ">taught"), labels) if labels else "nothing was learnt yet"
    ]
    if taught:
        blocks += ["", table(("id", "what", "label", "text", "by", zoned("at")), taught)]
    show(options, answer, *blocks, *([f"\n{answer['failure']}"] if answer["failure"] else []))


@click.command("try")
@click.argument("text")
@click.pass_obj
def try_text(options: Options, text: str) -> None:
    """Show how TEXT would be classified. Nothing is stored.

    \b
    Example:
      spar examples try "please bounce nginx"
    """
    readings = ask(options, attempt, TryBody(text))
    show(options, readings, "\n".join(f"{what:<8}{_reading_line(reading)}" for what, reading in readings.items()))


def _reading_line(reading: dict[str, Any] | None) -> str:
    """Return the label of a text with its confidence, slots and reason."""
    from spar.data.text import visible

    if reading is None:
        return "nothing was learnt"
    slots = "".join(f", {name} {visible(value)!r}" for name, value in reading["slots"].items())
    label = "unknown" if reading["label"] is None else visible(reading["label"])
    return f"{label} ({reading['confidence']:.2f}){slots}: {visible(reading['why'])}"
