"""Metrics of an agent's health: progress, ages, queues, losses, repairs, memory and disk.

Everything is read from what the parts say of themselves (`snapshot`); nothing here asks the disk or is on the way of a
cycle. A part that says nothing has no series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from spar.agent.measured import Measured
from spar.health.health import STEPS
from spar.health.watchdog import WATCHDOG
from spar.ports.optional import Watchable, offers
from spar.types import PHASES

#: What the reader of a metric gives for an agent: label values beyond the agent's name, and a number.
Rows = Iterable[tuple[list[str], float]]
Read = Callable[[Measured], Rows]
#: The sensor's name in `spar_shed_total` for what was handed to the agent itself; no sensor can be called so.
PUSHED = "(push)"


def snapshot_of(part: object) -> Mapping[str, Any]:
    """Return a part's snapshot; nothing if it has none, and what is wrong (`error`) if it cannot be had."""
    try:
        found: object = part.snapshot() if offers(part, Watchable) else {}
    except Exception as error:  # a part of somebody else's; the others are still told
        return {"error": f"its snapshot() raised {error!r:.200}"}
    if not isinstance(found, Mapping):
        return {"error": f"its snapshot() returned {type(found).__name__}, expected a mapping"}
    return found


def sensors(agent: Measured) -> Mapping[str, Any]:
    """The sensors' own words, by name."""
    return _of(snapshot_of(agent.setup.modules["sense"].part), "sensors")


def incidents(agent: Measured, what: str) -> Rows:
    """Return how many incidents are `open`, were `opened` (by severity), or `closed` (by how that came about)."""
    figures = _of(snapshot_of(agent.setup.modules["sense"].part), "incidents")
    return [([label], number) for label, number in _of(figures, what).items()]


