"""Stage 1: ten thousand log lines of one kind are one perception; a kind never seen before is noticed at once.

Only lines of logs go this way: perceptions of text whose kind one of `kinds` fits, or whose sensor asks for it by the
attribute `lines = "templates"`; `lines = "each"` keeps a sensor's lines apart. Prose, data and messages are left
alone.

The first line of a template in a batch stands for the others, with the attributes `template` (as people read it),
`template_id`, `count`, `rate` (lines a second since it was told last) and up to three `examples`. One that goes on is
told again when `seconds` have passed since, with the number of the lines since then. `novelty` is "template" on one
that was never seen before. Each minute of a template that has ended becomes a reading for the stage `anomaly`. Time is
what the lines say. Templates are told apart by session, trust, source, subject and kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from perception.stages.classify import Glob
from perception.stages.dedup import MESSAGE, Decision, StageResult, count_of, with_attributes
from perception.stages.templates.masking import shown, words_of_line
from perception.stages.templates.tree import Template, TemplateTree, standing
from spar.types import Perception

EXAMPLES, EXAMPLE_LENGTH = 3, 500  # told with a template; characters of each
MINUTE = 60.0  # seconds over which a rate is counted
BEHIND = 3600.0  # seconds that a line may be older than the last one told, before the clock is taken for set back


class TemplateSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[perception.templates]`: lines of these `kinds` are told by their template, again each `seconds`.

    `most`: templates that are kept.
    """

    enabled: bool = True
    kinds: Glob = Glob("log", "log.*")
    seconds: Annotated[float, Meta(ge=0, le=31_536_000)] = 60.0
    most: Annotated[int, Meta(ge=1, le=100_000)] = 5_000


class _Told:
    """A template in the batch: the place of the line that stands for it, and what came besides."""

    __slots__ = ("count", "examples", "first", "is_new", "last", "others", "place")

    def __init__(self, place: int, at: float, perception: Perception, is_new: bool) -> None:
        self.place, self.is_new = place, is_new
        self.count = count_of(perception)
        self.first = self.last = at
        self.examples = [perception.content[:EXAMPLE_LENGTH]]
        self.others: list[Perception] = []


class TemplateWindow:
    """The templates known between two batches; the only thing that `collapse` changes.

    `changed` are the numbers of the templates whose row is not written yet.
    """

    def __init__(self, settings: TemplateSettings) -> None:
        self.tree = TemplateTree(settings.most)
        self.changed: dict[int, Template | None] = {}

    def unsaved(self) -> Iterator[tuple[str, Any]]:
        """Return the rows to be written, None for one to be deleted; they are not given twice."""
        changed, self.changed = self.changed, {}
        for number, template in changed.items():
            yield str(number), None if template is None else _row(template)

    def forget(self) -> None:
        """Note that the rows of templates that are no more are to be deleted."""
        for template in (*self.tree.merged, *self.tree.evicted):
            self.changed[template.id] = None
        self.tree.merged.clear()
        self.tree.evicted.clear()

    def restore(self, rows: Mapping[str, Any]) -> None:
        """Take up the rows that were written. A row that cannot be read is left out."""
        self.tree.restore(template for key, row in rows.items() if (template := _read(key, row)) is not None)


