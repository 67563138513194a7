"""Stage 1: collapses ten thousand log lines of one kind into one perception, and marks a kind that was never seen
before.

The stage takes only log lines: text whose kind fits one of `kinds`, or whose sensor sets the attribute `lines =
"templates"`; `lines = "each"` keeps the lines of a sensor apart. Prose, data and messages are passed on unchanged.

The first line of a template in a batch represents the others. It gets the attributes `template` (in a form for
people), `template_id`, `count`, `rate` (lines a second since the last report) and up to three `examples`. A template
that goes on is reported again after `seconds`, with the number of the lines since then. `novelty` is "template" for a
template that was never seen before. Each finished minute of a template becomes a reading for the stage `anomaly`. The
time is that of the lines. Each combination of session, trust, source, subject and kind has its own templates.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from perception.stages.dedup import MESSAGE, Decision, StageResult, count_of, with_attributes
from perception.stages.templates.masking import shown, words_of_line
from perception.stages.templates.tree import Template, TemplateTree, standing
from spar.data.patterns import Glob
from spar.types import Perception

EXAMPLES, EXAMPLE_LENGTH = 3, 500  # examples in a report of a template; characters of each
MINUTE = 60.0  # seconds over which a rate is counted
BEHIND = 3600.0  # seconds that a line may be older than the last reported one; more means that the clock was set back


class TemplateSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings `[perception.templates]`: lines of these `kinds` are reported by their template, again after each
    `seconds`.

    `most`: number of templates that are stored.
    """

    enabled: bool = True
    kinds: Glob = Glob("log", "log.*")
    seconds: Annotated[float, Meta(ge=0, le=31_536_000)] = 60.0
    most: Annotated[int, Meta(ge=1, le=100_000)] = 5_000


class _Group:
    """Lines of a template in one batch: the position of the line that represents them, and the other lines."""

    __slots__ = ("count", "examples", "first", "is_new", "last", "others", "place")

    def __init__(self, place: int, at: float, perception: Perception, is_new: bool) -> None:
        self.place, self.is_new = place, is_new
        self.count = count_of(perception)
        self.first = self.last = at
        self.examples = [perception.content[:EXAMPLE_LENGTH]]
        self.others: list[Perception] = []