def _of(snapshot: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = snapshot.get(key)
    return found if isinstance(found, Mapping) else {}


def _progress(agent: Measured) -> Rows:
    """Return the wall-clock time at which a cycle, or a phase of one, was last completed; 0 before the first."""
    sessions = list(agent.sessions.by_key.values())
    latest = [session.last_completed for session in sessions if session.is_standing]
    if not latest or not agent.last_completed_at:
        return [([], 0.0)]
    open_ones = [cycle for session in sessions if (cycle := session.cycle) is not None and cycle.phases]
    latest += [cycle.started + sum(cycle.phases.values()) for cycle in open_ones]
    return [([], agent.core.clock.now().timestamp() - (agent.core.clock.monotonic() - max(latest)))]


def _oldest_cycle(agent: Measured) -> Rows:
    now = agent.core.clock.monotonic()
    cycles = [session.cycle for session in list(agent.sessions.by_key.values())]
    return [([], max((now - cycle.started for cycle in cycles if cycle is not None), default=0.0))]


def _longest_calls(agent: Measured) -> Rows:
    longest: dict[str, float] = {}
    for call in snapshot_of(agent.setup.modules["act"].part).get("running") or ():
        if (seconds := call.get("seconds")) is not None:
            longest[call["tool"]] = max(longest.get(call["tool"], 0.0), seconds)
    return [([tool], seconds) for tool, seconds in longest.items()]


def _depths(agent: Measured) -> Rows:
    store = agent.health.pressure.store
    depths = {
        "inbox": sum(session.inbox.waiting for session in list(agent.sessions.by_key.values())),
        "sensors": sum(sensor.get("waiting", 0) for sensor in sensors(agent).values()),
        "store": agent.kept["waiting"],
        "journal": store.get("queued", 0),
        "events": agent.core.events.waiting,
    }
    return [([name], depth) for name, depth in depths.items()]


def _ages(agent: Measured) -> Rows:
    now = agent.core.clock.monotonic()
    oldest = [since for session in list(agent.sessions.by_key.values()) if (since := session.inbox.oldest) is not None]
    ages = [sensor.get("oldest_age") or 0.0 for sensor in sensors(agent).values()]
    return [(["inbox"], max(now - min(oldest, default=now), 0.0)), (["sensors"], max(ages, default=0.0))]


def _overdue(agent: Measured) -> Rows:
    """Return by how much the latest poll of each sensor with a rhythm is older than its interval; 0 when it is not."""
    return [
        ([name], max(sensor["last_poll_age"] - sensor["every"], 0.0))
        for name, sensor in sensors(agent).items()
        if sensor.get("every") and sensor.get("last_poll_age") is not None
    ]


def _pipeline(agent: Measured) -> Rows:
    """Return what each stage counts: `in`, `touched`, `dropped`, `merged`, `cut`, and what is its own to count."""
    stages = _of(snapshot_of(agent.setup.modules["sense"].part), "pipeline")
    return [([stage, fate], number) for stage in stages for fate, number in _of(stages, stage).items()]


def _shed(agent: Measured) -> Rows:
    rows: list[tuple[list[str], float]] = [([PUSHED, "refused"], agent.refused)]
    for name, sensor in sensors(agent).items():
        rows += [([name, reason], number) for reason, number in _of(sensor, "shed").items()]
    return rows


def _missed(agent: Measured) -> Rows:
    return [
        ([name, reason], number)
        for name, sensor in sensors(agent).items()
        for reason, number in _of(_of(sensor, "missed"), "counts").items()
    ]


def _restarts(agent: Measured) -> Rows:
    own = {**dict.fromkeys((*PHASES, "loop"), 0), **agent.health.restarted}
    of_sensors = {f"sensor:{name}": sensor.get("restarts", 0) for name, sensor in sensors(agent).items()}
    return [([child], number) for child, number in {**own, **of_sensors}.items()]


def _quarantined(agent: Measured) -> Rows:
    rows: list[tuple[list[str], float]] = [
        (["handlers"], len(agent.core.events.off)),
        (["hooks"], len(agent.core.hooks.off)),
    ]
    for name, sensor in sensors(agent).items():
        rows.append(([f"sensor:{name}"], float(sensor.get("state") == "quarantined")))
    return rows


def _models(agent: Measured) -> Rows:
    """Return rows that say whether each model may be asked."""
    return [
        ([each["model"], state], float(each["state"] == state))
        for each in agent.health.models.report()
        for state in ("closed", "open", "half_open")
    ]


def _sandboxes(agent: Measured) -> Rows:
    parts = _of(snapshot_of(agent.setup.modules["act"].part), "parts")
    cages = {name: _of(part, "sandbox") for name, part in parts.items() if isinstance(part, Mapping)}
    return [([name], cage["level"]) for name, cage in cages.items() if "level" in cage]


def _read(source: Callable[[Measured], Mapping[str, Any]], key: str) -> Read:
    """Return the reader of one figure of a snapshot, which may be a figure for each kind."""

    def read(agent: Measured) -> Rows:
        found = source(agent).get(key)
        if isinstance(found, Mapping):
            return [([str(kind)], number) for kind, number in found.items()]
        return [] if found is None else [([], found)]

    return read


_recovery = partial(_read, lambda agent: snapshot_of(agent.recovery))
_store = partial(_read, lambda agent: agent.health.pressure.store)
_pressure = partial(_read, lambda agent: agent.health.pressure.snapshot())


#: Kind, name, help, labels, and how to read it off an agent.
HEALTH: tuple[tuple[str, str, str, list[str], Read], ...] = (
    ("gauge", "spar_loop_last_progress_timestamp_seconds", "When a phase or a cycle was last completed (0: not yet)",
     ["agent"], _progress),
    ("gauge", "spar_cycle_oldest_open_seconds", "For how long the oldest open cycle has been open", ["agent"],
     _oldest_cycle),
    ("gauge", "spar_call_longest_running_seconds", "For how long the oldest running call of a tool has run",
     ["agent", "tool"], _longest_calls),
    ("gauge", "spar_event_loop_lag_seconds", "The longest that the event loop took to answer, within about a minute",
     ["agent"], lambda a: [([], WATCHDOG.lag(a.event_loop))]),
    ("gauge", "spar_queue_depth", "Items that wait, by queue", ["agent", "class"], _depths),
    ("gauge", "spar_queue_oldest_seconds", "For how long the oldest has waited, by queue", ["agent", "class"], _ages),
    ("gauge", "spar_sensor_overdue_seconds", "For how long the next poll of a sensor is overdue (0: it is not)",
     ["agent", "sensor"], _overdue),
    ("counter", "spar_shed_total", "Perceptions not kept, by sensor and reason", ["agent", "sensor", "reason"],
     _shed),
    ("counter", "spar_pipeline_total", "Perceptions by stage of the pipeline and by what became of them there",
     ["agent", "stage", "fate"], _pipeline),
    ("counter", "spar_trigger_missed_total", "Ticks that did not run when they were due, over all restarts",
     ["agent", "trigger", "reason"], _missed),
    ("counter", "spar_child_restarts_total", "Restarts of modules, sensors, the loop", ["agent", "child"], _restarts),
    ("gauge", "spar_quarantined", "Sensors in quarantine (1), and how many handlers and hooks are turned off",
     ["agent", "child"], _quarantined),
    ("counter", "spar_recovery_steps_total", "Steps of recovery that were taken", ["agent", "step"],
     lambda a: [([step], a.health.counts.get(step, 0)) for step in STEPS]),
    ("gauge", "spar_degraded", "1 while the planner makes do with less, or without one of its models", ["agent"],
     lambda a: [([], float(a.health.makes_do))]),
    ("gauge", "spar_model_state", "1 for a model's state: closed (may be asked), open (left alone), half_open (tried)",
     ["agent", "model", "state"], _models),
    ("counter", "spar_subscriber_gaps_total", "Gaps that slow readers of events were told of", ["agent"],
     lambda a: [([], a.core.events.gaps)]),
    ("counter", "spar_series_overflow_total", "Calls of tools beyond those that are told apart", ["agent"],
     lambda a: [([], a.account.calls.overflow)]),
    ("gauge", "spar_sandbox_level", "The sandbox that programs of a tool run in (0: none, 2: all probes refused)",
     ["agent", "tool"], _sandboxes),
    ("counter", "spar_hook_requests_total", "Requests to webhooks by how they ended", ["agent", "hook", "outcome"],
     lambda a: [([name, outcome], number) for name, each in sensors(a).items()
                for outcome, number in _of(each, "requests").items()]),
    ("gauge", "spar_memory_resident_bytes", "Memory of the process as last read", ["agent"], _pressure("memory_bytes")),
    ("gauge", "spar_disk_free_bytes", "Room on the disk of the state directory, as last read", ["agent"],
     _pressure("disk_free_bytes")),
    ("gauge", "spar_disk_least_free_bytes", "Below this nothing new is accepted", ["agent"],
     _pressure("disk_least_free_bytes")),
    ("counter", "spar_caches_shed_total", "Entries of caches that were given up for want of memory", ["agent"],
     _pressure("shed")),
    ("gauge", "spar_database_bytes", "Size of the database, as last read", ["agent"], _store("bytes")),
    ("gauge", "spar_wal_bytes", "Size of its write-ahead log, as last read", ["agent"], _store("wal_bytes")),
    ("gauge", "spar_in_doubt", "Calls of which nobody knows whether they had their effect", ["agent"],
     _recovery("in_doubt")),
    ("gauge", "spar_dead_letters", "Work that was put aside after too many attempts", ["agent"],
     _recovery("dead_letters")),
    ("counter", "spar_dead_letter_total", "Work that was put aside so far, by kind", ["agent", "kind"],
     _recovery("dead_by_kind")),
    ("gauge", "spar_items_waiting", "Accepted work that is in hand or waits to be", ["agent"], _recovery("in_hand")),
    ("gauge", "spar_items_to_retry", "Work that waits for its next attempt", ["agent"], _recovery("to_be_retried")),
    ("gauge", "spar_open_cycles", "Cycles begun in the journal and not ended", ["agent"], _recovery("open_cycles")),
)  # fmt: skip
