"""Commands for learning from examples: teach the intent or kind of texts, list and forget examples, try a text."""

from __future__ import annotations

from typing import Any

import click

from spar.cli.blocks import Block, table
from spar.cli.client import service
from spar.cli.context import Options, show
from spar.cli.tables import local, zoned


@click.group()
def learn() -> None:
    """Teach the intents of texts by examples; list and forget examples."""


@learn.command("intent")
@click.argument("text")
@click.argument("label")
@click.pass_obj
def learn_intent(options: Options, text: str, label: str) -> None:
    """Teach that TEXT has the intent LABEL. The example is stored, and counts at once, also for similar texts.

    {name} in TEXT marks a word that the planner gets as a slot.

    \b
    Examples:
      spar learn intent "the shop is slow again" restart_shop
      spar learn intent "bounce {service} please" restart_service
    """
    _teach(options, "intent", text, label)


@learn.command("kind")
@click.argument("text")
@click.argument("label")
@click.pass_obj
def learn_kind(options: Options, text: str, label: str) -> None:
    """Teach that TEXT, a line of a log, has the kind LABEL.

    \b
    Example:
      spar learn kind "RAS KERNEL FATAL data TLB error interrupt" log.alert
    """
    _teach(options, "kind", text, label)


@learn.command("list")
@click.pass_obj
def list_examples(options: Options) -> None:
    """List the known labels, and the taught examples.

    \b
    Example:
      spar learn list
    """
    with service(options) as client:
        answer = client.get("/v1/examples")
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


@learn.command("forget")
@click.argument("example")
@click.pass_obj
def forget(options: Options, example: str) -> None:
    """Forget the EXAMPLE with this id, or with a unique beginning of one.

    \b
    Example:
      spar learn forget 3f9a1c
    """
    from spar.data.text import visible

    with service(options) as client:
        row = client.post("/v1/examples:forget", {"id": example})
    show(options, row, f"forgotten: {visible(row['text'])!r} had the {row['what']} {visible(row['label'])}")


@learn.command("try")
@click.argument("text")
@click.pass_obj
def attempt(options: Options, text: str) -> None:
    """Show how TEXT would be classified. Nothing is stored.

    \b
    Example:
      spar learn try "please bounce nginx"
    """
    with service(options) as client:
        readings = client.post("/v1/examples:try", {"text": text})
    show(options, readings, "\n".join(f"{what:<8}{_reading_line(reading)}" for what, reading in readings.items()))


def _teach(options: Options, what: str, text: str, label: str) -> None:
    from spar.data.text import visible

    with service(options) as client:
        row = client.post("/v1/examples:teach", {"what": what, "text": text, "label": label})
    later = "; texts like it count when the training has ended" if row["is_training"] else ""
    show(options, row, f"learnt: {visible(text)!r} has the {what} {visible(row['label'])}{later}")


def _reading_line(reading: dict[str, Any] | None) -> str:
    """Return the label of a text with its confidence, slots and reason."""
    from spar.data.text import visible

    if reading is None:
        return "nothing was learnt"
    slots = "".join(f", {name} {visible(value)!r}" for name, value in reading["slots"].items())
    label = "unknown" if reading["label"] is None else visible(reading["label"])
    return f"{label} ({reading['confidence']:.2f}){slots}: {visible(reading['why'])}"
