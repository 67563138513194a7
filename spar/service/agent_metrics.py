"""Metrics of an agent's work: state, cycles, calls, messages, channels, sensors, learning, incidents.

The metrics of its health are in `spar.service.health_metrics`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from spar.agent.parts import AgentParts
from spar.health.alerts import KINDS
from spar.loop.setup import expected_interval
from spar.ports.store.nodes import nodes_of
from spar.service.health_metrics import Read, Rows, incidents, sensors

if TYPE_CHECKING:
    from spar.channels.outbox import Outbox

STATES = ("created", "running", "pausing", "paused", "stopping", "stopped", "failed")
SENSOR_STATES = ("ok", "backing_off", "quarantined")


def _call_outcomes(agent: AgentParts) -> Rows:
    """Return the number of calls by tool and outcome."""
    agent.account.calls.fold()
    tools = list(agent.account.calls.outcomes.items())
    return [([tool, outcome], number) for tool, counts in tools for outcome, number in counts.items()]


def _ratios(agent: AgentParts) -> Rows:
    """Return the used share of each budget, by quantity and window."""
    return [([quantity, window], ratio) for budgets in _attached(agent, "budgets")
            for quantity, window, ratio in budgets.ratios()]  # fmt: skip


def _refusals(agent: AgentParts) -> Rows:
    """Return how often each budget had not enough left, by quantity."""
    return [([quantity], number) for budgets in _attached(agent, "budgets")
            for quantity, number in budgets.refusals().items()]  # fmt: skip


def _attached(agent: AgentParts, name: str) -> list[Any]:
    """Return the attachment of this name, as a list."""
    return [] if (part := agent.attachments.find(name)) is None else [part]


def _channels(agent: AgentParts) -> list[tuple[str, Outbox]]:
    """Return the channels that are open, by name."""
    return [item for channels in _attached(agent, "channels") for item in list(channels.supervisors.items())]


def _node(agent: AgentParts, name: str) -> Rows:
    """Return a figure of this node; none for an agent of one process, and while there is no lease."""
    nodes = nodes_of(agent.memory)
    value = None if nodes is None else nodes.snapshot()[name]
    return [] if value is None else [([], value)]


def _open_kinds(agent: AgentParts) -> Collection[str]:
    """Return the kinds of open alerts. A blocked event loop cannot open the alert "blocked", so the kind is added."""
    kinds = agent.health.kinds
    return kinds if agent.watched.blocked_since is None else {*kinds, "blocked"}


def _interval(agent: AgentParts) -> float:
    """Return the longest regular wait between cycles, in seconds; infinite if there is none."""
    interval = expected_interval(agent.setup.pace)
    return float("inf") if interval is None else interval


#: Each metric: kind, name, help, labels, and the function that reads it from an agent.
PER_AGENT: tuple[tuple[str, str, str, list[str], Read], ...] = (
    ("gauge", "spar_agent_state", "1 for the state that the agent is in", ["agent", "state"],
     lambda a: [([state], float(a.core.state == state)) for state in STATES]),
    ("gauge", "spar_agent_gave_up_timestamp_seconds", "When the agent last gave up, restarts included (0: never)",
     ["agent"], lambda a: [([], a.lifecycle.gave_up_at)]),
    ("counter", "spar_cycles_total", "Cycles by outcome", ["agent", "outcome"],
     lambda a: [([outcome], number) for outcome, number in a.account.outcomes.items()]),
    ("counter", "spar_phase_errors_total", "Phases that failed for good", ["agent", "phase"],
     lambda a: [([phase], number) for phase, number in a.account.errors_by_phase.items()]),
    ("counter", "spar_calls_total", "Calls by how they ended", ["agent", "tool", "outcome"], _call_outcomes),
    ("counter", "spar_model_tokens_total", "Tokens that models read, from a cache (cached) or not, and wrote",
     ["agent", "kind"], lambda a: [([kind], number) for kind, number in a.health.models.tokens.items()]),
    ("gauge", "spar_cycle_last_completed_timestamp_seconds", "When a cycle was last completed (0: not yet)", ["agent"],
     lambda a: [([], a.last_completed_at)]),
    ("gauge", "spar_cycle_interval_target_seconds", "The longest regular wait between cycles (+Inf: off)", ["agent"],
     lambda a: [([], _interval(a))]),
    ("gauge", "spar_consecutive_failures", "Failed cycles in a row", ["agent"],
     lambda a: [([], a.account.consecutive_failures)]),
    ("gauge", "spar_alerts_active", "Open health alerts", ["agent", "kind"],
     lambda a: [([kind], float(kind in open_kinds)) for open_kinds in [_open_kinds(a)] for kind in KINDS]),
    ("gauge", "spar_lanes", "Open sessions (`lanes` in the status)", ["agent"],
     lambda a: [([], len(a.sessions.by_key))]),
    ("gauge", "spar_inbox_waiting", "Perceptions and messages that wait for their cycle", ["agent"],
     lambda a: [([], sum(session.waiting for session in list(a.sessions.by_key.values())))]),
    ("gauge", "spar_left_behind", "Phases and threads that ignored their cancellation and still run", ["agent"],
     lambda a: [([], a.left_behind)]),
    ("counter", "spar_handler_errors_total", "Event handlers that raised", ["agent"],
     lambda a: [([], a.core.events.handler_errors)]),
    ("counter", "spar_events_dropped_total", "Events that slow subscribers lost", ["agent"],
     lambda a: [([], a.core.events.dropped + sum(s.dropped for s in a.core.events.subscriptions))]),
    ("counter", "spar_memory_writes_total", "Experiences and cycles handed to the store", ["agent", "disposition"],
     lambda a: [(["stored"], a.stored_counts["stored"]), (["lost"], a.stored_counts["lost"])]),
    ("gauge", "spar_memory_waiting", "Experiences and cycles that wait for the store", ["agent"],
     lambda a: [([], a.stored_counts["waiting"])]),
    ("gauge", "spar_budget_used_ratio", "Share of a budget that is used; above 1 what people approved beyond it",
     ["agent", "budget", "window"], _ratios),
    ("counter", "spar_budget_refused_total", "How often there was not enough of a budget left", ["agent", "budget"],
     _refusals),
    ("gauge", "spar_senders_waiting", "Unknown senders that wait for a person's decision", ["agent"],
     lambda a: [([], senders.waiting) for senders in _attached(a, "senders")]),
    ("counter", "spar_messages_unheard_total", "Messages on channels that were not accepted, by channel and reason",
     ["agent", "channel", "reason"],
     lambda a: [([channel, reason], number) for senders in _attached(a, "senders")
                for (channel, reason), number in list(senders.refused.items())]),
    ("counter", "spar_channel_messages_total", "Messages on channels: accepted, known, refused, sent, failed",
     ["agent", "channel", "outcome"],
     lambda a: [([name, outcome], number) for name, channel in _channels(a)
                for outcome, number in list(channel.counts.items())]),
    ("counter", "spar_channel_passed_over_total", "Messages that a channel did not hand over, by its reason",
     ["agent", "channel", "reason"],
     lambda a: [([name, reason], number) for name, channel in _channels(a)
                for reason, number in channel.snapshot().get("passed_over", {}).items()]),
    ("gauge", "spar_channel_waiting", "Messages that wait to be sent", ["agent", "channel"],
     lambda a: [([name], len(channel.items)) for name, channel in _channels(a)]),
    ("gauge", "spar_channel_undelivered", "Messages that could not be sent and were given up", ["agent", "channel"],
     lambda a: [([name], len(channel.failed)) for name, channel in _channels(a)]),
    ("gauge", "spar_channel_up", "1 while a channel receives, or sends, without failing", ["agent", "channel", "part"],
     lambda a: [([name, part], float(trouble.state == "ok"))
                for name, channel in _channels(a)
                for part, trouble in (("receive", channel.receiving), ("send", channel.sending))]),
    ("gauge", "spar_sensor_state", "1 for the state that a configured sensor is in", ["agent", "sensor", "state"],
     lambda a: [([name, state], float(sensor.get("state") == state))
                for name, sensor in sensors(a).items() for state in SENSOR_STATES]),
    ("gauge", "spar_abilities", "Abilities of tools in situations that are known", ["agent"],
     lambda a: [([], len(a.abilities))]),
    ("counter", "spar_learning_trials_total", "Calls from which the ability of a tool was learnt", ["agent"],
     lambda a: [([], a.learnt.trials)]),
    ("counter", "spar_call_failures_total", "Calls that did not end well, by the kind of the cause", ["agent", "kind"],
     lambda a: [([kind], number) for kind, number in list(a.learnt.failures.items())]),
    ("counter", "spar_feedback_total", "Feedback on how things went, by source: person, verify, environment",
     ["agent", "source", "verdict"],
     lambda a: [([source, verdict], number) for (source, verdict), number in list(a.learnt.feedback.items())]),
    ("counter", "spar_reflection_requests_total",
     "Requests of the reflector to a model, by result: added, nothing, malformed, late, unanswered, "
     "failed, limited", ["agent", "result"],
     lambda a: [([result], number) for result, number in list(a.learnt.advised.items())]),
    ("gauge", "spar_incidents_open", "Open incidents", ["agent", "severity"], lambda a: incidents(a, "open")),
    ("counter", "spar_incidents_opened_total", "Incidents that were opened, or opened again", ["agent", "severity"],
     lambda a: incidents(a, "opened")),
    ("counter", "spar_incidents_closed_total", "Incidents that were closed, by how: resolved, quiet, person, room",
     ["agent", "ending"], lambda a: incidents(a, "closed")),
    ("gauge", "spar_node_partitions", "Partitions of the sessions that this node owns, of 256", ["agent"],
     lambda a: _node(a, "partitions")),
    ("gauge", "spar_node_lease_age_seconds", "Seconds since this node renewed its lease", ["agent"],
     lambda a: _node(a, "lease_age")),
    ("counter", "spar_node_takeovers_total", "Partitions that this node has taken", ["agent"],
     lambda a: _node(a, "takeovers")),
    ("counter", "spar_node_fenced_total", "Partitions that another node took before this one knew it", ["agent"],
     lambda a: _node(a, "fenced")),
)  # fmt: skip
