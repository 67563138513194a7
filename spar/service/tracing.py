"""Wiring of traces: builds the tracer from `[tracing]` and the OTEL_* variables, and connects it to the events."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from spar import __version__
from spar.config.lines import explain
from spar.config.tables.secret import with_secrets
from spar.config.tables.service import TracingSettings
from spar.config.tables.settings import Loaded
from spar.errors import ConfigError
from spar.events import CycleRecorded, ModelAnswered, RunEnded
from spar.loop.core import Core

if TYPE_CHECKING:
    from spar.observe.tracing.tracer import Sender, Tracer

#: Seconds for sending the remaining spans when the process ends.
FLUSH_WITHIN = 5.0
_ON = ("1", "true", "yes", "on")
_RATIOS = ("traceidratio", "parentbased_traceidratio")
_EXTRA = "needs the extra 'otel': pip install 'spar-agent[otel]'"


def tracer_of(loaded: Loaded, environ: Mapping[str, str] = os.environ) -> Tracer | None:
    """Return the tracer that the settings enable, not yet started.

    Returns: None where `[tracing]` is off, or `OTEL_SDK_DISABLED` or `OTEL_TRACES_EXPORTER=none` turns it off.
    Raises: ConfigError if the extra is missing, or the headers or the sampling ratio cannot be read.
    """
    settings = loaded.settings.tracing
    is_off = environ.get("OTEL_SDK_DISABLED", "").lower() in _ON or environ.get("OTEL_TRACES_EXPORTER") == "none"
    if not settings.enabled or is_off:
        return None
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.exporter") is None:
        raise ConfigError(f"tracing.enabled = true {_EXTRA}, or set it to false", path=("tracing", "enabled"))
    from spar.observe.tracing.tracer import Tracer

    headers, name = _headers(settings, loaded.folder), loaded.settings.agent.name

    def make() -> Sender:
        from spar.observe.tracing.otlp import OtlpSender

        return OtlpSender(name, __version__, settings.endpoint, headers, settings.timeout)

    return Tracer(make, ratio=_ratio(settings, environ), with_content=settings.content,
                  named_to=frozenset(settings.named_to))  # fmt: skip


def check_tracing(loaded: Loaded) -> None:
    """Check that the configured traces can be sent. Raises: ConfigError with file and line."""
    try:
        tracer_of(loaded)
    except ConfigError as error:
        raise explain(error, loaded.sources) from None


def tell_traces(core: Core, tracer: Tracer) -> Callable[[], None]:
    """Connect the tracer to the cycles, model answers and ends of runs of an agent; return a function that disconnects
    it."""
    core.traces = tracer
    subscriptions = [
        core.events.subscribe(CycleRecorded, tracer.recorded),
        core.events.subscribe(ModelAnswered, tracer.answered),
        core.events.subscribe(RunEnded, tracer.run_ended),
    ]

    def end() -> None:
        core.traces = None
        for unsubscribe in subscriptions:
            unsubscribe()

    return end


def _ratio(settings: TracingSettings, environ: Mapping[str, str]) -> float:
    """Return the share of cycles that is traced, 0..1. Raises: ConfigError for a variable that is no such number."""
    sampler = environ.get("OTEL_TRACES_SAMPLER", "")
    if settings.ratio is not None:
        return settings.ratio
    if sampler.endswith("always_off"):
        return 0.0
    text = environ.get("OTEL_TRACES_SAMPLER_ARG", "")
    if sampler not in _RATIOS or not text:
        return 1.0
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0.0 <= ratio <= 1.0:
        raise ConfigError(f"OTEL_TRACES_SAMPLER_ARG = {text[:40]!r}: must be a number from 0 to 1",
                          path=("tracing", "ratio"))  # fmt: skip
    return ratio


def _headers(settings: TracingSettings, folder: Path) -> dict[str, str]:
    """Return the headers with their secrets inserted. Raises: ConfigError if a secret cannot be read or a header is
    malformed."""
    headers = with_secrets({"headers": settings.headers}, ("tracing",), folder)["headers"]
    for name, value in headers.items():
        if not isinstance(value, str) or "\n" in value or not name.replace("-", "").replace("_", "").isalnum():
            sentence = "must be a header and its text; only what is named as a secret may stand elsewhere"
            raise ConfigError(f"tracing.headers.{name!s:.80}: {sentence}", path=("tracing", "headers", name))
    return {name.lower(): value for name, value in headers.items()}
