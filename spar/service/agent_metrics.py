"""Metrics of an agent: of its work (state, cycles, calls, messages, channels, sensors, learning, incidents), and of its
health (progress, ages, queues, losses, repairs, memory and disk).

Those of its health are read from snapshots of the parts (`snapshot`). Reading them neither accesses the disk nor delays
a cycle. A part without a snapshot has no series.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, TypeAlias

from spar.agent.parts import AgentParts
from spar.health.alerts import KINDS
from spar.health.ladder import STEPS
from spar.health.watchdog import WATCHDOG
from spar.loop.cycle import STANDING
from spar.loop.setup import expected_interval
from spar.ports.any_part import Watchable, offers
from spar.ports.nodes import nodes_of
from spar.protocols import Warns
from spar.types import PHASES

if TYPE_CHECKING:
    from spar.channels.outbox import Outbox

#: Samples of a metric: its number, None for no sample, or numbers by the value, or the values, of its labels.
Samples: TypeAlias = float | Mapping[Any, float] | None
#: Function that reads the samples of a metric from an agent.
Read = Callable[[AgentParts], Samples]
#: Metric: its kind, name and help, the names of its labels, and its reader.
Row = tuple[str, str, str, list[str], Read]
#: The label `sensor` in `spar_shed_total` for perceptions that were pushed to the agent; no sensor can have this name.
PUSHED = "(push)"


def snapshot_of(part: object) -> Mapping[str, Any]:
    """Return the snapshot of a part.

    Returns: an empty mapping if the part offers none; `{"error": sentence}` if it raises or returns no mapping.
    """
    try:
        snapshot: object = part.snapshot() if offers(part, Watchable) else {}
    except Exception as error:  # the part may be a user's; the snapshots of the others are still needed
        return {"error": f"its snapshot() raised {error!r:.200}"}
    if not isinstance(snapshot, Mapping):
        return {"error": f"its snapshot() returned {type(snapshot).__name__}, expected a mapping"}
    return snapshot


def warnings_of(agent: AgentParts) -> list[str]:
    """Return the modules' warnings about the configuration; may be called from any thread."""
    warnings: list[str] = []
    for module in agent.setup.modules.values():
        if isinstance(module.part, Warns):
            try:
                warnings += [str(warning) for warning in module.part.warnings()]
            except Exception as error:  # a user's part failed; the others are still read
                warnings.append(f"{module.name} cannot say what is wrong with it: {error!r:.200}")
    return warnings


def sensors(agent: AgentParts) -> Mapping[str, Any]:
    """Return the snapshots of the sensors, by name."""
    return _section(snapshot_of(agent.setup.modules["sense"].part), "sensors")


def incidents(agent: AgentParts, group: str) -> Samples:
    """Return numbers of incidents: `open` and `opened` by severity, `closed` by ending."""
    return _section(_section(snapshot_of(agent.setup.modules["sense"].part), "incidents"), group)