def collapse(window: TemplateWindow, settings: TemplateSettings, perceptions: Sequence[Perception]) -> StageResult:
    """Let one line stand for all of its template; returns also the readings of its rate."""
    kept: list[Perception] = []
    decisions: list[Decision] = []
    readings: list[Perception] = []
    told: dict[Template, _Told] = {}
    former, is_asked = None, False
    for perception in perceptions:
        if perception.kind != former:  # most of a batch are of one kind
            former, is_asked = perception.kind, settings.kinds.fits(perception.kind)
        if not _is_line(perception, is_asked):
            kept.append(perception)
            continue
        line: str = perception.content
        scope = (perception.session, perception.trust, perception.source, perception.subject or "", perception.kind)
        template, is_new = window.tree.find(scope, words_of_line(line))
        at = perception.at.timestamp()
        times = count_of(perception) if perception.attributes else 1
        template.count += times
        _count_minute(template, int(at // MINUTE), times, perception, readings)
        if (known := told.get(template)) is not None:
            known.count += times
            known.first, known.last = min(known.first, at), max(known.last, at)
            known.others.append(perception)
            if len(known.examples) < EXAMPLES:
                known.examples.append(line[:EXAMPLE_LENGTH])
        elif template.told_at is not None and -BEHIND <= at - template.told_at < settings.seconds:
            template.hidden += times
            window.changed[template.id] = template
            decisions.append(_dropped(perception, _reason(template, template.told_id), template.told_id))
        else:
            told[template] = _Told(len(kept), at, perception, is_new)
            kept.append(perception)
    gone = _tell(window, settings, told, kept, decisions)
    if gone:
        kept = [perception for place, perception in enumerate(kept) if place not in gone]
    notes = {"new": sum(one.is_new for one in told.values()), "forgotten": len(window.tree.evicted)}
    window.forget()
    return StageResult(kept, decisions, len(told) - len(gone), readings, notes)


def _is_line(perception: Perception, is_asked: bool) -> bool:
    content = perception.content
    if type(content) is not str or perception.kind == MESSAGE or not content:
        return False
    way = perception.attributes.get("lines") if perception.attributes else None
    if way == "each" or (way != "templates" and not is_asked):
        return False
    return content[0] not in "{[" or not _is_json(content)


def _is_json(text: str) -> bool:
    """Return whether a line is an object or a list, which is data; "[notice] …" is none."""
    ends = text[0] + text.rstrip()[-1:]
    return ends == "{}" or (ends == "[]" and text[1:].lstrip()[:1] in ("{", "[", '"', "]", ""))


def _tell(
    window: TemplateWindow,
    settings: TemplateSettings,
    told: dict[Template, _Told],
    kept: list[Perception],
    decisions: list[Decision],
) -> set[int]:
    """Give those that stand for a template what they stand for; returns the places of those that stand for nothing."""
    gone: set[int] = set()
    for template, one in _joined(told, kept, gone).items():
        perception = kept[one.place]
        count = one.count + template.hidden
        goes_on = template.told_at is not None and one.first - template.told_at <= 2 * settings.seconds
        begun = min(one.first, template.told_at) if goes_on and template.told_at is not None else one.first
        template.hidden, template.told_at, template.told_id = 0, one.first, perception.id
        template.example = template.example or one.examples[0]
        window.tree.use(template)
        window.changed[template.id] = template
        found: dict[str, Any] = {"template": shown(template.words, one.examples[0]), "template_id": template.id}
        if count > 1:
            found["count"], found["examples"] = count, one.examples
            found["rate"] = round(count / max(one.last - begun, 1.0), 3)
        if one.is_new:
            found["novelty"] = "template"
        kept[one.place] = with_attributes(perception, **found)
        reason = _reason(template, perception.id)
        decisions += [_dropped(other, reason, perception.id) for other in one.others]
    return gone


def _joined(told: dict[Template, _Told], kept: list[Perception], gone: set[int]) -> dict[Template, _Told]:
    """Join those of templates that have become one within the batch."""
    joined: dict[Template, _Told] = {}
    for template, one in told.items():
        template = standing(template) or template
        first = joined.setdefault(template, one)
        if first is not one:
            first.count += one.count
            first.first, first.last = min(first.first, one.first), max(first.last, one.last)
            first.examples = [*first.examples, *one.examples][:EXAMPLES]
            first.others += [kept[one.place], *one.others]
            gone.add(one.place)
    return joined


def _count_minute(
    template: Template, minute: int, times: int, perception: Perception, readings: list[Perception]
) -> None:
    """Count a line in its minute; a minute that has ended is a reading of the template's rate."""
    if template.minute is None or minute <= template.minute:
        template.minute = minute if template.minute is None else template.minute
        template.in_minute += times
        return
    readings.append(_reading(template, template.minute, template.in_minute, perception))
    if minute > template.minute + 1:  # none came in the minutes between: one of them says so
        readings.append(_reading(template, minute - 1, 0, perception))
    template.minute, template.in_minute = minute, times


def _reading(template: Template, minute: int, lines: int, perception: Perception) -> Perception:
    return Perception(
        source=perception.source,
        kind="log.rate",
        at=datetime.fromtimestamp((minute + 1) * MINUTE, UTC),
        subject=perception.subject,
        session=perception.session,
        trust=perception.trust,
        attributes={
            "value": lines,
            "series": f"lines a minute of template {template.id}",
            "reading": True,
            "template_id": template.id,
            "template": shown(template.words, template.example),
        },
    )


def _reason(template: Template, into: str) -> str:
    return f"a line of template {template.id}, told as {into}"


def _dropped(perception: Perception, reason: str, into: str) -> Decision:
    return Decision(perception.id, perception.source, "templates", reason, perception.at, into)


# -- rows


def _row(template: Template) -> list[Any]:
    one = template
    scope = [_plain(word) for word in one.scope]
    counts = [one.count, one.hidden, one.minute, one.in_minute, one.told_at]
    return [scope, list(one.words), counts, one.told_id, _plain(one.example)]


def _plain(text: str) -> str:
    # A lone surrogate, which a stranger's line may hold, cannot be written.
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _read(key: str, row: Any) -> Template | None:
    try:
        scope, words, (count, hidden, minute, in_minute, told_at), told_id, example = row
        template = Template(int(key), tuple(map(str, scope)), tuple(map(str, words)), str(example))
        template.count, template.hidden, template.in_minute = int(count), int(hidden), int(in_minute)
        template.minute = None if minute is None else int(minute)
        template.told_at = None if told_at is None else float(told_at)
    except (TypeError, ValueError):
        return None
    template.told_id = str(told_id)
    return template
