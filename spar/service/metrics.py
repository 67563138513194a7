"""Page of metrics in Prometheus' format, computed from the agents' statistics when it is requested.

No code here runs in a cycle: the loop only appends to the statistics, a scrape adds them up. Each service has its own
registry, so two services can live in one process. Label values come from closed or bounded sets; agents beyond
`MOST_AGENTS` are only counted. Names follow the conventions of Prometheus: base units, `_total` for counters. The
tables of the metrics are in `spar.service.agent_metrics` and `spar.service.health_metrics`.
"""

from __future__ import annotations

import operator
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
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
from spar.service.agent_metrics import PER_AGENT
from spar.service.health_metrics import HEALTH, Rows

if TYPE_CHECKING:
    from spar.replay.shadow import Shadow
    from spar.tracing.tracer import TraceCounts

#: Agents that one page shows.
MOST_AGENTS = 50
#: Distinct values of one label; later ones are merged into `OTHER`.
MOST_VALUES = 100
OTHER = "other"
#: Reasons for which the port refuses a request.
REFUSALS = ("host", "origin", "missing", "unknown", "session", "guesses", "rate", "busy", "scope")


class Metrics:
    """The registry of one service. `render` is safe from any thread and does no I/O."""

    def __init__(
        self,
        agents: Callable[[], Iterable[AgentParts]],
        version: str,
        *,
        log_dropped: Callable[[], int] = lambda: 0,
        waiting: Callable[[], Iterable[Waiting]] = lambda: (),
        spans: Callable[[], TraceCounts | None] = lambda: None,
        notices: Callable[[], list[dict[str, Any]]] = list,
        refused: Callable[[], Mapping[str, int]] = dict,
        shadow: Callable[[], Shadow | None] = lambda: None,
    ) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(AgentCollector(agents, version, log_dropped))
        self.registry.register(SpanCollector(spans))
        self.registry.register(NoticeCollector(notices))
        self.registry.register(WaitingCollector(waiting))
        self.registry.register(RefusalCollector(refused))
        self.registry.register(ShadowCollector(shadow))
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return the page of metrics and its content type: OpenMetrics if the scraper accepts it.

        Args: accept: the `Accept` header of the request.
        """
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type


class AgentCollector(Collector):
    """Collector of the metrics of the agents, read from their statistics."""

    def __init__(
        self, agents: Callable[[], Iterable[AgentParts]], version: str, log_dropped: Callable[[], int]
    ) -> None:
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
            [([name], figures["count"], figures["sum"]) for name, figures in commits if figures],
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


class SpanCollector(Collector):
    """Collector of the numbers of spans; empty without traces."""

    def __init__(self, spans: Callable[[], TraceCounts | None]) -> None:
        self._spans = spans

    def collect(self) -> Iterator[Metric]:
        counts = self._spans()
        rows = [] if counts is None else [(["exported"], counts.exported), (["dropped"], counts.dropped)]
        yield counter("spar_trace_spans_total", "Spans that were sent to the trace collector, or lost", rows,
                      ["disposition"])  # fmt: skip


class NoticeCollector(Collector):
    """Collector of the figures of the notifiers of alerts; empty without notifiers."""

    def __init__(self, notices: Callable[[], list[dict[str, Any]]]) -> None:
        self._notices = notices

    def collect(self) -> Iterator[Metric]:
        states = self._notices()[:MOST_VALUES]
        rows = [
            ([state["name"], outcome], state[outcome]) for state in states for outcome in ("sent", "failed", "given_up")
        ]
        yield counter("spar_notices_total", "Notices of alerts, by how the attempt to send them ended", rows,
                      ["notifier", "outcome"])  # fmt: skip
        yield gauge("spar_notices_waiting", "Notices that wait to be sent",
                    [([state["name"]], state["waiting"]) for state in states], ["notifier"])  # fmt: skip


class RefusalCollector(Collector):
    """Collector of the number of requests that the port has refused."""

    def __init__(self, refused: Callable[[], Mapping[str, int]]) -> None:
        self._refused = refused

    def collect(self) -> Iterator[Metric]:
        counts = self._refused()
        yield counter("spar_http_refused_total", "Requests at the port that were refused, by reason",
                      [([reason], counts.get(reason, 0)) for reason in REFUSALS], ["reason"])  # fmt: skip


class ShadowCollector(Collector):
    """Collector of the numbers of a shadow; empty without one."""

    def __init__(self, shadow: Callable[[], Shadow | None]) -> None:
        self._shadow = shadow

    def collect(self) -> Iterator[Metric]:
        shadow = self._shadow()
        counts = {} if shadow is None else shadow.counts
        yield counter("spar_shadow_decisions_total", "Decisions of a second configuration, by whether they agree",
                      [([agree], number) for agree, number in counts.items()], ["agree"])  # fmt: skip
        yield counter("spar_shadow_dropped_total", "Cycles for which the second configuration had no room",
                      [] if shadow is None else [([], shadow.dropped)])  # fmt: skip


class WaitingCollector(Collector):
    """Collector of the figures of calls that wait for approval."""

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
            "Calls that needed approval, by decision",
            [([one.agent, decision], number) for one in watched for decision, number in one.endings.items()],
            ["agent", "decision"],
        )


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


def simple(make_family: type[CounterMetricFamily | GaugeMetricFamily], name: str, text: str, rows: Rows,
           labels: list[str] | None = None) -> Metric:  # fmt: skip
    """Return a family of counters or gauges, with one sample for each row."""
    family = make_family(name, text, labels=labels or [])
    for values, number in rows:
        family.add_metric(encodable(values), number)
    return family


counter, gauge = partial(simple, CounterMetricFamily), partial(simple, GaugeMetricFamily)


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


#: The function that builds the family, by the kind of metric in `PER_AGENT` and `HEALTH`.
MAKE: dict[str, Callable[..., Metric]] = {"counter": counter, "gauge": gauge}


def _durations(agent: AgentParts) -> list[tuple[str, Series]]:
    """Return the tools with the durations of their calls."""
    agent.account.calls.fold()
    return list(agent.account.calls.durations.items())
