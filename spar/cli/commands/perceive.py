"""The command `perceive`: shows what the configured sense pipeline makes of lines; nothing is stored or started."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, BinaryIO

import click

from spar.cli.context import Options, fail, refusals, write
from spar.data.bounded import BoundedDict
from spar.data.text import one_line, visible
from spar.decoding import convert
from spar.parts.factory import Parts
from spar.ports.any_part import has
from spar.ports.phases import OptionalSense
from spar.service import exit_codes as exits
from spar.types import Perception

#: Lines that go through the pipeline together, as in one cycle; longest line, in bytes.
BATCH, LONGEST = 500, 1_048_576
#: Lines whose numbers are remembered, to name the line that a later one was merged into.
REMEMBERED = 100_000
#: Unreadable lines that are named; beyond it only their number is printed.
NAMED = 20
#: The default kind of lines of text; a JSON object has its own kind.
_LINES = "log"
#: Width of the columns with text of the input, in characters.
TEXT = 60
#: Attributes that stages add and that are shown.
_FINDINGS = (
    "template", "template_id", "anomaly", "slots", "intent_why", "kind_why", "incident", "count"
)  # fmt: skip
_HEADS = f"{'line':>7}  {'became':<16} {'kind':<15} {'intent':<14} {'prio':>5}  text and why"


@click.command()
@click.argument("file", type=click.File("rb"))
@click.option("--sensor", default="perceive", show_default=True, help="The sensor that they are taken to come from.")
@click.option("--kind", default=_LINES, show_default=True,
              help='Their kind, for lines of text; "message": people say them; "": the pipeline finds it.')  # fmt: skip
@click.pass_obj
def perceive(options: Options, file: BinaryIO, sensor: str, kind: str) -> int | None:
    """Show what the pipeline makes of a file of lines, or of JSON objects, one a line ("-": standard input).

    A JSON object has the fields of a perception (content, kind, key, subject, at, attributes, …). Nothing is written,
    and no service is needed or disturbed. Code 1 when lines could not be read.

    \b
    Examples:
      spar cycles perceive /var/log/syslog
      journalctl -o cat -n 1000 | spar cycles perceive - --sensor journal
      echo "please restart the shop" | spar cycles perceive - --kind message
      spar cycles perceive alerts.jsonl --kind alert --json
    """
    sense, source, lines = _examiner(options), _Input(file, sensor, kind), BoundedDict[str, int](REMEMBERED)
    if not options.as_json:
        write(_HEADS)
    perceptions = source.perceptions()
    while batch := list(islice(perceptions, BATCH)):
        findings = sense.examine([perception for _, perception in batch])
        for (number, _), examined in zip(batch, findings, strict=True):
            lines[examined.given.id] = number
        for (number, _), examined in zip(batch, findings, strict=True):
            row = _row(number, examined, lines.get(examined.into))
            write(json.dumps(row, default=str) if options.as_json else _line(row, examined.result or examined.given))
    counts = sense.stage_counts()
    if options.as_json:
        write(json.dumps({"lines": source.number, "unreadable": source.unreadable, "stages": counts}))
    else:
        write(f"\n{source.number} lines, {source.unreadable} of them cannot be read")
        for stage, of_stage in counts.items():
            write(f"  {stage:<12}" + "  ".join(f"{name} {number}" for name, number in of_stage.items()))
    for sentence in source.complaints:
        click.echo(visible(sentence), err=True)
    if (more := source.unreadable - len(source.complaints)) > 0:
        click.echo(f"… and {more} lines more that cannot be read", err=True)
    return exits.FAILED if source.unreadable else None


class _Input:
    """Input whose lines become perceptions.

    Attributes: number: of the line that was read last; unreadable: how many lines cannot be read; complaints: a
        sentence about each of the first ones.
    """

    def __init__(self, stream: BinaryIO, sensor: str, kind: str) -> None:
        self._stream, self._sensor, self._kind = stream, sensor, kind
        self.number = self.unreadable = 0
        self.complaints: list[str] = []

    def perceptions(self) -> Iterator[tuple[int, Any]]:
        """Yield the perceptions with the numbers of their lines."""
        while line := self._stream.readline(LONGEST + 1):
            self.number += 1
            is_long = len(line) > LONGEST
            while is_long and line and not line.endswith(b"\n"):
                line = self._stream.readline(LONGEST)
            try:
                if is_long:
                    raise ValueError(f"longer than {LONGEST} bytes")
                if (text := line.decode("utf-8", "replace").rstrip("\r\n")).strip():
                    yield self.number, self._perception(text)
            except (ValueError, TypeError, RecursionError) as error:
                self.unreadable += 1
                if len(self.complaints) < NAMED:
                    self.complaints.append(f"line {self.number} cannot be read: {one_line(str(error), 300)}")

    def _perception(self, text: str) -> Any:
        """Return the perception of a line. Raises: ValueError, TypeError for a malformed one."""
        if not text.lstrip().startswith("{"):
            return Perception(text, source=self._sensor, kind=self._kind)
        fields = json.loads(text)
        kind = "" if self._kind == _LINES else self._kind  # a JSON object has its own
        if "content" not in fields:
            return Perception(fields, source=self._sensor, kind=kind)
        usual = {"source": self._sensor, "kind": kind}
        given = {name: value for name, value in fields.items() if name != "evidence" and (name != "kind" or value)}
        return convert(usual | given, Perception)


def _examiner(options: Options) -> Any:
    """Return the configured sense module. One that cannot be examined ends the command."""
    loaded = options.load()
    with refusals():
        sense = Parts(loaded).module("sense")
    if not has(sense, OptionalSense.examine, OptionalSense.stage_counts):
        module = f"the sense module {loaded.settings.sense.use!r}"
        fail(f"{module} cannot show what it makes of perceptions", exits.UNAVAILABLE)
    return sense


def _row(number: int, examined: Any, into: int | None) -> dict[str, Any]:
    """Return the result for a line. Args: into: the number of the line that it was merged into, None for none."""
    result, reason = examined.result, examined.reason
    if into is not None:
        reason = reason.replace(examined.into, f"line {into}")
    row = {"line": number, "id": examined.given.id, "became": _became(examined), "reason": reason}
    if examined.into:
        row["into"] = examined.into if into is None else into
    if result is None:
        return row
    why = result.attributes.get("why")
    row |= {"kind": result.kind, "intent": result.intent, "priority": result.priority,
            "why": [str(reason) for reason in why] if isinstance(why, list) else []}  # fmt: skip
    return row | {name: result.attributes[name] for name in _FINDINGS if name in result.attributes}


def _line(row: dict[str, Any], perception: Any) -> str:
    """Return a result as text: a line of cells, and a line with the reasons."""
    try:
        text = str(perception.text)
    except (TypeError, ValueError):
        text = repr(perception.content)
    kind, intent, text = (visible(one_line(cell, room)) for cell, room in (
        (perception.kind, 15), (perception.intent, 14), (text, TEXT)))  # fmt: skip
    priority = "" if perception.priority is None else f"{perception.priority:.2f}"
    findings = [f"{name} {one_line(str(row[name]), TEXT)}" for name in _FINDINGS if name in row]
    why = visible("; ".join([*findings, *row.get("why", [row["reason"]])]))
    line = f"{row['line']:>7}  {row['became']:<16} {kind:<15} {intent:<14} {priority:>5}  {text}"
    return f"{line}\n{'':>27}{why}" if why else line


def _became(examined: Any) -> str:
    """Return what a line became: dropped by a stage, an incident, a part of one, or a perception of its own."""
    if examined.result is None:
        return f"{examined.stage}: out"
    if examined.result.kind.startswith("incident."):
        return str(examined.result.kind)
    return f"joins {examined.result.attributes['incident']}" if "incident" in examined.result.attributes else "itself"
