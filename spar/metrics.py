"""Metrics in Prometheus' format, folded from the agents' own account when somebody scrapes.

Nothing here runs in a cycle: the loop appends, a scrape reads and folds. One registry per service, so two can live in
one process; label values come from closed or bounded sets, and agents beyond `MOST_AGENTS` are counted as left out.
Names follow the conventions of Prometheus: base units, `_total` for counters.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from spar.health import Kind
from spar.pacing import expected_interval
from spar.stats import BOUNDS, Series

if TYPE_CHECKING:
    from spar.agent import Agent
    from spar.waiting import Waiting

MOST_AGENTS = 50
STATES = ("created", "running", "pausing", "paused", "stopping", "stopped", "failed")
KINDS: tuple[Kind, ...] = ("stuck", "slow", "failing", "stalled", "blocked")
SENSOR_STATES = ("ok", "backing_off", "quarantined")


class Metrics:
    """The registry of one service. `render` is safe from any thread and does no I/O."""

    def __init__(
        self,
        agents: Callable[[], Iterable[Agent]],
        version: str,
        *,
        log_dropped: Callable[[], int] = lambda: 0,
        waiting: Callable[[], Iterable[Waiting]] = lambda: (),
    ) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(AgentCollector(agents, version, log_dropped))
        self.registry.register(WaitingCollector(waiting))
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The metrics as text and their content type, OpenMetrics if the scraper accepts it."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type


class AgentCollector(Collector):
    """Reads the agents' accounts into metric families."""

    def __init__(self, agents: Callable[[], Iterable[Agent]], version: str, log_dropped: Callable[[], int]) -> None:
        self._agents, self._version, self._log_dropped = agents, version, log_dropped

    def collect(self) -> Iterator[Metric]:
        everyone = list(self._agents())
        agents = everyone[:MOST_AGENTS]
        build = GaugeMetricFamily("spar_build_info", "The version that runs", labels=["version", "python"])
        build.add_metric([self._version, platform.python_version()], 1)
        yield build
        yield _gauge(
            "spar_agents_left_out", "Agents beyond the bound of this page", [([], len(everyone) - len(agents))]
        )
        yield _counter(
            "spar_log_dropped_total", "Log lines lost because the sink was too slow", [([], self._log_dropped())]
        )
        for make, name, text, labels, read in PER_AGENT:
            yield make(
                name,
                text,
                [([agent.name, *values], number) for agent in agents for values, number in read(agent)],
                labels,
            )
        yield _histogram(
            "spar_cycle_duration_seconds",
            "How long cycles took",
            [([a.name], a.account.cycles) for a in agents],
            ["agent"],
        )
        phases = [([agent.name, phase], series) for agent in agents for phase, series in agent.account.phases.items()]
        yield _histogram("spar_phase_duration_seconds", "How long phases took", phases, ["agent", "phase"])
        calls = [([agent.name, tool], series) for agent in agents for tool, series in _durations(agent)]
        yield _histogram("spar_call_duration_seconds", "How long calls that ran took", calls, ["agent", "tool"])


class WaitingCollector(Collector):
    """Reads what waits for people into metric families."""

    def __init__(self, waiting: Callable[[], Iterable[Waiting]]) -> None:
        self._waiting = waiting

    def collect(self) -> Iterator[Metric]:
        watched = list(self._waiting())[:MOST_AGENTS]
        now = datetime.now(UTC)
        yield _gauge(
            "spar_approvals_pending",
            "Calls that wait for a person's answer",
            [([one.agent], len(one.pending(now))) for one in watched],
            ["agent"],
        )
        yield _counter(
            "spar_approvals_total",
            "Calls that asked for approval, by how that ended",
            [([one.agent, decision], number) for one in watched for decision, number in one.endings.items()],
            ["agent", "decision"],
        )


Rows = Iterable[tuple[list[str], float]]


def _whole(values: list[str]) -> list[str]:
    """Labels that every encoder takes: names may hold lone surrogates."""
    return [value.encode("utf-8", "replace").decode() for value in values]


def _counter(name: str, text: str, rows: Rows, labels: list[str] | None = None) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels or [])
    for values, number in rows:
        family.add_metric(_whole(values), number)
    return family


def _gauge(name: str, text: str, rows: Rows, labels: list[str] | None = None) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels or [])
    for values, number in rows:
        family.add_metric(_whole(values), number)
    return family


