"""Pipeline: templates → anomaly → dedup → classify → intent → priority → fuse → entities → incidents; bounded.

Each stage is a function in its own file, with its own settings and switch. The `Pipeline` holds the state between two
batches (the windows, the counts, the removed perceptions); `Settings` is the table `[perception]`. The time is that of
the perceptions, not of a clock, so a recorded batch gives the same result again. The pipeline waits for nothing, starts
nothing, and is for one thread at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from reprlib import repr as short
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from perception.incidents.entities import lasting
from perception.incidents.register import IncidentRegister
from perception.incidents.settings import IncidentSettings
from perception.learning.examples import LabelSettings, LearningSettings
from perception.learning.learner import Learnt
from perception.stages.anomaly.judge import AnomalySettings, SeriesWindow, judge
from perception.stages.anomaly.series import NumberSeries
from perception.stages.classify import ClassifySettings, classify, decode
from perception.stages.dedup import MESSAGE, Decision, DedupSettings, DedupWindow, StageResult, dedup, enriched
from perception.stages.fuse import FuseSettings, FuseWindow, fuse
from perception.stages.intent import IntentSettings, recognise
from perception.stages.priority import PrioritySettings, Scale, prioritise
from perception.stages.templates.collapse import TemplateSettings, collapse
from perception.stages.templates.tree import Template, TemplateTree
from spar.checks import problem_of
from spar.data.learning.situations import MOST_ENTITIES
from spar.decoding import convert, converted, misfit, worded
from spar.errors import ConfigError
from spar.ids import new_id
from spar.records.perceived import Examined
from spar.types import Perception, replace

REMEMBERED = 1_000  # latest decisions on removed perceptions
UNTOLD = 20  # latest errors of stages that nobody has reported yet


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings `[perception]`: at most `limit` perceptions of one batch are passed on."""

    limit: Annotated[int, Meta(ge=1)] = 1_000
    templates: TemplateSettings = TemplateSettings()
    anomaly: AnomalySettings = AnomalySettings()
    dedup: DedupSettings = DedupSettings()
    classify: ClassifySettings = ClassifySettings()
    intent: IntentSettings = IntentSettings()
    priority: PrioritySettings = PrioritySettings()
    fuse: FuseSettings = FuseSettings()
    incidents: IncidentSettings = IncidentSettings()
    learning: LearningSettings = LearningSettings()
    intents: dict[str, LabelSettings] = {}
    kinds: dict[str, LabelSettings] = {}


