"""The dashboard for Grafana, `spar/observe/shipped/dashboard.json`, made from one table; `make docs` writes it.

`$agent` and `$job` are chosen in Grafana. Every metric of `docs/reference/metrics.md` stands in a panel or in
`NOT_SHOWN`, with the reason.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import NamedTuple

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import prometheus, timeseries
from grafana_foundation_sdk.builders.common import VizLegendOptions
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement

FILE = Path(__file__).parents[2] / "spar" / "observe" / "shipped" / "dashboard.json"
WIDTH, HEIGHT = 8, 7  # of a panel, of the 24 columns that a dashboard has
#: The labels that every series of an agent is chosen by.
CHOSEN = 'job=~"$job", agent=~"$agent"'
#: Metrics without a panel, and why.
NOT_SHOWN = {
    "spar_build_info": "the title of each series would be the version; `spar status` says it",
    "spar_agents_left_out": "never above 0 with fewer than fifty agents",
    "spar_log_dropped_total": "has no agent; see the panel of losses by `spar_events_dropped_total`",
    "spar_trace_spans_total": "has no agent, and is there only where traces are told; the log says when some are lost",
    "spar_notices_total": "there only where notifiers are configured, and has no agent; see `spar notifiers list`",
    "spar_notices_waiting": "there only where notifiers are configured, and has no agent; see `spar notifiers list`",
    "spar_shadow_decisions_total": "there only beside a second configuration, and has no agent; see `spar shadow`",
    "spar_shadow_dropped_total": "there only beside a second configuration, and has no agent; see `spar shadow`",
    "spar_agent_gave_up_timestamp_seconds": "0 in a service that is well; the rule `SparAgentFailed` tells of another",
    "spar_series_overflow_total": "tells of the metrics themselves",
}


class Panel(NamedTuple):
    """One panel: what it shows, its unit in Grafana's words, and its queries as (expression, legend)."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]


def of(name: str, more: str = "") -> str:
    """Return the selector of a metric of the agents that are chosen."""
    return f"{name}{{{CHOSEN}{more and ', ' + more}}}"


def rate(name: str, by: str) -> str:
    return f"sum by ({by}) (rate({of(name)}[$__rate_interval]))"


def rate_of_process(name: str, by: str) -> str:
    """Return the rate of what belongs to no agent of its process."""
    return f'sum by ({by}) (rate({name}{{job=~"$job"}}[$__rate_interval]))'


def quantile(share: float, name: str, by: str) -> str:
    return f"histogram_quantile({share}, sum by (le, {by}) (rate({of(name + '_bucket')}[$__rate_interval])))"


def mean(name: str, by: str) -> str:
    return f"{rate(f'{name}_sum', by)} / {rate(f'{name}_count', by)}"


def total(name: str, by: str) -> str:
    return f"sum by ({by}) ({of(name)})"


def most(name: str, by: str) -> str:
    return f"max by ({by}) ({of(name)})"


