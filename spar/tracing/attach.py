"""Attachment of traces: makes the tracer from `[tracing]` and the OTEL_* variables, and connects it to an agent."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from spar.attaching import Attaching
from spar.config.tables.secret import with_secrets
from spar.errors import ConfigError
from spar.events import CycleRecorded, ModelAnswered, RunEnded
from spar.loop.core import Core
from spar.threads import Threads

if TYPE_CHECKING:
    from spar.config.tables.settings import TracingSettings
    from spar.tracing.tracer import Sender, Tracer

#: Seconds for sending the remaining spans when the process ends.
FLUSH_WITHIN = 5.0
_ON = ("1", "true", "yes", "on")
_RATIOS = ("traceidratio", "parentbased_traceidratio")
_EXTRA = "needs the extra 'otel': pip install 'spar-agent[otel]'"


def attach(agent: Attaching, environ: Mapping[str, str] = os.environ) -> None:
    """Attach the tracer of the settings, unless `OTEL_SDK_DISABLED` or `OTEL_TRACES_EXPORTER=none` turns it off.

    Raises: ConfigError if the extra is missing, or the headers or the sampling ratio cannot be read.
    """
    home = agent.services.home
    if environ.get("OTEL_SDK_DISABLED", "").lower() not in _ON and environ.get("OTEL_TRACES_EXPORTER") != "none":
        trace_by(agent, _tracer_of(agent.core, Path(home.config if home else "."), environ))


def trace_by(agent: Attaching, tracer: Tracer) -> None:
    """Have a tracer told of the cycles, model answers and ends of runs of an agent, while the agent is started."""
    threads = Threads("tracing", agent.core.clock)
    agent.on(CycleRecorded, tracer.recorded)
    agent.on(ModelAnswered, tracer.answered)
    agent.on(RunEnded, tracer.run_ended)
    agent.open(tracer.start)
    agent.close(lambda: threads.run(tracer.close, FLUSH_WITHIN))
    agent.core.traces = tracer


def _tracer_of(core: Core, folder: Path, environ: Mapping[str, str]) -> Tracer:
    settings = core.settings.tracing
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.exporter") is None:
        raise ConfigError(f"tracing.enabled = true {_EXTRA}, or set it to false", path=("tracing", "enabled"))
    from spar.tracing.tracer import Tracer

    headers, name = _headers(settings, folder), core.settings.agent.name

    def make() -> Sender:
        from spar.tracing.otlp import OtlpSender

        return OtlpSender(name, version("spar-agent"), settings.endpoint, headers, settings.timeout)

    return Tracer(make, ratio=_ratio(settings, environ), with_content=settings.content,
                  named_to=frozenset(settings.named_to))  # fmt: skip


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
