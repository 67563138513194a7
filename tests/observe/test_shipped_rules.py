"""The alert rules that `spar observe rules` prints, by Prometheus' own tool: each fires and resolves, and none is heard
while spar starts, is paused by a person, idles through a night or reloads its configuration.

Series are in promtool's notation, a value a minute: `0+60x9` is ten values from 0 in steps of 60.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from spar.observe.shipped import shipped

RULES = shipped("rules.yml")
NAMES = re.findall(r"- alert: (\w+)", RULES)

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (Debian package prometheus)")

RUNNING = {'agent_state{state="running"}': "1x800", 'agent_state{state="paused"}': "0x800"}
WORKS = {**RUNNING, 'cycles_total{outcome="acted"}': "0+1x800", "cycle_interval_target_seconds": "60x800"}


class Case(NamedTuple):
    """A rule, the series at which it is to fire at the minute `fires`, and is to be silent at the minute `resolved`."""

    rule: str
    series: dict[str, str]
    fires: int
    resolved: int


def alert(kind: str) -> dict[str, str]:
    return {f'alerts_active{{kind="{kind}"}}': "0x5 1x15 0x20"}


CASES = (
    Case("SparDown", {"up": "1x5 0x10 1x10"}, 10, 20),
    Case("SparRestarting", {"process_start_time_seconds": "0 0 1 2 3 4x60"}, 8, 50),
    Case("SparAgentFailed", {"agent_gave_up_timestamp_seconds": "0x5 300x70"}, 8, 70),
    Case("SparStuck", {**WORKS, "loop_last_progress_timestamp_seconds": "0+60x4 240x15 1200+60x20",
                       "items_waiting": "3x60", "cycle_oldest_open_seconds": "0x60"}, 15, 25),
    Case("SparPhaseStuck", alert("stuck"), 10, 25),
    Case("SparPhaseStuck", alert("stalled"), 10, 25),
    Case("SparBlocked", alert("blocked"), 10, 25),
    Case("SparPausedLong", {'agent_state{state="paused"}': "1x730 0x10"}, 725, 735),
    Case("SparModuleRestarts", {'child_restarts_total{child="plan"}': "0x5 1+1x6 7x60"}, 13, 60),
    Case("SparFailing", alert("failing"), 15, 25),
    Case("SparRunsFailing", alert("runs"), 10, 25),
    Case("SparErrorsBurnFast", {'cycles_total{outcome="acted"}': "0+10x300",
                                'cycles_total{outcome="failed"}': "0x10 0+5x20 100x270"}, 25, 120),
    Case("SparErrorsBurnSlow", {'cycles_total{outcome="acted"}': "0+10x900",
                                'cycles_total{outcome="failed"}': "0+1x400 400x500"}, 390, 500),
    Case("SparProviderDown", alert("provider"), 15, 25),
    Case("SparSensorStale", {**WORKS, 'sensor_state{sensor="s", state="quarantined"}': "0x5 1x15 0x10"}, 18, 25),
    Case("SparSensorStale", {**WORKS, 'sensor_overdue_seconds{sensor="s"}': "0x5 400x15 0x10"}, 18, 25),
    Case("SparChannelDown", {**WORKS, 'channel_up{channel="c", part="send"}': "1x5 0x15 1x10"}, 18, 25),
    Case("SparUndelivered", {'channel_undelivered{channel="c"}': "0x5 2x15 0x10"}, 15, 25),
    Case("SparTriggerMissed", {'trigger_missed_total{trigger="t", reason="overlap"}': "0x5 1x60"}, 8, 40),
    Case("SparBacklog", {**WORKS, 'queue_oldest_seconds{class="inbox"}': "0x5 700x15 0x10"}, 15, 25),
    Case("SparApprovalOld", {"approvals_oldest_seconds": "0+60x90 0x10"}, 80, 95),
    Case("SparCallsInDoubt", {"in_doubt": "0x5 1x15 0x10"}, 15, 25),
    Case("SparDeadLetters", {"dead_letters": "0x5 2x15 0x10"}, 15, 25),
    Case("SparLosing", {'memory_writes_total{disposition="lost"}': "0x5 1x60"}, 8, 40),
    Case("SparBudgetNearlySpent", {'budget_used_ratio{budget="money", window="day"}': "0.5x5 0.95x15 0x10"}, 15, 25),
    Case("SparDiskLow", {"disk_free_bytes": "900x5 150x15 900x10", "disk_least_free_bytes": "100x40"}, 15, 25),
    Case("SparDiskLow", alert("disk"), 10, 25),
    Case("SparMemoryHigh", alert("memory"), 15, 25),
    Case("SparNodeIdle", {"node_partitions": "128x5 0x15 128x10"}, 15, 25),
)  # fmt: skip

#: What a service shows that is well, for ten hours.
QUIET = {
    "up": "1x600",
    "process_start_time_seconds": "0x600",
    "items_waiting": "0x600",
    "cycle_oldest_open_seconds": "0x600",
    'child_restarts_total{child="plan"}': "0x600",
    'queue_oldest_seconds{class="inbox"}': "0x600",
    'agent_state{state="running"}': "1x600",
    'agent_state{state="created"}': "0x600",
    'agent_state{state="paused"}': "0x600",
    "agent_gave_up_timestamp_seconds": "0x600",
    'cycles_total{outcome="idle"}': "0+60x600",
    'cycles_total{outcome="acted"}': "0x600",
    'cycles_total{outcome="failed"}': "0x600",
    "cycle_interval_target_seconds": "1x600",
    "loop_last_progress_timestamp_seconds": "0+60x600",
    'alerts_active{kind="stuck"}': "0x600",
    'sensor_state{sensor="s", state="ok"}': "1x600",
    'sensor_state{sensor="s", state="backing_off"}': "0x600",
    'sensor_overdue_seconds{sensor="s"}': "0x600",
    'trigger_missed_total{trigger="t", reason="overlap"}': "0x600",
    'trigger_missed_total{trigger="t", reason="late"}': "0x600",
    "approvals_oldest_seconds": "0x600",
    "in_doubt": "0x600",
    'channel_up{channel="c", part="send"}': "1x600",
    'channel_undelivered{channel="c"}': "0x600",
    "dead_letters": "0x600",
    'memory_writes_total{disposition="lost"}': "0x600",
    'budget_used_ratio{budget="money", window="day"}': "0.2x600",
    "disk_free_bytes": "9000x600",
    "disk_least_free_bytes": "100x600",
    "node_partitions": "128x600",
}


def paused(minutes: int) -> dict[str, str]:
    """Return what differs while an agent is paused for so long, from the minute 30 on."""
    return {
        'agent_state{state="paused"}': f"0x30 1x{minutes} 0x90",
        'agent_state{state="running"}': f"1x30 0x{minutes} 1x90",
        "loop_last_progress_timestamp_seconds": f"0+60x30 1800x{minutes} {1860 + 60 * minutes}+60x90",
        "items_waiting": f"0x30 7x{minutes + 1} 0x90",
        'queue_oldest_seconds{class="inbox"}': f"0x30 0+60x{minutes} 0x90",
        'cycles_total{outcome="idle"}': f"0+60x30 1800x{minutes} 1800+60x90",
        'sensor_overdue_seconds{sensor="s"}': f"0x30 0+60x{minutes} 0x90",
        'trigger_missed_total{trigger="t", reason="late"}': f"0x30 0+1x{minutes} {minutes}x90",
    }


#: What differs from that in situations in which nobody is to be woken.
SITUATIONS: dict[str, dict[str, str]] = {
    "an idle night": {},
    "an idle night without an interval": {
        "cycle_interval_target_seconds": "1e308x600",
        "loop_last_progress_timestamp_seconds": "60x600",
        'cycles_total{outcome="idle"}': "1x600",
    },
    "one failure in a night": {'cycles_total{outcome="failed"}': "0x100 1x500"},
    "a start with work that waits": {
        "up": "_x1 1x600",
        'agent_state{state="created"}': "_x1 1x3 0x600",
        'agent_state{state="running"}': "_x1 0x3 1x600",
        "loop_last_progress_timestamp_seconds": "_x1 0x5 300+60x600",
        "items_waiting": "_x1 40x5 0x600",
        'queue_oldest_seconds{class="inbox"}': "_x1 9000x5 0x600",
        'cycles_total{outcome="idle"}': "_x1 0x5 0+60x600",
        'sensor_overdue_seconds{sensor="s"}': "_x1 7200x5 0x600",
        'trigger_missed_total{trigger="t", reason="late"}': "_x1 0x4 300x600",
    },
    "a first plan that takes ten minutes": {
        "loop_last_progress_timestamp_seconds": "0x10 600+60x600",
        "items_waiting": "1x10 0x600",
        "cycle_oldest_open_seconds": "0+60x10 0x600",
    },
    "a pause of eight hours with work that waits": paused(480),
    "a pause of an hour with work that waits": paused(60),
    "a reload every ten minutes": {
        "loop_last_progress_timestamp_seconds": "0+60x600",
        'sensor_state{sensor="s", state="ok"}': " ".join(["1x8 _x1"] * 60),
        'sensor_overdue_seconds{sensor="s"}': " ".join(["0x8 _x1"] * 60),
        'trigger_missed_total{trigger="t", reason="overlap"}': " ".join(["0x8 _x1"] * 60),
        'child_restarts_total{child="plan"}': "0x600",
    },
    "a service that is stopped for the night": {
        name: "1x30" if name == "up" else values.replace("x600", "x30") for name, values in QUIET.items()
    },
}
#: Those of which nothing is left after a while.
SOON_OVER = ("a start with work that waits", "a first plan that takes ten minutes", "a reload every ten minutes",
             "a pause of an hour with work that waits")  # fmt: skip
#: Minutes that a case takes which does not take the most of a day.
SHORT = 120


class Expected(NamedTuple):
    """The number of alerts of an instance that fire at a minute, or have fired since `since`; of a rule, or of all."""

    instance: str
    minute: int
    number: int
    rule: str = ".+"
    since: str = "1m"


def promtool_says(folder: Path, series: dict[str, dict[str, str]], expected: list[Expected]) -> str:
    """Return what promtool has against the rules with these series by their instance; "" for nothing.

    The instances of a short time are watched at once, as Prometheus does, each minute; those of a long one, in which
    nothing is over within minutes, each five minutes.
    """
    last = {each.instance: each.minute for each in sorted(expected, key=lambda each: each.minute)}
    short = {instance for instance, minute in last.items() if minute <= SHORT}
    (folder / "rules.yml").write_text(RULES)
    for name, interval, instances in (("short.yml", "1m", short), ("long.yml", "5m", set(last) - short)):
        test = _test({instance: series[instance] for instance in instances},
                     [each for each in expected if each.instance in instances])  # fmt: skip
        whole = {"rule_files": ["rules.yml"], "evaluation_interval": interval, "tests": [test]}
        (folder / name).write_text(json.dumps(whole))
    command = ["promtool", "test", "rules", "short.yml", "long.yml"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def _test(series: dict[str, dict[str, str]], expected: list[Expected]) -> dict[str, Any]:
    queries = [
        {"expr": f'count(last_over_time(ALERTS{{instance="{each.instance}", alertname=~"{each.rule}", '
                 f'alertstate="firing"}}[{each.since}])) or vector(0)',
         "eval_time": f"{each.minute}m", "exp_samples": [{"labels": "{}", "value": each.number}]}
        for each in expected
    ]  # fmt: skip
    rows = [
        {"series": _full(name, instance), "values": values}
        for instance, of_instance in series.items()
        for name, values in of_instance.items()
    ]
    return {"interval": "1m", "input_series": rows, "promql_expr_test": queries}


def _full(name: str, instance: str) -> str:
    """Return a series with the labels of its scrape: `in_doubt` is `spar_in_doubt{job="spar", …}`."""
    bare, _, labels = name.rstrip("}").partition("{")
    of_process = bare in ("up", "process_start_time_seconds")
    found = f'job="spar", instance="{instance}"' + ("" if of_process else ', agent="main"')
    return f"{bare if of_process else f'spar_{bare}'}{{{found}{f', {labels}' if labels else ''}}}"


def test_each_rule_fires_and_resolves(tmp_path: Path) -> None:
    series = {f"{case.rule} {number}": case.series for number, case in enumerate(CASES)}
    expected = [
        Expected(instance, minute, int(minute == case.fires), case.rule)
        for instance, case in zip(series, CASES, strict=True)
        for minute in (case.fires, case.resolved)
    ]
    assert promtool_says(tmp_path, series, expected) == ""


def test_nobody_is_woken_by_what_is_usual(tmp_path: Path) -> None:
    series = {situation: {**QUIET, **differing} for situation, differing in SITUATIONS.items()}
    expected = [Expected(name, SHORT if name in SOON_OVER else 600, 0, since="600m") for name in SITUATIONS]
    assert promtool_says(tmp_path, series, expected) == ""


def test_every_rule_has_a_case_a_severity_and_a_remedy() -> None:
    assert {case.rule for case in CASES} == set(NAMES)
    assert len(re.findall(r"^ +labels: {severity: (?:page|ticket)}$", RULES, re.M)) == len(NAMES)
    assert RULES.count("summary:") == RULES.count("action:") == len(NAMES)


def test_the_usual_situations_have_every_metric_that_a_rule_reads() -> None:
    read = set(re.findall(r"\bspar_(\w+)", re.sub(r"#.*", "", RULES)))
    assert read <= {re.split(r"\W", name)[0] for name in QUIET}


def test_promtool_finds_nothing_to_say_about_the_rules(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(RULES)
    done = subprocess.run(["promtool", "check", "rules", "rules.yml"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