def collapse(tree: TemplateTree, settings: TemplateSettings, perceptions: Sequence[Perception]) -> StageResult:
    """Let one line represent all lines of its template; return also the readings of its rate."""
    remaining: list[Perception] = []
    decisions: list[Decision] = []
    readings: list[Perception] = []
    groups: dict[Template, _Group] = {}
    former, is_asked, forgotten = None, False, tree.evicted
    for perception in perceptions:
        if perception.kind != former:  # most perceptions of a batch have the same kind
            former, is_asked = perception.kind, settings.kinds.fits(perception.kind)
        if not _is_line(perception, is_asked):
            remaining.append(perception)
            continue
        line: str = perception.content
        scope = (perception.session, perception.trust, perception.source, perception.subject or "", perception.kind)
        template, is_new = tree.find(scope, words_of_line(line))
        at = perception.at.timestamp()
        if is_new:
            template.first_at = at
        times = count_of(perception) if perception.attributes else 1
        template.count += times
        _count_minute(template, int(at // MINUTE), times, perception, readings)
        if (group := groups.get(template)) is not None:
            group.count += times
            group.first, group.last = min(group.first, at), max(group.last, at)
            group.others.append(perception)
            if len(group.examples) < EXAMPLES:
                group.examples.append(line[:EXAMPLE_LENGTH])
        elif template.told_at is not None and -BEHIND <= at - template.told_at < settings.seconds:
            template.hidden += times
            tree.changed[template.id] = template
            decisions.append(_counted(perception, template))
        else:
            groups[template] = _Group(len(remaining), at, perception, is_new)
            remaining.append(perception)
    gone = _describe(tree, settings, groups, remaining, decisions)
    if gone:
        remaining = [perception for place, perception in enumerate(remaining) if place not in gone]
    notes = {"new": sum(group.is_new for group in groups.values()), "forgotten": tree.evicted - forgotten}
    return StageResult(remaining, decisions, len(groups) - len(gone), readings, notes)


def _is_line(perception: Perception, is_asked: bool) -> bool:
    content = perception.content
    if type(content) is not str or perception.kind == MESSAGE or not content:
        return False
    way = perception.attributes.get("lines") if perception.attributes else None
    if way == "each" or (way != "templates" and not is_asked):
        return False
    return content[0] not in "{[" or not _is_json(content)


def _is_json(text: str) -> bool:
    """Return whether a line is a JSON object or list; "[notice] …" is not."""
    ends = text[0] + text.rstrip()[-1:]
    return ends == "{}" or (ends == "[]" and text[1:].lstrip()[:1] in ("{", "[", '"', "]", ""))


def _describe(
    tree: TemplateTree,
    settings: TemplateSettings,
    groups: dict[Template, _Group],
    remaining: list[Perception],
    decisions: list[Decision],
) -> set[int]:
    """Add the count, rate and examples of each group to the line that represents it; return the positions of lines
    that another group's line represents."""
    gone: set[int] = set()
    for template, group in _joined(groups, remaining, gone).items():
        perception = remaining[group.place]
        count = group.count + template.hidden
        goes_on = template.told_at is not None and group.first - template.told_at <= 2 * settings.seconds
        begin = min(group.first, template.told_at) if goes_on and template.told_at is not None else group.first
        template.hidden, template.told_at, template.told_id = 0, group.first, perception.id
        template.example = template.example or group.examples[0]
        tree.use(template)
        tree.changed[template.id] = None if template.is_gone else template
        attributes: dict[str, Any] = {"template": shown(template.words, group.examples[0]), "template_id": template.id}
        if count > 1:
            attributes["count"], attributes["examples"] = count, group.examples
            attributes["rate"] = round(count / max(group.last - begin, 1.0), 3)
        if group.is_new:
            attributes["novelty"] = "template"
        remaining[group.place] = with_attributes(perception, **attributes)
        decisions += [_counted(other, template) for other in group.others]
    return gone


def _joined(groups: dict[Template, _Group], remaining: list[Perception], gone: set[int]) -> dict[Template, _Group]:
    """Join the groups whose templates were merged within the batch."""
    joined: dict[Template, _Group] = {}
    for template, group in groups.items():
        template = standing(template) or template
        first = joined.setdefault(template, group)
        if first is not group:
            first.count += group.count
            first.first, first.last = min(first.first, group.first), max(first.last, group.last)
            first.examples = [*first.examples, *group.examples][:EXAMPLES]
            first.others += [remaining[group.place], *group.others]
            gone.add(group.place)
    return joined


def _count_minute(
    template: Template, minute: int, times: int, perception: Perception, readings: list[Perception]
) -> None:
    """Count a line in its minute; a finished minute becomes a reading of the template's rate."""
    if template.minute is None or minute <= template.minute:
        template.minute = minute if template.minute is None else template.minute
        template.in_minute += times
        return
    readings.append(_reading(template, template.minute, template.in_minute, perception))
    if minute > template.minute + 1:  # no line came in between: one reading of 0 reports that
        readings.append(_reading(template, minute - 1, 0, perception))
    template.minute, template.in_minute = minute, times


def _reading(template: Template, minute: int, lines: int, perception: Perception) -> Perception:
    series, words = f"lines a minute of template {template.id}", shown(template.words, template.example)
    return Perception(
        source=perception.source, kind="log.rate", at=datetime.fromtimestamp((minute + 1) * MINUTE, UTC),
        subject=perception.subject, session=perception.session, trust=perception.trust,
        attributes={"value": lines, "series": series, "reading": True, "template_id": template.id, "template": words},
    )  # fmt: skip


def _counted(perception: Perception, template: Template) -> Decision:
    into = template.told_id
    return Decision.on(perception, "templates", f"a line of template {template.id}, told as {into}", into)
