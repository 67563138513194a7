"""Page of metrics in Prometheus' format, computed from the agents' statistics when it is requested.

No code here runs in a cycle: the loop only appends to the statistics, a scrape adds them up. Each service has its own
registry, so two services can live in one process. Label values come from closed or bounded sets; agents beyond
`MOST_AGENTS` are only counted. Names follow the conventions of Prometheus: base units, `_total` for counters. The
tables of the metrics are in `spar.service.agent_metrics` and `spar.service.agent_metrics`.
"""

from __future__ import annotations

import operator
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from spar.agent.parts import AgentParts
from spar.observe.stats import BOUNDS, Series
from spar.review.pending_approvals import Waiting
from spar.service.agent_metrics import HEALTH, PER_AGENT, Samples, attached, by_two

if TYPE_CHECKING:
    from spar.replay.shadow import Shadow

#: Agents that one page shows.
MOST_AGENTS = 50
#: Distinct values of one label; later ones are merged into `OTHER`.
MOST_VALUES = 100
OTHER = "other"
#: Label values and a number of each sample.
Rows = Iterable[tuple[list[str], float]]
#: Reasons for which the port refuses a request.
REFUSALS = ("host", "origin", "missing", "unknown", "session", "guesses", "rate", "busy", "scope")


class Metrics(Collector):
    """The registry of one service. `render` is safe from any thread and does no I/O."""

    def __init__(self, agents: Callable[[], Iterable[AgentParts]], version: str, *,
                 log_dropped: Callable[[], int] = lambda: 0, waiting: Callable[[], Iterable[Waiting]] = lambda: (),
                 refused: Callable[[], Mapping[str, int]] = dict,
                 shadow: Callable[[], Shadow | None] = lambda: None) -> None:  # fmt: skip
        self.agents, self.version, self.log_dropped = agents, version, log_dropped
        self.waiting, self.refused, self.shadow = waiting, refused, shadow
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return the page of metrics and its content type: OpenMetrics if the scraper accepts it.

        Args: accept: the `Accept` header of the request.
        """
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the service, and those of its agents, read from their statistics."""
        for kind, name, text, labels, read_service in OF_SERVICE:
            yield simple(kind, name, text, as_rows(read_service(self)), labels)
        agents = list(self.agents())[:MOST_AGENTS]
        for kind, name, text, labels, read in (*PER_AGENT, *HEALTH):
            merge = max if kind == "gauge" else operator.add
            rows = [([a.core.name, *values], number) for a in agents
                    for values, number in bounded(as_rows(read(a)), merge)]  # fmt: skip
            yield simple(kind, name, text, rows, ["agent", *labels])
        commits = [(a.core.name, a.health.pressure.store.get("commit_seconds")) for a in agents]
        yield summary("spar_journal_commit_seconds", "How long commits of the journal took",
                      [([name], figures["count"], figures["sum"]) for name, figures in commits if figures],
                      ["agent"])  # fmt: skip
        yield histogram("spar_cycle_duration_seconds", "How long cycles took",
                        [([a.core.name], a.account.cycles) for a in agents], ["agent"])  # fmt: skip
        phases = [([a.core.name, phase], series) for a in agents for phase, series in a.account.phases.items()]
        yield histogram("spar_phase_duration_seconds", "How long phases took", phases, ["agent", "phase"])
        calls = [([a.core.name, tool], series) for a in agents for tool, series in _durations(a)]
        yield histogram("spar_call_duration_seconds", "How long calls that ran took", calls, ["agent", "tool"])


def _spans(metrics: Metrics) -> Samples:
    """Return the numbers of spans; none without traces."""
    counts = [agent.core.traces.counts for agent in metrics.agents() if agent.core.traces is not None]
    return {name: number for count in counts
            for name, number in (("exported", count.exported), ("dropped", count.dropped))}  # fmt: skip


def _notices(metrics: Metrics) -> list[dict[str, Any]]:
    """Return the figures of the notifiers of alerts; none without notifiers."""
    return [state for agent in metrics.agents() for notices in attached(agent, "notices")
            for state in notices.snapshot()][:MOST_VALUES]  # fmt: skip


