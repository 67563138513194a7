"""Settings of the pipeline: the table `[perception]`, and the errors of a table that cannot be used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from reprlib import repr as short
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from perception.incidents.settings import IncidentSettings
from perception.learning.examples import LabelSettings, LearningSettings
from perception.stages.anomaly.judge import AnomalySettings
from perception.stages.classify import ClassifyRule, ClassifySettings, decode
from perception.stages.dedup import DedupSettings
from perception.stages.fuse import FuseSettings
from perception.stages.intent import IntentRule, IntentSettings
from perception.stages.priority import PriorityRule, PrioritySettings, PriorityWeights
from perception.stages.templates.collapse import TemplateSettings
from spar.decoding import convert, misfit, worded
from spar.errors import ConfigError


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


#: Tables of the configuration, whose known keys an error names.
TABLES: dict[str, type[Struct]] = {
    "": Settings,
    "templates": TemplateSettings,
    "anomaly": AnomalySettings,
    "dedup": DedupSettings,
    "classify": ClassifySettings,
    "classify.rules": ClassifyRule,
    "intent": IntentSettings,
    "intent.rules": IntentRule,
    "priority": PrioritySettings,
    "priority.rules": PriorityRule,
    "priority.weights": PriorityWeights,
    "fuse": FuseSettings,
    "incidents": IncidentSettings,
    "learning": LearningSettings,
    "intents": LabelSettings,
    "kinds": LabelSettings,
}


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
    table = ".".join(step for step in wrong.steps if isinstance(step, str))
    known = ", ".join(field.encode_name for field in msgspec.structs.fields(TABLES.get(table, Settings)))
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
        return next(key for key, value in values.items() if not _is_label(value))

    def is_fine(value: object) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and -1 <= value <= 1

    not_fine = [key for key, value in values.items() if not is_fine(value)]
    return not_fine[0] if not_fine else next(key for key, value in values.items() if value < 0)


def _is_label(value: object) -> bool:
    try:
        convert(value, LabelSettings)
    except msgspec.ValidationError:
        return False
    return True