def _histogram(name: str, text: str, rows: Iterable[tuple[list[str], Series]], labels: list[str]) -> Metric:
    family = HistogramMetricFamily(name, text, labels=labels)
    for values, series in rows:
        series.fold()
        counts = series.buckets or [0] * (len(BOUNDS) + 1)
        buckets, below = [], 0
        for bound, count in zip((*(f"{bound:g}" for bound in BOUNDS), "+Inf"), counts, strict=True):
            below += count
            buckets.append((bound, float(below)))
        family.add_metric(_whole(values), buckets, series.total)
    return family


def _sensors(agent: Agent) -> dict[str, dict[str, object]]:
    snapshot = getattr(agent.modules["sense"].part, "snapshot", None)
    found = snapshot().get("sensors", {}) if callable(snapshot) else {}
    return found if isinstance(found, dict) else {}


def _durations(agent: Agent) -> list[tuple[str, Series]]:
    agent.account.calls.fold()
    return list(agent.account.calls.durations.items())


def _call_outcomes(agent: Agent) -> Rows:
    agent.account.calls.fold()
    tools = list(agent.account.calls.outcomes.items())
    return [([tool, outcome], number) for tool, counts in tools for outcome, number in counts.items()]


def _interval(agent: Agent) -> float:
    interval = expected_interval(agent.pace)
    return float("inf") if interval is None else interval


#: (kind of metric, name, help, labels, how to read it off an agent as (label values beyond the agent, number)).
PER_AGENT: tuple[tuple[Callable[..., Metric], str, str, list[str], Callable[[Agent], Rows]], ...] = (
    (_gauge, "spar_agent_state", "1 for the state that the agent is in", ["agent", "state"],
     lambda a: [([state], float(a.state == state)) for state in STATES]),
    (_counter, "spar_cycles_total", "Cycles by outcome", ["agent", "outcome"],
     lambda a: [([outcome], number) for outcome, number in a.account.outcomes.items()]),
    (_counter, "spar_phase_errors_total", "Phases that failed for good", ["agent", "phase"],
     lambda a: [([phase], number) for phase, number in a.account.errors_by_phase.items()]),
    (_counter, "spar_calls_total", "Calls by how they ended", ["agent", "tool", "outcome"], _call_outcomes),
    (_gauge, "spar_cycle_last_completed_timestamp_seconds", "When a cycle was last completed (0: not yet)", ["agent"],
     lambda a: [([], a.last_completed_at)]),
    (_gauge, "spar_cycle_interval_target_seconds", "The longest regular wait between cycles (+Inf: off)", ["agent"],
     lambda a: [([], _interval(a))]),
    (_gauge, "spar_consecutive_failures", "Cycles in a row that failed", ["agent"],
     lambda a: [([], a.account.consecutive_failures)]),
    (_gauge, "spar_alerts_active", "Open health alerts", ["agent", "kind"],
     lambda a: [([kind], float(kind in a.health.alerts)) for kind in KINDS]),
    (_gauge, "spar_lanes", "Sessions with a lane", ["agent"], lambda a: [([], len(a.lanes))]),
    (_gauge, "spar_inbox_waiting", "Perceptions and messages that wait for their cycle", ["agent"],
     lambda a: [([], sum(lane.waiting for lane in list(a.lanes.values())))]),
    (_gauge, "spar_left_behind", "Phases and threads that ignored their cancellation and still run", ["agent"],
     lambda a: [([], a.left_behind)]),
    (_counter, "spar_handler_errors_total", "Event handlers that raised", ["agent"],
     lambda a: [([], a.events.handler_errors)]),
    (_counter, "spar_events_dropped_total", "Events that slow subscribers lost", ["agent"],
     lambda a: [([], a.events.dropped + sum(s.dropped for s in a.events.subscriptions))]),
    (_counter, "spar_memory_writes_total", "Experiences and cycles handed to the store", ["agent", "disposition"],
     lambda a: [(["stored"], a.kept["stored"]), (["lost"], a.kept["lost"])]),
    (_gauge, "spar_memory_waiting", "Experiences and cycles that wait for the store", ["agent"],
     lambda a: [([], a.kept["waiting"])]),
    (_gauge, "spar_sensor_state", "1 for the state that a configured sensor is in", ["agent", "sensor", "state"],
     lambda a: [([name, state], float(sensor.get("state") == state))
                for name, sensor in _sensors(a).items() for state in SENSOR_STATES]),
)  # fmt: skip
