"""The command `perceive`: shows what the configured sense pipeline makes of lines; nothing is stored or started."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import click

from spar.cli.context import Options, fail, refusals, write
from spar.data.bounded import BoundedDict
from spar.data.text import one_line, visible
from spar.decoding import convert
from spar.service import exit_codes as exits

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
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--sensor", default="perceive", show_default=True, help="The sensor that they are taken to come from.")
@click.option("--kind", default=_LINES, show_default=True,
              help='Their kind, for lines of text; "message": people say them; "": the pipeline finds it.')  # fmt: skip
@click.pass_obj
def perceive(options: Options, file: str, sensor: str, kind: str) -> int | None:
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
    examine = _examiner(options)
    reader, lines = _Reader(sensor, kind), BoundedDict[str, int](REMEMBERED)
    with _opened(file) as stream:
        if not options.as_json:
            write(_HEADS)
        for numbers, batch in reader.batches(stream):
            findings = examine.examine(batch)
            for number, examined in zip(numbers, findings, strict=True):
                lines[examined.given.id] = number
            for number, examined in zip(numbers, findings, strict=True):
                _show(options, number, examined, lines.get(examined.into))
    counts = examine.stage_counts()
    if options.as_json:
        write(json.dumps({"lines": reader.number, "unreadable": reader.unreadable, "stages": counts}))
    else:
        _summary(reader, counts)
    for sentence in reader.complaints:
        click.echo(visible(sentence), err=True)
    if (more := reader.unreadable - len(reader.complaints)) > 0:
        click.echo(f"… and {more} lines more that cannot be read", err=True)
    return exits.FAILED if reader.unreadable else None


class _Reader:
    """Reader that makes perceptions of lines. `complaints` names the first lines that cannot be read."""

    def __init__(self, sensor: str, kind: str) -> None:
        self._sensor, self._kind = sensor, kind
        self.number = self.unreadable = 0
        self.complaints: list[str] = []

    def batches(self, stream: BinaryIO) -> Iterator[tuple[list[int], list[Any]]]:
        """Yield batches of perceptions with the numbers of their lines."""
        numbers: list[int] = []
        batch: list[Any] = []
        for line in self._lines(stream):
            try:
                perception = self._perception(line)
            except (ValueError, TypeError, RecursionError) as error:
                self._complain(str(error))
                continue
            if perception is not None:
                numbers.append(self.number)
                batch.append(perception)
            if len(batch) >= BATCH:
                yield numbers, batch
                numbers, batch = [], []
        if batch:
            yield numbers, batch

    def _lines(self, stream: BinaryIO) -> Iterator[bytes]:
        """Yield the lines; a too long one is skipped and counted as unreadable."""
        while line := stream.readline(LONGEST + 1):
            self.number += 1
            if len(line) <= LONGEST:
                yield line
                continue
            while line and not line.endswith(b"\n"):
                line = stream.readline(LONGEST)
            self._complain(f"longer than {LONGEST} bytes")

    def _perception(self, line: bytes) -> Any:
        """Return the perception of a line, None for a blank one. Raises: ValueError, TypeError for a malformed one."""

        from spar.types import Perception, replace

        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if not text.strip():
            return None
        if not text.lstrip().startswith("{"):
            return Perception(text, source=self._sensor, kind=self._kind)
        fields = json.loads(text)
        if "content" not in fields:
            return Perception(fields, source=self._sensor, kind="" if self._kind == _LINES else self._kind)
        perception = convert({key: value for key, value in fields.items() if key != "evidence"}, Perception)
        changes: dict[str, Any] = {}
        if perception.source == "manual":
            changes["source"] = self._sensor
        if not perception.kind and self._kind != _LINES:
            changes["kind"] = self._kind
        return replace(perception, **changes) if changes else perception

    def _complain(self, why: str) -> None:
        self.unreadable += 1
        if len(self.complaints) < NAMED:
            self.complaints.append(f"line {self.number} cannot be read: {one_line(why, 300)}")


def _examiner(options: Options) -> Any:
    """Return the configured sense module. One that cannot be examined ends the command."""
    from spar.config.factory import Parts
    from spar.ports.optional import Examines, offers

    loaded = options.load()
    with refusals():
        sense = Parts(loaded).sense()
    if not offers(sense, Examines):
        fail(
            f"the sense module {loaded.settings.sense.use!r} cannot show what it makes of perceptions",
            exits.UNAVAILABLE,
        )
    return sense


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        stream = Path(file).open("rb")  # noqa: SIM115 - closed below; errors of reading are not caught here
    except OSError as error:
        fail(f"{file}: cannot be read: {error.strerror}", exits.UNAVAILABLE)
    with stream:
        yield stream


def _show(options: Options, number: int, examined: Any, into: int | None) -> None:
    """Print the result for a line. Args: into: the number of the line that it was merged into, None for none."""
    original, result = examined.given, examined.result
    reason = examined.reason if into is None else examined.reason.replace(examined.into, f"line {into}")
    became = _became(examined)
    if options.as_json:
        row: dict[str, Any] = {"line": number, "id": original.id, "became": became, "reason": reason}
        if examined.into:
            row["into"] = examined.into if into is None else into
        if result is not None:
            row |= {"kind": result.kind, "intent": result.intent, "priority": result.priority, "why": _why(result)}
            row |= {name: result.attributes[name] for name in _FINDINGS if name in result.attributes}
        write(json.dumps(row, default=str))
        return
    perception = result if result is not None else original
    priority = "" if perception.priority is None else f"{perception.priority:.2f}"
    text = visible(one_line(_text(original), TEXT))
    reasons = [reason] if result is None else _why(result)
    findings = [
        f"{name} {one_line(str(perception.attributes[name]), TEXT)}"
        for name in _FINDINGS
        if name in perception.attributes
    ]
    why = visible("; ".join([*findings, *reasons]))
    write(f"{number:>7}  {became:<16} {_cell(perception.kind, 15)} {_cell(perception.intent, 14)} {priority:>5}  {text}"
          + (f"\n{'':>27}{why}" if why else ""))  # fmt: skip


def _became(examined: Any) -> str:
    """Return what a line became: dropped by a stage, an incident, a part of one, or a perception of its own."""
    if examined.result is None:
        return f"{examined.stage}: out"
    if examined.result.kind.startswith("incident."):
        return str(examined.result.kind)
    return f"joins {examined.result.attributes['incident']}" if "incident" in examined.result.attributes else "itself"


def _why(result: Any) -> list[str]:
    why = result.attributes.get("why")
    return [str(reason) for reason in why] if isinstance(why, list) else []


def _text(perception: Any) -> str:
    try:
        return str(perception.text)
    except (TypeError, ValueError):
        return repr(perception.content)


def _cell(text: str, width: int) -> str:
    return visible(one_line(text, width)).ljust(width)


def _summary(reader: _Reader, counts: dict[str, dict[str, int]]) -> None:
    write(f"\n{reader.number} lines, {reader.unreadable} of them cannot be read")
    for stage, of_stage in counts.items():
        write(f"  {stage:<12}" + "  ".join(f"{name} {number}" for name, number in of_stage.items()))