def _section(snapshot: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the mapping under a key of a snapshot; an empty one if there is none."""
    section = snapshot.get(key)
    return section if isinstance(section, Mapping) else {}


def last_completed_at(agent: AgentParts) -> float:
    """Return when the standing session last completed a cycle, as a Unix timestamp; 0.0 before it has."""
    session, cycles, clock = agent.sessions.by_key.get(STANDING), agent.account.cycles, agent.core.clock
    if session is None or not (cycles.count or cycles.pending):
        return 0.0
    return clock.now().timestamp() - (clock.monotonic() - session.last_completed)


def _progress(agent: AgentParts) -> Samples:
    """Return the Unix time at which a cycle, or a phase of one, was last completed; 0 before the first."""
    sessions = list(agent.sessions.by_key.values())
    latest = [session.last_completed for session in sessions if session.is_standing]
    if not latest or not last_completed_at(agent):
        return 0.0
    open_ones = [cycle for session in sessions if (cycle := session.cycle) is not None and cycle.phases]
    latest += [cycle.started + sum(cycle.phases.values()) for cycle in open_ones]
    return agent.core.clock.now().timestamp() - (agent.core.clock.monotonic() - max(latest))


def _oldest_cycle(agent: AgentParts) -> Samples:
    """Return the age of the oldest running cycle in seconds; 0 if none runs."""
    now = agent.core.clock.monotonic()
    cycles = [session.cycle for session in list(agent.sessions.by_key.values())]
    return max((now - cycle.started for cycle in cycles if cycle is not None), default=0.0)


def _longest_calls(agent: AgentParts) -> Samples:
    """Return the age of the oldest running call of each tool, in seconds."""
    longest: dict[str, float] = {}
    for call in snapshot_of(agent.setup.modules["act"].part).get("running") or ():
        if (seconds := call.get("seconds")) is not None:
            longest[call["tool"]] = max(longest.get(call["tool"], 0.0), seconds)
    return longest


def _depths(agent: AgentParts) -> Samples:
    """Return the number of waiting items of each queue."""
    return {
        "inbox": sum(session.waiting for session in list(agent.sessions.by_key.values())),
        "sensors": sum(sensor.get("waiting", 0) for sensor in sensors(agent).values()),
        "store": agent.agent_state.account["waiting"],
        "journal": agent.health.pressure.store.get("queued", 0),
        "events": agent.core.events.waiting,
    }


def _ages(agent: AgentParts) -> Samples:
    """Return the age of the oldest item of each queue, in seconds; 0 if the queue is empty."""
    now = agent.core.clock.monotonic()
    oldest = [since for session in list(agent.sessions.by_key.values()) if (since := session.oldest) is not None]
    ages = [sensor.get("oldest_age") or 0.0 for sensor in sensors(agent).values()]
    return {"inbox": max(now - min(oldest, default=now), 0.0), "sensors": max(ages, default=0.0)}


def _overdue(agent: AgentParts) -> Samples:
    """Return the seconds by which the next poll of each periodic sensor is overdue; 0 if it is not."""
    return {name: max(sensor["last_poll_age"] - sensor["every"], 0.0) for name, sensor in sensors(agent).items()
            if sensor.get("every") and sensor.get("last_poll_age") is not None}  # fmt: skip


def by_two(sections: Mapping[str, Any], *keys: str) -> dict[tuple[str, str], float]:
    """Return the numbers of each section by its name and their own. Args: keys: where they stand in a section."""
    return {(name, kind): number for name, section in sections.items() if isinstance(section, Mapping)
            for kind, number in list(reduce(_section, keys, section).items())}  # fmt: skip


def _pipeline(agent: AgentParts) -> Samples:
    """Return the counts of each stage: `in`, `touched`, `dropped`, `merged`, `cut`, and counts of its own."""
    return by_two(_section(snapshot_of(agent.setup.modules["sense"].part), "pipeline"))


def _shed(agent: AgentParts) -> Samples:
    """Return the number of perceptions that were not kept, by sensor and reason."""
    refused = agent.conversations.submission.refused if agent.has_conversations else 0
    return {(PUSHED, "refused"): refused, **by_two(sensors(agent), "shed")}


def _restarts(agent: AgentParts) -> Samples:
    """Return the number of restarts of the loop, each module and each sensor."""
    of_sensors = {f"sensor:{name}": sensor.get("restarts", 0) for name, sensor in sensors(agent).items()}
    return {**dict.fromkeys((*PHASES, "loop"), 0), **agent.health.judge.ladder.restarted, **of_sensors}


def _quarantined(agent: AgentParts) -> Samples:
    """Return how many handlers and hooks are off, and 1 for each sensor in quarantine."""
    of_sensors = {f"sensor:{name}": sensor.get("state") == "quarantined" for name, sensor in sensors(agent).items()}
    return {"handlers": len(agent.core.events.off), "hooks": len(agent.core.hooks.off), **of_sensors}


def _sandboxes(agent: AgentParts) -> Samples:
    """Return the level of the sandbox of each tool that has one."""
    parts = _section(snapshot_of(agent.setup.modules["act"].part), "parts")
    sandboxes = {name: _section(part, "sandbox") for name, part in parts.items() if isinstance(part, Mapping)}
    return {name: sandbox["level"] for name, sandbox in sandboxes.items() if "level" in sandbox}


def _read(source: Callable[[AgentParts], Mapping[str, Any]], key: str) -> Read:
    """Return the reader of one figure of a snapshot; the figure may be a mapping from kinds to numbers."""
    return lambda agent: source(agent).get(key)


_recovery = partial(_read, lambda agent: snapshot_of(agent.recovery))
_store = partial(_read, lambda agent: agent.health.pressure.store)
_pressure = partial(_read, lambda agent: agent.health.pressure.snapshot())

#: Each metric: kind, name, help, labels beside that of the agent, and the function that reads it from an agent.
HEALTH: tuple[Row, ...] = (
    ("gauge", "spar_loop_last_progress_timestamp_seconds", "When a phase or a cycle was last completed (0: not yet)",
     [], _progress),
    ("gauge", "spar_cycle_oldest_open_seconds", "For how long the oldest open cycle has been open", [], _oldest_cycle),
    ("gauge", "spar_call_longest_running_seconds", "For how long the oldest running call of a tool has run", ["tool"],
     _longest_calls),
    ("gauge", "spar_event_loop_lag_seconds", "The longest that the event loop took to answer, within about a minute",
     [], lambda a: WATCHDOG.lag(a.requests.loop)),
    ("gauge", "spar_queue_depth", "Items that wait, by queue: inbox, sensors, store, journal, events", ["class"],
     _depths),
    ("gauge", "spar_queue_oldest_seconds", "For how long the oldest has waited, by queue", ["class"], _ages),
    ("gauge", "spar_sensor_overdue_seconds", "For how long the next poll of a sensor is overdue (0: it is not)",
     ["sensor"], _overdue),
    ("counter", "spar_shed_total", "Perceptions not kept, by sensor and reason", ["sensor", "reason"], _shed),
    ("counter", "spar_pipeline_total", "Perceptions by stage of the pipeline and by their fate there",
     ["stage", "fate"], _pipeline),
    ("counter", "spar_trigger_missed_total", "Ticks that did not run when they were due, over all restarts",
     ["trigger", "reason"], lambda a: by_two(sensors(a), "missed", "counts")),
    ("counter", "spar_child_restarts_total", "Restarts of modules, sensors, the loop", ["child"], _restarts),
    ("gauge", "spar_quarantined", "Sensors in quarantine (1), and how many handlers and hooks are turned off",
     ["child"], _quarantined),
    ("counter", "spar_recovery_steps_total", "Steps of recovery that were taken", ["step"],
     lambda a: {step: a.health.judge.ladder.counts.get(step, 0) for step in STEPS}),
    ("gauge", "spar_degraded", "1 while the planner is degraded, or works without one of its models", [],
     lambda a: a.health.makes_do),
    ("gauge", "spar_model_state", "1 for a model's state: closed (in use), open (not asked), half_open (tried)",
     ["model", "state"], lambda a: {(model["model"], state): model["state"] == state
                                    for model in a.health.models.report()
                                    for state in ("closed", "open", "half_open")}),
    ("counter", "spar_subscriber_gaps_total", "Gap events that slow readers of events received", [],
     lambda a: a.core.events.gaps),
    ("counter", "spar_series_overflow_total", "Calls of tools beyond the bound of distinct tools", [],
     lambda a: a.account.calls.overflow),
    ("gauge", "spar_sandbox_level", "The sandbox that programs of a tool run in (0: none, 2: all probes refused)",
     ["tool"], _sandboxes),
    ("counter", "spar_hook_requests_total", "Requests to webhooks by how they ended", ["hook", "outcome"],
     lambda a: by_two(sensors(a), "requests")),
    ("gauge", "spar_memory_resident_bytes", "Memory of the process as last read", [], _pressure("memory_bytes")),
    ("gauge", "spar_disk_free_bytes", "Free room on the disk of the state directory, as last read", [],
     _pressure("disk_free_bytes")),
    ("gauge", "spar_disk_least_free_bytes", "Free room on the disk below which no new work is accepted", [],
     _pressure("disk_least_free_bytes")),
    ("counter", "spar_caches_shed_total", "Cache entries that were dropped to free memory", [], _pressure("shed")),
    ("gauge", "spar_database_bytes", "Size of the database, as last read", [], _store("bytes")),
    ("gauge", "spar_wal_bytes", "Size of its write-ahead log, as last read", [], _store("wal_bytes")),
    ("gauge", "spar_in_doubt", "Calls that may or may not have had their effect", [], _recovery("in_doubt")),
    ("gauge", "spar_dead_letters", "Work that was put aside after too many attempts", [], _recovery("dead_letters")),
    ("counter", "spar_dead_letter_total", "Work that was put aside so far, by kind", ["kind"],
     _recovery("dead_by_kind")),
    ("gauge", "spar_items_waiting", "Accepted work that runs or waits", [], _recovery("in_hand")),
    ("gauge", "spar_items_to_retry", "Work that waits for its next attempt", [], _recovery("to_be_retried")),
    ("gauge", "spar_open_cycles", "Cycles begun in the journal and not ended", [], _recovery("open_cycles")),
)  # fmt: skip


# -- its work

STATES = ("created", "running", "pausing", "paused", "stopping", "stopped", "failed")
SENSOR_STATES = ("ok", "backing_off", "quarantined")


def _call_outcomes(agent: AgentParts) -> Samples:
    """Return the number of calls by tool and outcome."""
    agent.account.calls.fold()
    return by_two(dict(agent.account.calls.outcomes))


def attached(agent: AgentParts, name: str) -> list[Any]:
    """Return the attachment of this name, as a list."""
    return [] if (part := agent.attachments.find(name)) is None else [part]


def _learnt(name: str) -> Callable[[AgentParts], Samples]:
    """Return a function that returns a count of what an agent has learnt."""
    return lambda agent: None if agent.learning is None else getattr(agent.learning.learnt, name)


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
     [], lambda a: a.gave_up_at),
    ("counter", "spar_cycles_total", "Cycles by outcome", ["outcome"], lambda a: a.account.outcomes),
    ("counter", "spar_phase_errors_total", "Phases that failed for good", ["phase"],
     lambda a: a.account.errors_by_phase),
    ("counter", "spar_calls_total", "Calls by how they ended", ["tool", "outcome"], _call_outcomes),
    ("counter", "spar_model_tokens_total", "Tokens that models read, from a cache (cached) or not, and wrote",
     ["kind"], lambda a: a.health.models.tokens),
    ("gauge", "spar_cycle_last_completed_timestamp_seconds", "When a cycle was last completed (0: not yet)", [],
     last_completed_at),
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
     _learnt("trials")),
    ("counter", "spar_call_failures_total", "Calls that did not end well, by the kind of the cause", ["kind"],
     _learnt("failures")),
    ("counter", "spar_feedback_total", "Feedback on how things went, by source: person, verify, environment",
     ["source", "verdict"], _learnt("feedback")),
    ("counter", "spar_reflection_requests_total",
     "Requests of the reflector to a model, by result: added, nothing, malformed, late, unanswered, "
     "failed, limited", ["result"], _learnt("advised")),
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
