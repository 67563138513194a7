"""Metrics in Prometheus' format, folded from the agents' own account when somebody scrapes.

Nothing here runs in a cycle: the loop appends, a scrape reads and folds. One registry per service, so two can live in
one process; label values come from closed or bounded sets, and agents beyond `MOST_AGENTS` are counted as left out.
Names follow the conventions of Prometheus: base units, `_total` for counters. What is read of an agent
stands in `spar.service.agent_metrics` and `spar.service.health_metrics`.
"""

from __future__ import annotations

import operator
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol

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

from spar.agent.measured import Measured
from spar.observe.stats import BOUNDS, Series
from spar.review.pending_approvals import Waiting
from spar.service.agent_metrics import PER_AGENT
from spar.service.health_metrics import HEALTH, Rows

MOST_AGENTS = 50
#: Of one label no more values are told apart; what comes later is put together as `OTHER`.
MOST_VALUES = 100
OTHER = "other"
#: Reasons for which the port refuses a request.
REFUSALS = ("host", "origin", "missing", "unknown", "scope")


class Metrics:
    """The registry of one service. `render` is safe from any thread and does no I/O."""

    def __init__(
        self,
        agents: Callable[[], Iterable[Measured]],
        version: str,
        *,
        log_dropped: Callable[[], int] = lambda: 0,
        waiting: Callable[[], Iterable[Waiting]] = lambda: (),
        spans: Callable[[], SpanCounts | None] = lambda: None,
        notices: Callable[[], list[dict[str, Any]]] = list,
        refused: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(AgentCollector(agents, version, log_dropped))
        self.registry.register(SpanCollector(spans))
        self.registry.register(NoticeCollector(notices))
        self.registry.register(WaitingCollector(waiting))
        self.registry.register(RefusalCollector(refused))
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The metrics as text and their content type, OpenMetrics if the scraper accepts it."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type


class AgentCollector(Collector):
    """Reads the agents' accounts into metric families."""

    def __init__(self, agents: Callable[[], Iterable[Measured]], version: str, log_dropped: Callable[[], int]) -> None:
        self._agents, self._version, self._log_dropped = agents, version, log_dropped

    def collect(self) -> Iterator[Metric]:
        everyone = list(self._agents())
        agents = everyone[:MOST_AGENTS]
        build = [([self._version, platform.python_version()], 1.0)]
        yield gauge("spar_build_info", "The version that runs", build, ["version", "python"])
        yield gauge("spar_agents_left_out", "Agents beyond the bound of this page", [([], len(everyone) - len(agents))])
        yield counter(
            "spar_log_dropped_total", "Log lines lost because the sink was too slow", [([], self._log_dropped())]
        )
        for kind, name, text, labels, read in (*PER_AGENT, *HEALTH):
            merge = max if kind == "gauge" else operator.add
            rows = [([a.core.name, *values], number) for a in agents for values, number in bounded(read(a), merge)]
            yield MAKE[kind](name, text, rows, labels)
        commits = [(a.core.name, a.health.pressure.store.get("commit_seconds")) for a in agents]
        yield summary(
            "spar_journal_commit_seconds",
            "How long commits of the journal took",
            [([name], found["count"], found["sum"]) for name, found in commits if found],
            ["agent"],
        )
        yield histogram(
            "spar_cycle_duration_seconds",
            "How long cycles took",
            [([a.core.name], a.account.cycles) for a in agents],
            ["agent"],
        )
        phases = [
            ([agent.core.name, phase], series) for agent in agents for phase, series in agent.account.phases.items()
        ]
        yield histogram("spar_phase_duration_seconds", "How long phases took", phases, ["agent", "phase"])
        calls = [([agent.core.name, tool], series) for agent in agents for tool, series in _durations(agent)]
        yield histogram("spar_call_duration_seconds", "How long calls that ran took", calls, ["agent", "tool"])


class SpanCounts(Protocol):
    """Spans that a collector has taken, and those that were lost."""

    exported: int
    dropped: int


class SpanCollector(Collector):
    """Reads how many spans were told; nothing where no traces are."""

    def __init__(self, spans: Callable[[], SpanCounts | None]) -> None:
        self._spans = spans

    def collect(self) -> Iterator[Metric]:
        counts = self._spans()
        rows = [] if counts is None else [(["exported"], counts.exported), (["dropped"], counts.dropped)]
        yield counter("spar_trace_spans_total", "Spans told to the collector of traces, and those lost", rows,
                      ["disposition"])  # fmt: skip


class NoticeCollector(Collector):
    """Reads how the notifiers of alerts are doing; nothing where there are none."""

    def __init__(self, notices: Callable[[], list[dict[str, Any]]]) -> None:
        self._notices = notices

    def collect(self) -> Iterator[Metric]:
        states = self._notices()[:MOST_VALUES]
        rows = [([each["name"], what], each[what]) for each in states for what in ("sent", "failed", "given_up")]
        yield counter("spar_notices_total", "Notices of alerts, by how an attempt to tell them ended", rows,
                      ["notifier", "outcome"])  # fmt: skip
        yield gauge("spar_notices_waiting", "Notices that wait to be told",
                    [([each["name"]], each["waiting"]) for each in states], ["notifier"])  # fmt: skip


class RefusalCollector(Collector):
    """Reads how many requests the port has refused."""

    def __init__(self, refused: Callable[[], Mapping[str, int]]) -> None:
        self._refused = refused

    def collect(self) -> Iterator[Metric]:
        counts = self._refused()
        yield counter("spar_http_refused_total", "Requests at the port that were refused, by reason",
                      [([reason], counts.get(reason, 0)) for reason in REFUSALS], ["reason"])  # fmt: skip


class WaitingCollector(Collector):
    """Reads what waits for people into metric families."""

    def __init__(self, waiting: Callable[[], Iterable[Waiting]]) -> None:
        self._waiting = waiting

    def collect(self) -> Iterator[Metric]:
        watched = list(self._waiting())[:MOST_AGENTS]
        now = datetime.now(UTC)
        yield gauge(
            "spar_approvals_pending",
            "Calls that wait for a person's answer",
            [([one.agent], len(one.pending(now))) for one in watched],
            ["agent"],
        )
        yield gauge(
            "spar_approvals_oldest_seconds",
            "For how long the oldest of them has waited (0: none waits)",
            [([one.agent], one.snapshot(now)["oldest_age_seconds"] or 0.0) for one in watched],
            ["agent"],
        )
        yield counter(
            "spar_approvals_total",
            "Calls that asked for approval, by how that ended",
            [([one.agent, decision], number) for one in watched for decision, number in one.endings.items()],
            ["agent", "decision"],
        )


def bounded(rows: Rows, merge: Callable[[float, float], float]) -> list[tuple[list[str], float]]:
    """The rows with no more than `MOST_VALUES` values of each label; those that fall together are merged."""
    known: dict[int, set[str]] = {}
    found: dict[tuple[str, ...], float] = {}
    for values, number in rows:
        for place, value in enumerate(values):
            seen = known.setdefault(place, set())
            if value not in seen and len(seen) >= MOST_VALUES:
                values = [*values[:place], OTHER, *values[place + 1 :]]
            else:
                seen.add(value)
        key = tuple(values)
        found[key] = merge(found[key], number) if key in found else number
    return [(list(key), number) for key, number in found.items()]


def whole(values: list[str]) -> list[str]:
    """Labels that every encoder takes: names may hold lone surrogates."""
    return [value.encode("utf-8", "replace").decode() for value in values]


def simple(family: type[CounterMetricFamily | GaugeMetricFamily], name: str, text: str, rows: Rows,
           labels: list[str] | None = None) -> Metric:  # fmt: skip
    """A number for each row."""
    found = family(name, text, labels=labels or [])
    for values, number in rows:
        found.add_metric(whole(values), number)
    return found


counter, gauge = partial(simple, CounterMetricFamily), partial(simple, GaugeMetricFamily)


def summary(name: str, text: str, rows: Iterable[tuple[list[str], int, float]], labels: list[str]) -> Metric:
    """A count and a sum, without buckets."""
    family = SummaryMetricFamily(name, text, labels=labels)
    for values, count, total in rows:
        family.add_metric(whole(values), count_value=count, sum_value=total)
    return family


def histogram(name: str, text: str, rows: Iterable[tuple[list[str], Series]], labels: list[str]) -> Metric:
    family = HistogramMetricFamily(name, text, labels=labels)
    for values, series in rows:
        series.fold()
        counts = series.buckets or [0] * (len(BOUNDS) + 1)
        buckets, below = [], 0
        for bound, count in zip((*(f"{bound:g}" for bound in BOUNDS), "+Inf"), counts, strict=True):
            below += count
            buckets.append((bound, float(below)))
        family.add_metric(whole(values), buckets, series.total)
    return family


#: How the kinds of `PER_AGENT` and `HEALTH` are made.
MAKE: dict[str, Callable[..., Metric]] = {"counter": counter, "gauge": gauge}


def _durations(agent: Measured) -> list[tuple[str, Series]]:
    agent.account.calls.fold()
    return list(agent.account.calls.durations.items())