class Pipeline:
    """Stages in order, with their state.

    Args: settings: a mapping in the form of the table `[perception]`; None means all defaults.

    Raises: ConfigError with the key, its value and the allowed ones.
    """

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        self.settings = read_settings({} if settings is None else settings)
        tables = self.settings
        #: Labels that were learnt from examples; `perception.learning` sets them, in the event loop.
        self.learnt: Learnt = {}
        self._window = DedupWindow()
        self._templates, self._series = TemplateTree(tables.templates.most), SeriesWindow(tables.anomaly)
        #: The windows with rows, by the beginning of their keys.
        self._windows: dict[str, TemplateTree | SeriesWindow] = {
            "template/": self._templates,
            "series/": self._series,
        }
        self._keep: Callable[[Mapping[str, Any]], object] | None = None  # of `restore`; without it nobody writes rows
        self.incidents = IncidentRegister(tables.incidents)
        self.incidents.is_heard = False  # until a sense module stores them
        self._stages: tuple[tuple[str, bool, str, Callable[[Sequence[Perception]], StageResult]], ...] = (
            ("intake", True, "dropped", intake),
            ("templates", tables.templates.enabled, "dropped", partial(collapse, self._templates, tables.templates)),
            ("anomaly", tables.anomaly.enabled, "dropped", partial(judge, self._series, tables.anomaly)),
            ("dedup", tables.dedup.enabled, "dropped", partial(dedup, self._window, tables.dedup)),
            ("classify", tables.classify.enabled, "", partial(classify, tables.classify, learnt=self.learnt)),
            ("intent", tables.intent.enabled, "", partial(recognise, tables.intent, learnt=self.learnt)),
            ("priority", tables.priority.enabled, "", partial(prioritise, Scale(tables.priority))),
            ("fuse", tables.fuse.enabled, "merged", partial(fuse, FuseWindow(), tables.fuse)),
            ("limit", True, "cut", partial(cut, tables.limit)),
            ("entities", True, "", about),
            ("incidents", tables.incidents.enabled, "merged", self.incidents.fold),
        )
        self._counts: dict[str, dict[str, int]] = {}
        for name, _, fate, _ in self._stages:
            self._counts[name] = {"in": 0, "touched": 0} | ({fate: 0} if fate else {})
        #: The last decisions on perceptions that were not passed on by themselves.
        self.dropped: deque[Decision] = deque(maxlen=REMEMBERED)
        #: Stages that raised, with their errors; whoever reports them takes them out.
        self.errors: deque[tuple[str, Exception]] = deque(maxlen=UNTOLD)

    def process(self, perceptions: Iterable[Perception]) -> list[Perception]:
        """Process a batch; return the remaining perceptions, the highest priority first, equal ones in the order of
        arrival.

        Raises nothing for any content; an object that is not a perception is dropped and counted. A stage that raises
        leaves the batch as it is, and its error stands in `errors`.
        """
        batch: Sequence[Perception] = list(perceptions)
        if not batch:
            return []
        for name, is_on, fate, stage in self._stages:
            if not is_on:
                continue
            counts = self._counts[name]
            counts["in"] += len(batch)
            try:
                sifted = stage(batch)
            except Exception as error:  # a second attempt would take what the stages before remember for repetitions
                counts["failed"] = counts.get("failed", 0) + 1
                self.errors.append((name, error))
                continue
            batch = sifted.perceptions
            counts["touched"] += sifted.touched
            if sifted.added:
                batch = [*batch, *sifted.added]
                counts["added"] = counts.get("added", 0) + len(sifted.added)
            for note, number in sifted.notes.items():
                counts[note] = counts.get(note, 0) + number
            if sifted.decisions:
                counts[fate] += len(sifted.decisions)
                self.dropped.extend(sifted.decisions)
        self._keep_rows()
        return list(batch)

    def examined(self, batch: Sequence[Perception]) -> list[Examined]:
        """Return the result for each perception of a batch, in order, for people.

        Each perception gets a new id, so that repetitions in the batch stay apart.
        """
        renamed = [replace(perception, id=new_id()) for perception in batch]
        self.dropped.clear()
        out = {perception.id: perception for perception in self.process(renamed)}
        decisions = {decision.id: decision for decision in self.dropped}
        results: list[Examined] = []
        for perception in renamed:
            decision = decisions.get(perception.id)
            if (result := out.get(perception.id)) is not None or decision is None:
                results.append(Examined(perception, result))
            else:
                results.append(Examined(perception, None, decision.stage, decision.reason, decision.into))
        return results

    def restore(self, rows: Mapping[str, Any], keep: Callable[[Mapping[str, Any]], object]) -> int:
        """Load the stored rows, before the first batch. Return the number of series that begin anew, because their rows
        cannot be read.

        Args: keep: called from now on, in the thread of a batch, with rows to write, by key, None for one to delete.
        """
        self._keep = keep
        for prefix, window in self._windows.items():
            window.restore({key[len(prefix) :]: row for key, row in rows.items() if key.startswith(prefix)})
        return self._series.unread

    def settle(self) -> None:
        """Mark the state of all series for writing; otherwise it is written once an hour."""
        self._series.settle()
        self._keep_rows()

    def _keep_rows(self) -> None:
        for prefix, window in self._windows.items():
            changed: Mapping[Any, Template | NumberSeries | None] = window.changed
            window.changed = {}
            if changed and self._keep is not None:
                self._keep({f"{prefix}{key}": None if item is None else item.row() for key, item in changed.items()})

    def shed(self) -> int:
        """Forget state that is not essential, to free memory; return the number of its entries."""
        decisions = len(self.dropped)
        self.dropped.clear()
        lines, numbers = self._templates.shed(), self._series.shed()
        return decisions + lines + numbers + self._window.shed(self.settings.dedup)

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """Return the counts by stage since the beginning: how many perceptions went `in`, were `touched` (enriched),
        and were `dropped`, `merged`, `cut` or `measured` (an ordinary reading). Those `in` or `added` that are in none
        of these were passed on. `failed` are the batches on which the stage raised."""
        return {name: dict(counts) for name, counts in self._counts.items()}