#: Each metric of a service: kind, name, help, labels, and the function that reads it.
OF_SERVICE: tuple[tuple[str, str, str, list[str], Callable[[Metrics], Samples]], ...] = (
    ("gauge", "spar_build_info", "The version that runs", ["version", "python"],
     lambda m: {(m.version, platform.python_version()): 1.0}),
    ("gauge", "spar_agents_left_out", "Agents beyond the bound of this page", [],
     lambda m: max(len(list(m.agents())) - MOST_AGENTS, 0)),
    ("counter", "spar_log_dropped_total", "Log lines lost because the sink was too slow", [],
     lambda m: m.log_dropped()),
    ("counter", "spar_trace_spans_total", "Spans that were sent to the trace collector, or lost", ["disposition"],
     _spans),
    ("counter", "spar_notices_total", "Notices of alerts, by how the attempt to send them ended",
     ["notifier", "outcome"], lambda m: {(state["name"], outcome): state[outcome] for state in _notices(m)
                                         for outcome in ("sent", "failed", "given_up")}),
    ("gauge", "spar_notices_waiting", "Notices that wait to be sent", ["notifier"],
     lambda m: {state["name"]: state["waiting"] for state in _notices(m)}),
    ("counter", "spar_http_refused_total", "Requests at the port that were refused, by reason", ["reason"],
     lambda m: {reason: m.refused().get(reason, 0) for reason in REFUSALS}),
    ("counter", "spar_shadow_decisions_total", "Decisions of a second configuration, by whether they agree", ["agree"],
     lambda m: {} if (shadow := m.shadow()) is None else shadow.state.agree),
    ("counter", "spar_shadow_dropped_total", "Cycles for which the second configuration had no room", [],
     lambda m: None if (shadow := m.shadow()) is None else shadow.state.dropped),
    ("gauge", "spar_approvals_pending", "Calls that wait for a person's answer", ["agent"],
     lambda m: {one.agent: len(one.pending(datetime.now(UTC))) for one in m.waiting()}),
    ("gauge", "spar_approvals_oldest_seconds", "For how long the oldest of them has waited (0: none waits)", ["agent"],
     lambda m: {one.agent: one.snapshot(datetime.now(UTC))["oldest_age_seconds"] or 0.0 for one in m.waiting()}),
    ("counter", "spar_approvals_total", "Calls that needed approval, by decision", ["agent", "decision"],
     lambda m: by_two({one.agent: one.endings for one in m.waiting()})),
)  # fmt: skip


def as_rows(samples: Samples) -> Rows:
    """Return samples as rows of label values and a number."""
    if not isinstance(samples, Mapping):
        return [] if samples is None else [([], samples)]
    return [([*key] if isinstance(key, tuple) else [str(key)], number) for key, number in list(samples.items())]


def bounded(rows: Rows, merge: Callable[[float, float], float]) -> list[tuple[list[str], float]]:
    """Return the rows with at most `MOST_VALUES` values of each label; rows with the same labels then are merged."""
    distinct_by_place: dict[int, set[str]] = {}
    merged: dict[tuple[str, ...], float] = {}
    for values, number in rows:
        for place, value in enumerate(values):
            distinct = distinct_by_place.setdefault(place, set())
            if value not in distinct and len(distinct) >= MOST_VALUES:
                values = [*values[:place], OTHER, *values[place + 1 :]]
            else:
                distinct.add(value)
        key = tuple(values)
        merged[key] = merge(merged[key], number) if key in merged else number
    return [(list(key), number) for key, number in merged.items()]


def encodable(values: list[str]) -> list[str]:
    """Return label values that can be encoded as UTF-8: names may contain lone surrogates."""
    return [value.encode("utf-8", "replace").decode() for value in values]


def simple(kind: str, name: str, text: str, rows: Rows, labels: list[str]) -> Metric:
    """Return a family of counters or gauges, with one sample for each row."""
    family = (CounterMetricFamily if kind == "counter" else GaugeMetricFamily)(name, text, labels=labels)
    for values, number in rows:
        family.add_metric(encodable(values), number)
    return family


def summary(name: str, text: str, rows: Iterable[tuple[list[str], int, float]], labels: list[str]) -> Metric:
    """Return a family with a count and a sum for each row, without quantiles."""
    family = SummaryMetricFamily(name, text, labels=labels)
    for values, count, total in rows:
        family.add_metric(encodable(values), count_value=count, sum_value=total)
    return family


def histogram(name: str, text: str, rows: Iterable[tuple[list[str], Series]], labels: list[str]) -> Metric:
    """Return a family with buckets and a sum for each row."""
    family = HistogramMetricFamily(name, text, labels=labels)
    for values, series in rows:
        series.fold()
        counts = series.buckets or [0] * (len(BOUNDS) + 1)
        buckets, below = [], 0
        for bound, count in zip((*(f"{bound:g}" for bound in BOUNDS), "+Inf"), counts, strict=True):
            below += count
            buckets.append((bound, float(below)))
        family.add_metric(encodable(values), buckets, series.total)
    return family


def _durations(agent: AgentParts) -> list[tuple[str, Series]]:
    """Return the tools with the durations of their calls."""
    agent.account.calls.fold()
    return list(agent.account.calls.durations.items())
