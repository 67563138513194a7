"""SENSE: turns the output of sensors into perceptions.

`Pipeline` turns sensor output into perceptions that a planner can use; `Sense` runs the sensors and the pipeline. Both
are imported on first use, so importing the package costs nothing.

    sense       the standard module: runs the sensors and the pipeline
    pipeline    templates, dedup, classify, intent, priority, fuse, incidents: ordered and bounded
    pipeline_rows  stores the state of the pipeline with the cycle, and loads it again
    processing  runs batches through the pipeline, large ones in a thread

    incidents/    perceptions that belong to one trouble, across batches
    learning/     learning from examples: classifiers, parts of texts
    stages/       the stages of the pipeline; pure
    supervision/  the supervision of single sensors
    sensors/      the built-in sensors
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perception.pipeline import Pipeline as Pipeline
    from perception.sense import Sense as Sense

__all__ = ["Pipeline", "Sense"]

_HOMES = {"Pipeline": "perception.pipeline", "Sense": "perception.sense"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
