"""SENSE: from what sensors notice to perceptions.

`Pipeline` turns the output of sensors into perceptions that a planner can use; `Sense` keeps the sensors
and runs the pipeline. Both are imported when first asked for, so importing the package costs nothing.

    sense       the standard module: keeps the sensors, runs the pipeline
    pipeline    templates, dedup, classify, intent, priority, fuse, incidents: ordered and bounded
    pipeline_settings  reads the table `[perception]`, and says what of it cannot be used
    pipeline_rows  writes what the pipeline remembers with the cycle, and takes it up again
    examining   shows what the pipeline makes of perceptions
    processing  takes batches through the pipeline, large ones in a thread

    incidents/    what belongs to one trouble, across batches
    learning/     what is learnt from examples: classifiers, parts of texts
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