ROWS: dict[str, tuple[Panel, ...]] = {
    "At a glance": (
        Panel("State", "none", ((f"{most('spar_agent_state', 'agent, state')} == 1", "{{agent}} {{state}}"),)),
        Panel("Open alerts", "none", ((most("spar_alerts_active", "agent, kind"), "{{agent}} {{kind}}"),)),
        Panel("Since the last progress", "s", (
            (f"time() - ({most('spar_loop_last_progress_timestamp_seconds', 'agent')} > 0)", "{{agent}} progress"),
            (f"time() - ({most('spar_cycle_last_completed_timestamp_seconds', 'agent')} > 0)", "{{agent}} cycle"),
            (most("spar_cycle_interval_target_seconds", "agent"), "{{agent}} regular wait"),
        )),
        Panel("A person has to act", "none", (
            (total("spar_approvals_pending", "agent"), "{{agent}} approvals"),
            (total("spar_in_doubt", "agent"), "{{agent}} calls in doubt"),
            (total("spar_dead_letters", "agent"), "{{agent}} put aside"),
            (total("spar_senders_waiting", "agent"), "{{agent}} unknown senders"),
        )),
        Panel("Makes do with less", "none", (
            (most("spar_degraded", "agent"), "{{agent}} degraded"),
            (total("spar_quarantined", "agent, child"), "{{agent}} {{child}} in quarantine"),
        )),
        Panel("Oldest approval", "s", ((most("spar_approvals_oldest_seconds", "agent"), "{{agent}}"),)),
    ),
    "Cycles": (
        Panel("Cycles by outcome", "ops", ((rate("spar_cycles_total", "agent, outcome"), "{{agent}} {{outcome}}"),)),
        Panel("Duration of cycles", "s", (
            (quantile(0.5, "spar_cycle_duration_seconds", "agent"), "{{agent}} half"),
            (quantile(0.99, "spar_cycle_duration_seconds", "agent"), "{{agent}} 99 %"),
            (most("spar_cycle_oldest_open_seconds", "agent"), "{{agent}} oldest open"),
        )),
        Panel("Duration of phases, 99 %", "s", (
            (quantile(0.99, "spar_phase_duration_seconds", "agent, phase"), "{{agent}} {{phase}}"),
        )),
        Panel("Failures", "none", (
            (rate("spar_phase_errors_total", "agent, phase"), "{{agent}} {{phase}} a second"),
            (most("spar_consecutive_failures", "agent"), "{{agent}} in a row"),
        )),
        Panel("Steps of recovery, restarts", "ops", (
            (rate("spar_recovery_steps_total", "agent, step"), "{{agent}} {{step}}"),
            (rate("spar_child_restarts_total", "agent, child"), "{{agent}} restart {{child}}"),
        )),
        Panel("The event loop is late by", "s", ((most("spar_event_loop_lag_seconds", "agent"), "{{agent}}"),)),
    ),
    "Calls": (
        Panel("Calls by outcome", "ops", (
            (rate("spar_calls_total", "agent, tool, outcome"), "{{agent}} {{tool}} {{outcome}}"),
        )),
        Panel("Duration of calls, 99 %", "s", (
            (quantile(0.99, "spar_call_duration_seconds", "agent, tool"), "{{agent}} {{tool}}"),
        )),
        Panel("Longest running call", "s", (
            (most("spar_call_longest_running_seconds", "agent, tool"), "{{agent}} {{tool}}"),
        )),
        Panel("Tokens of models", "none", (
            (rate("spar_model_tokens_total", "agent, kind"), "{{agent}} {{kind}} a second"),
        )),
        Panel("Approvals by decision", "ops", (
            (rate("spar_approvals_total", "agent, decision"), "{{agent}} {{decision}}"),
        )),
        Panel("Sandbox level", "none", ((most("spar_sandbox_level", "agent, tool"), "{{agent}} {{tool}}"),)),
        Panel("Still runs after its cancellation", "none", ((total("spar_left_behind", "agent"), "{{agent}}"),)),
    ),
    "Work that waits": (
        Panel("Items by queue", "none", ((total("spar_queue_depth", "agent, class"), "{{agent}} {{class}}"),)),
        Panel("Age of the oldest", "s", ((most("spar_queue_oldest_seconds", "agent, class"), "{{agent}} {{class}}"),)),
        Panel("Accepted work", "none", (
            (total("spar_items_waiting", "agent"), "{{agent}} in hand or waits"),
            (total("spar_items_to_retry", "agent"), "{{agent}} waits for its next attempt"),
            (total("spar_inbox_waiting", "agent"), "{{agent}} waits for its cycle"),
            (total("spar_open_cycles", "agent"), "{{agent}} open cycles"),
        )),
        Panel("Channels", "none", (
            (total("spar_channel_waiting", "agent, channel"), "{{agent}} {{channel}} waits to be sent"),
            (total("spar_channel_undelivered", "agent, channel"), "{{agent}} {{channel}} put aside"),
            (f"1 - {most('spar_channel_up', 'agent, channel, part')}", "{{agent}} {{channel}} {{part}} fails"),
        )),
        Panel("Messages on channels", "ops", (
            (rate("spar_channel_messages_total", "agent, channel, outcome"), "{{agent}} {{channel}} {{outcome}}"),
        )),
        Panel("Open sessions", "none", ((total("spar_lanes", "agent"), "{{agent}}"),)),
        Panel("Put aside", "ops", ((rate("spar_dead_letter_total", "agent, kind"), "{{agent}} {{kind}}"),)),
        Panel("Sensors that are overdue", "s", (
            (most("spar_sensor_overdue_seconds", "agent, sensor"), "{{agent}} {{sensor}}"),
        )),
    ),
    "Models and budgets": (
        Panel("Models", "none", (
            (f"{most('spar_model_state', 'agent, model, state')} == 1", "{{agent}} {{model}} {{state}}"),
        )),
        Panel("Budgets used", "percentunit", (
            (most("spar_budget_used_ratio", "agent, budget, window"), "{{agent}} {{budget}} of the {{window}}"),
        )),
        Panel("Budgets refused", "ops", (
            (rate("spar_budget_refused_total", "agent, budget"), "{{agent}} {{budget}}"),
        )),
    ),
    "Losses": (
        Panel("Perceptions not kept", "ops", (
            (rate("spar_shed_total", "agent, sensor, reason"), "{{agent}} {{sensor}} {{reason}}"),
            (rate("spar_pipeline_total", "agent, stage, fate"), "{{agent}} {{stage}} {{fate}}"),
            (rate("spar_messages_unheard_total", "agent, channel, reason"), "{{agent}} {{channel}} {{reason}}"),
            (rate("spar_channel_passed_over_total", "agent, channel, reason"), "{{agent}} {{channel}} {{reason}}"),
        )),
        Panel("Ticks missed", "ops", (
            (rate("spar_trigger_missed_total", "agent, trigger, reason"), "{{agent}} {{trigger}} {{reason}}"),
        )),
        Panel("Events lost, handlers that raised", "ops", (
            (rate("spar_events_dropped_total", "agent"), "{{agent}} lost"),
            (rate("spar_subscriber_gaps_total", "agent"), "{{agent}} gaps"),
            (rate("spar_handler_errors_total", "agent"), "{{agent}} raised"),
        )),
        Panel("Sensors", "none", (
            (f"{most('spar_sensor_state', 'agent, sensor, state')} == 1", "{{agent}} {{sensor}} {{state}}"),
        )),
        Panel("Requests to webhooks, and refused at the port", "ops", (
            (rate("spar_hook_requests_total", "agent, hook, outcome"), "{{agent}} {{hook}} {{outcome}}"),
            (rate_of_process("spar_http_refused_total", "reason"), "refused: {{reason}}"),
        )),
        Panel("Nodes", "none", (
            (total("spar_node_partitions", "agent, instance"), "{{agent}} {{instance}} partitions"),
            (most("spar_node_lease_age_seconds", "agent, instance"), "{{agent}} {{instance}} age of its lease"),
            (rate("spar_node_takeovers_total", "agent, instance"), "{{agent}} {{instance}} taken a second"),
            (rate("spar_node_fenced_total", "agent, instance"), "{{agent}} {{instance}} lost a second"),
        )),
        Panel("Incidents", "none", (
            (total("spar_incidents_open", "agent, severity"), "{{agent}} open {{severity}}"),
            (rate("spar_incidents_opened_total", "agent, severity"), "{{agent}} opened {{severity}} a second"),
            (rate("spar_incidents_closed_total", "agent, ending"), "{{agent}} closed {{ending}} a second"),
        )),
        Panel("Experiences and cycles handed to the store", "ops", (
            (rate("spar_memory_writes_total", "agent, disposition"), "{{agent}} {{disposition}}"),
        )),
        Panel("Learning", "ops", (
            (rate("spar_learning_trials_total", "agent"), "{{agent}} trials of tools"),
            (rate("spar_feedback_total", "agent, source, verdict"), "{{agent}} {{source}} says {{verdict}}"),
            (rate("spar_reflection_requests_total", "agent, result"), "{{agent}} asked a model: {{result}}"),
        )),
        Panel("Causes of failed calls", "ops", (
            (rate("spar_call_failures_total", "agent, kind"), "{{agent}} {{kind}}"),
        )),
        Panel("Abilities known", "none", ((total("spar_abilities", "agent"), "{{agent}}"),)),
        Panel("They wait for the store", "none", ((total("spar_memory_waiting", "agent"), "{{agent}}"),)),
    ),
    "Room": (
        Panel("Memory of the process", "bytes", (
            (most("spar_memory_resident_bytes", "agent"), "{{agent}}"),
            (rate("spar_caches_shed_total", "agent"), "{{agent}} cached entries given up a second"),
        )),
        Panel("Disk", "bytes", (
            (most("spar_disk_free_bytes", "agent"), "{{agent}} free"),
            (most("spar_disk_least_free_bytes", "agent"), "{{agent}} least free"),
            (most("spar_database_bytes", "agent"), "{{agent}} database"),
            (most("spar_wal_bytes", "agent"), "{{agent}} write-ahead log"),
        )),
        Panel("A commit of the journal takes", "s", (
            (mean("spar_journal_commit_seconds", "agent"), "{{agent}}"),
        )),
    ),
}  # fmt: skip


