"""Metrics: what a scrape finds, read back by Prometheus' own parser."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_plain

from spar import Agent, __version__
from spar.observe.stats import BOUNDS
from spar.service.metrics import MOST_AGENTS, Metrics
from spar.types import Action, Call, Perception
from tests.waiting import until

NAME = re.compile(r"spar_[a-z]+(_[a-z]+)*")


def samples(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    """The samples of one name by their label values, sorted by label."""
    found = {}
    for family in read_plain(metrics.render()[0].decode()):
        for sample in family.samples:
            if sample.name == name:
                found[tuple(value for _, value in sorted(sample.labels.items()))] = sample.value
    return found


def of(*agents: Any, **more: Any) -> Metrics:
    return Metrics(lambda: agents, __version__, **more)


async def fails(perceptions: Any) -> Action:
    raise ValueError("no idea")


async def see() -> Perception:
    return Perception("something")


async def test_counts_are_those_of_the_statistics() -> None:
    agent = Agent(sense=see, plan=fails, loop_interval=0)
    for duration in (0.001, 0.2, 3.0):
        agent.account.cycle("acted", duration)
    agent.account.cycle("failed", 0.5)
    agent.account.errors_by_phase["plan"] += 1

    stats, metrics = agent.stats, of(agent)

    cycles = samples(metrics, "spar_cycles_total")
    assert cycles == {("main", outcome): float(number) for outcome, number in stats.outcomes.items()}
    assert sum(cycles.values()) == stats.total_cycles == 4
    assert samples(metrics, "spar_phase_errors_total")["main", "plan"] == stats.errors_by_phase["plan"] == 1
    assert samples(metrics, "spar_consecutive_failures")["main",] == 1
    assert samples(metrics, "spar_cycle_duration_seconds_count")["main",] == 4
    assert samples(metrics, "spar_cycle_duration_seconds_sum")["main",] == pytest.approx(3.701)


async def test_buckets_are_cumulative_and_hold_their_own_bound() -> None:
    agent = Agent()
    for duration in (0.0, 0.1, 0.100001, 0.2, 1e6):
        agent.account.cycle("acted", duration)

    buckets = samples(of(agent), "spar_cycle_duration_seconds_bucket")

    numbers = [
        buckets["main", f"{bound:g}"] if ("main", f"{bound:g}") in buckets else buckets["main", str(bound)]
        for bound in BOUNDS
    ]
    assert numbers == sorted(numbers)
    assert buckets["main", "0.1"] == 2
    assert buckets["main", "0.2"] == 4
    assert buckets["main", "+Inf"] == 5


async def test_every_agent_starts_with_all_its_series_at_zero() -> None:
    metrics = of(Agent())

    assert set(samples(metrics, "spar_cycles_total").values()) == {0.0}
    assert len(samples(metrics, "spar_cycles_total")) == 6
    assert set(samples(metrics, "spar_phase_errors_total")) == {
        ("main", phase) for phase in ("sense", "plan", "act", "reflect")
    }
    assert set(samples(metrics, "spar_alerts_active").values()) == {0.0}
    assert samples(metrics, "spar_agent_state")["main", "created"] == 1
    assert sum(samples(metrics, "spar_agent_state").values()) == 1


async def test_names_follow_the_conventions() -> None:
    for family in read_plain(of(Agent()).render()[0].decode()):
        if family.name.startswith("spar_"):
            assert NAME.fullmatch(family.name), family.name
            assert family.documentation
            assert family.type in ("counter", "gauge", "histogram", "summary")
            for sample in family.samples:
                assert sample.name.endswith("_total") == (family.type == "counter")


async def test_the_dialect_is_the_one_that_is_asked_for() -> None:
    metrics = of(Agent())

    _, plain_type = metrics.render("text/plain")
    openmetrics, openmetrics_type = metrics.render("application/openmetrics-text; version=1.0.0; charset=utf-8")

    assert plain_type.startswith("text/plain")
    assert openmetrics_type.startswith("application/openmetrics-text")
    names = {family.name for family in read_openmetrics(openmetrics.decode())}
    assert {"spar_cycles", "spar_cycle_duration_seconds", "spar_build_info"} <= names


async def test_two_services_live_in_one_process() -> None:
    one, other = Agent(name="one"), Agent(name="other")
    one.account.cycle("acted", 0.1)

    assert samples(of(one), "spar_cycles_total")["one", "acted"] == 1
    assert ("one", "acted") not in samples(of(other), "spar_cycles_total")


async def test_the_page_is_bounded_and_says_what_it_leaves_out() -> None:
    many = [Agent(name=f"agent-{number}") for number in range(MOST_AGENTS + 7)]

    metrics = of(*many)

    assert len({labels[0] for labels in samples(metrics, "spar_cycles_total")}) == MOST_AGENTS
    assert samples(metrics, "spar_agents_left_out") == {(): 7.0}


async def test_labels_may_hold_any_text() -> None:
    name = 'a"b\\c\nd\u2603\ud800'

    found = samples(of(Agent(name=name)), "spar_cycles_total")

    assert all(labels[0].startswith('a"b\\c\nd\u2603') for labels in found)


async def test_ids_and_messages_are_in_no_label() -> None:
    async def plan(perceptions: Any) -> Action:
        return Action(goal="a secret goal", calls=(Call("no_such_tool"),), output="a secret answer")

    agent = Agent(sense=see, plan=plan, loop_interval=0)
    async with agent:
        await agent.wait((await agent.submit("my secret message", session="secret-session")).run_id, 5)

    assert "secret" not in of(agent).render()[0].decode()


async def test_the_build_and_the_lost_log_lines_are_told() -> None:
    metrics = of(Agent(), log_dropped=lambda: 3)

    assert any(__version__ in labels for labels in samples(metrics, "spar_build_info"))
    assert samples(metrics, "spar_log_dropped_total") == {(): 3.0}


async def test_the_last_cycle_has_a_time_of_day() -> None:
    agent = Agent(loop_interval=0.01)
    assert samples(of(agent), "spar_cycle_last_completed_timestamp_seconds")["main",] == 0

    async with agent:
        await until(lambda: agent.stats.total_cycles)
        assert abs(samples(of(agent), "spar_cycle_last_completed_timestamp_seconds")["main",] - time.time()) < 60


async def test_no_interval_is_an_infinite_one() -> None:
    assert samples(of(Agent(loop_interval="off")), "spar_cycle_interval_target_seconds")["main",] == float("inf")
    assert samples(of(Agent(loop_interval=2.5)), "spar_cycle_interval_target_seconds")["main",] == 2.5