def intake(perceptions: Sequence[Perception]) -> StageResult:
    """Pass on perceptions with valid fields; a time without a zone is taken as UTC."""
    faults = [_misshapen(perception) for perception in perceptions]
    pairs = list(zip(perceptions, faults, strict=True))
    accepted = enriched([perception for perception, fault in pairs if not fault], _repaired)
    decisions = [_refused(perception, fault) for perception, fault in pairs if fault]
    return StageResult(accepted.perceptions, decisions, accepted.touched)


def cut(limit: int, perceptions: Sequence[Perception]) -> StageResult:
    """Return the `limit` perceptions of highest priority, in order; people's messages are cut last, whatever their
    priority."""
    ranked = sorted(perceptions, key=lambda perception: -perception.importance)
    if len(ranked) <= limit:
        return StageResult(ranked)
    chosen = set(sorted(range(len(ranked)), key=lambda i: (ranked[i].kind != MESSAGE, i))[:limit])
    remaining = [perception for i, perception in enumerate(ranked) if i in chosen]
    decisions = [Decision.on(p, "limit", f"priority {p.importance:g} is not among the first {limit}")
                 for i, p in enumerate(ranked) if i not in chosen]  # fmt: skip
    return StageResult(remaining, decisions)


def about(perceptions: Sequence[Perception]) -> StageResult:
    """Give each perception the names of its entities, by which similar situations are recognised; a sensor's own names
    stay."""

    def with_names(perception: Perception) -> Perception:
        is_named = perception.kind == MESSAGE or "entities" in perception.attributes
        names = [] if is_named else lasting(perception)
        attributes = {**perception.attributes, "entities": sorted(names[:MOST_ENTITIES])}
        return replace(perception, attributes=attributes) if names else perception

    return enriched(perceptions, with_names)


def _misshapen(perception: object) -> str:
    if not isinstance(perception, Perception):
        return f"a perception is needed, found {type(perception).__name__}"
    return problem_of(perception)


def _refused(perception: Any, fault: str) -> Decision:
    def text(name: str) -> str:
        value = getattr(perception, name, "")
        return value if isinstance(value, str) else ""

    at = getattr(perception, "at", None)
    return Decision(text("id"), text("source"), "intake", fault, at if isinstance(at, datetime) else None)


def _repaired(perception: Perception) -> Perception:
    at = perception.at
    return perception if at.tzinfo is not None else replace(perception, at=at.replace(tzinfo=UTC))


# -- its settings


def read_settings(settings: Mapping[str, Any]) -> Settings:
    """Return the settings as values. Raises: ConfigError with the path of the setting that cannot be used."""
    try:
        return convert(settings, Settings, dec_hook=decode)
    except msgspec.ValidationError as error:
        raise _explained(error, settings) from None


def _explained(error: msgspec.ValidationError, settings: Any) -> ConfigError:
    """Return msgspec's error as a sentence with the value and the known keys."""
    wrong, value, path = misfit(error), settings, list[str | int]()
    for step in wrong.steps:
        path.append(_culprit(value, path) if step is ... else step)
        value = value[path[-1]]
    where = "perception" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    known = ", ".join(wrong.known_keys(Settings))
    if (key := wrong.unknown) is not None:
        path.append(key)
        sentence = f"{where} has no setting named {key!r}, found {short(value[key])}; known: {known}"
    elif (key := wrong.missing) is not None:
        path.append(key)
        sentence = f"{where} needs {key!r}, found {short(value)}; known: {known}"
    else:
        fault = worded(wrong.message)
        sentence = f"{where}: {fault[:1].lower()}{fault[1:]}, found {short(value)}"
    return ConfigError(sentence, path=("perception", *path))


def _culprit(values: Mapping[str, Any], path: Sequence[str | int]) -> str:
    """Return the key of the wrong value in a table: one that is not a label's table, or not a number in the common
    range."""
    if path[:1] in (["intents"], ["kinds"]):
        return next(key for key, value in values.items() if converted(value, LabelSettings) is None)

    def is_fine(value: object) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and -1 <= value <= 1

    not_fine = [key for key, value in values.items() if not is_fine(value)]
    return not_fine[0] if not_fine else next(key for key, value in values.items() if value < 0)