def dashboard() -> str:
    """Return the dashboard as JSON, as Grafana imports it."""
    board = (
        build.Dashboard("spar")
        .uid("spar")
        .tags(["spar"])
        .refresh("30s")
        .time("now-6h", "now")
        .timezone("browser")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .with_variable(build.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(_choice("job", "label_values(spar_agent_state, job)"))
        .with_variable(_choice("agent", 'label_values(spar_agent_state{job=~"$job"}, agent)'))
    )
    numbers = count(1)
    for title, panels in ROWS.items():
        board.with_row(build.Row(title).id(next(numbers)))
        for panel in panels:
            board.with_panel(_drawn(panel).id(next(numbers)))
    return JSONEncoder(sort_keys=True, indent=1).encode(board.build()) + "\n"


def _choice(name: str, query: str) -> build.QueryVariable:
    return (
        build.QueryVariable(name)
        .query(query)
        .datasource(_source())
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
        .all_value(".*")
    )


def _source() -> model.DataSourceRef:
    return model.DataSourceRef(type_val="prometheus", uid="${datasource}")


def _drawn(panel: Panel) -> timeseries.Panel:
    legend = VizLegendOptions().display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM).show_legend(True)
    drawn = timeseries.Panel().title(panel.title).unit(panel.unit).min(0).datasource(_source())
    drawn = drawn.span(WIDTH).height(HEIGHT).fill_opacity(10).legend(legend)
    for number, (expression, label) in enumerate(panel.queries):
        drawn.with_target(prometheus.Dataquery().expr(expression).legend_format(label).ref_id(chr(ord("A") + number)))
    return drawn


if __name__ == "__main__":
    FILE.write_text(dashboard())
