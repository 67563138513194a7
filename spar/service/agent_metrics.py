"""Metrics of an agent's work: state, cycles, calls, messages, channels, sensors, learning, incidents.

The metrics of its health are in `spar.service.health_metrics`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from spar.agent.parts import AgentParts
from spar.health.alerts import KINDS
from spar.loop.setup import expected_interval
from spar.ports.nodes import nodes_of
from spar.service.health_metrics import Read, Row, Samples, by_two, incidents, sensors

if TYPE_CHECKING:
    from spar.channels.outbox import Outbox

STATES = ("created", "running", "pausing", "paused", "stopping", "stopped", "failed")
SENSOR_STATES = ("ok", "backing_off", "quarantined")


def _call_outcomes(agent: AgentParts) -> Samples:
    """Return the number of calls by tool and outcome."""
    agent.account.calls.fold()
    return by_two(dict(agent.account.calls.outcomes))


def attached(agent: AgentParts, name: str) -> list[Any]:
    """Return the attachment of this name, as a list."""
    return [] if (part := agent.attachments.find(name)) is None else [part]


def _channels(agent: AgentParts) -> dict[str, Outbox]:
    """Return the channels that are open, by name."""
    return {name: channel for channels in attached(agent, "channels")
            for name, channel in list(channels.supervisors.items())}  # fmt: skip


def _node(name: str) -> Read:
    """Return the reader of a figure of this node; none for an agent of one process, and while there is no lease."""
    return lambda agent: None if (nodes := nodes_of(agent.memory)) is None else nodes.snapshot()[name]


def _open_kinds(agent: AgentParts) -> Collection[str]:
    """Return the kinds of open alerts. A blocked event loop cannot open the alert "blocked", so the kind is added."""
    kinds = agent.health.kinds
    return kinds if agent.watched.blocked_since is None else {*kinds, "blocked"}


def _interval(agent: AgentParts) -> float:
    """Return the longest regular wait between cycles, in seconds; infinite if there is none."""
    interval = expected_interval(agent.setup.pace)
    return float("inf") if interval is None else interval


#: Each metric: kind, name, help, labels beside that of the agent, and the function that reads it from an agent.
PER_AGENT: tuple[Row, ...] = (
    ("gauge", "spar_agent_state", "1 for the state that the agent is in", ["state"],
     lambda a: {state: a.core.state == state for state in STATES}),
    ("gauge", "spar_agent_gave_up_timestamp_seconds", "When the agent last gave up, restarts included (0: never)",
     [], lambda a: a.lifecycle.gave_up_at),
    ("counter", "spar_cycles_total", "Cycles by outcome", ["outcome"], lambda a: a.account.outcomes),
    ("counter", "spar_phase_errors_total", "Phases that failed for good", ["phase"],
     lambda a: a.account.errors_by_phase),
    ("counter", "spar_calls_total", "Calls by how they ended", ["tool", "outcome"], _call_outcomes),
    ("counter", "spar_model_tokens_total", "Tokens that models read, from a cache (cached) or not, and wrote",
     ["kind"], lambda a: a.health.models.tokens),
    ("gauge", "spar_cycle_last_completed_timestamp_seconds", "When a cycle was last completed (0: not yet)", [],
     lambda a: a.last_completed_at),
    ("gauge", "spar_cycle_interval_target_seconds", "The longest regular wait between cycles (+Inf: off)", [],
     _interval),
    ("gauge", "spar_consecutive_failures", "Failed cycles in a row", [], lambda a: a.account.consecutive_failures),
    ("gauge", "spar_alerts_active", "Open health alerts", ["kind"],
     lambda a: {kind: kind in open_kinds for open_kinds in [_open_kinds(a)] for kind in KINDS}),
    ("gauge", "spar_lanes", "Open sessions (`lanes` in the status)", [], lambda a: len(a.sessions.by_key)),
    ("gauge", "spar_inbox_waiting", "Perceptions and messages that wait for their cycle", [],
     lambda a: sum(session.waiting for session in list(a.sessions.by_key.values()))),
    ("gauge", "spar_left_behind", "Phases and threads that ignored their cancellation and still run", [],
     lambda a: a.left_behind),
    ("counter", "spar_handler_errors_total", "Event handlers that raised", [], lambda a: a.core.events.handler_errors),
    ("counter", "spar_events_dropped_total", "Events that slow subscribers lost", [],
     lambda a: a.core.events.dropped + sum(s.dropped for s in a.core.events.subscriptions)),
    ("counter", "spar_memory_writes_total", "Experiences and cycles handed to the store", ["disposition"],
     lambda a: {name: a.agent_state.account[name] for name in ("stored", "lost")}),
    ("gauge", "spar_memory_waiting", "Experiences and cycles that wait for the store", [],
     lambda a: a.agent_state.account["waiting"]),
    ("gauge", "spar_budget_used_ratio", "Share of a budget that is used; above 1 what people approved beyond it",
     ["budget", "window"], lambda a: {(quantity, window): ratio for budgets in attached(a, "budgets")
                                      for quantity, window, ratio in budgets.ratios()}),
    ("counter", "spar_budget_refused_total", "How often there was not enough of a budget left", ["budget"],
     lambda a: {quantity: number for budgets in attached(a, "budgets")
                for quantity, number in budgets.refusals().items()}),
    ("gauge", "spar_senders_waiting", "Unknown senders that wait for a person's decision", [],
     lambda a: None if (senders := a.attachments.find("senders")) is None else senders.waiting),
    ("counter", "spar_messages_unheard_total", "Messages on channels that were not accepted, by channel and reason",
     ["channel", "reason"], lambda a: {} if (senders := a.attachments.find("senders")) is None else senders.refused),
    ("counter", "spar_channel_messages_total", "Messages on channels: accepted, known, refused, sent, failed",
     ["channel", "outcome"], lambda a: by_two({name: channel.counts for name, channel in _channels(a).items()})),
    ("counter", "spar_channel_passed_over_total", "Messages that a channel did not hand over, by its reason",
     ["channel", "reason"],
     lambda a: by_two({name: channel.snapshot() for name, channel in _channels(a).items()}, "passed_over")),
    ("gauge", "spar_channel_waiting", "Messages that wait to be sent", ["channel"],
     lambda a: {name: len(channel.items) for name, channel in _channels(a).items()}),
    ("gauge", "spar_channel_undelivered", "Messages that could not be sent and were given up", ["channel"],
     lambda a: {name: len(channel.failed) for name, channel in _channels(a).items()}),
    ("gauge", "spar_channel_up", "1 while a channel receives, or sends, without failing", ["channel", "part"],
     lambda a: {(name, part): trouble.state == "ok" for name, channel in _channels(a).items()
                for part, trouble in (("receive", channel.receiving), ("send", channel.sending))}),
    ("gauge", "spar_sensor_state", "1 for the state that a configured sensor is in", ["sensor", "state"],
     lambda a: {(name, state): sensor.get("state") == state
                for name, sensor in sensors(a).items() for state in SENSOR_STATES}),
    ("gauge", "spar_abilities", "Abilities of tools in situations that are known", [], lambda a: len(a.abilities)),
    ("counter", "spar_learning_trials_total", "Calls from which the ability of a tool was learnt", [],
     lambda a: a.agent_state.abilities.learnt.trials),
    ("counter", "spar_call_failures_total", "Calls that did not end well, by the kind of the cause", ["kind"],
     lambda a: a.agent_state.abilities.learnt.failures),
    ("counter", "spar_feedback_total", "Feedback on how things went, by source: person, verify, environment",
     ["source", "verdict"], lambda a: a.agent_state.abilities.learnt.feedback),
    ("counter", "spar_reflection_requests_total",
     "Requests of the reflector to a model, by result: added, nothing, malformed, late, unanswered, "
     "failed, limited", ["result"], lambda a: a.agent_state.abilities.learnt.advised),
    ("gauge", "spar_incidents_open", "Open incidents", ["severity"], lambda a: incidents(a, "open")),
    ("counter", "spar_incidents_opened_total", "Incidents that were opened, or opened again", ["severity"],
     lambda a: incidents(a, "opened")),
    ("counter", "spar_incidents_closed_total", "Incidents that were closed, by how: resolved, quiet, person, room",
     ["ending"], lambda a: incidents(a, "closed")),
    ("gauge", "spar_node_partitions", "Partitions of the sessions that this node owns, of 256", [],
     _node("partitions")),
    ("gauge", "spar_node_lease_age_seconds", "Seconds since this node renewed its lease", [], _node("lease_age")),
    ("counter", "spar_node_takeovers_total", "Partitions that this node has taken", [], _node("takeovers")),
    ("counter", "spar_node_fenced_total", "Partitions that another node took before this one knew it", [],
     _node("fenced")),
)  # fmt: skip
