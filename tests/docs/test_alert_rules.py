"""The alert rules that the documents show: they fire when the agent is stuck, and not when a person has paused it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

MONITOR = Path(__file__).parents[2] / "docs" / "how-to" / "monitor.md"
LABELS = 'job="spar", instance="i", agent="main"'


def promtool_says(tmp_path: Path, *, state: str, waiting: str, progress: str, alerts: str) -> str:
    """Return what promtool has against the rules, after five minutes of these series; "" for nothing."""
    rules = re.findall(r"^```yaml\n(.*?)^```", MONITOR.read_text(), re.M | re.S)
    (tmp_path / "rules.yml").write_text(rules[0])
    series = {
        f"spar_loop_last_progress_timestamp_seconds{{{LABELS}}}": progress,
        f"spar_cycle_interval_target_seconds{{{LABELS}}}": "1x20",
        f"spar_items_waiting{{{LABELS}}}": waiting,
        f'spar_agent_state{{{LABELS}, state="{state}"}}': "1x20",
    }
    rows = "\n".join(f"      - series: '{name}'\n        values: '{values}'" for name, values in series.items())
    (tmp_path / "test.yml").write_text(
        "rule_files: [rules.yml]\nevaluation_interval: 15s\ntests:\n"
        f"  - interval: 15s\n    input_series:\n{rows}\n"
        f"    alert_rule_test:\n      - eval_time: 4m\n        alertname: SparStuck\n        exp_alerts: {alerts}\n"
    )
    done = subprocess.run(["promtool", "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr


FIRES = (
    '[{exp_labels: {job: spar, instance: i, agent: main}, exp_annotations: {summary: "main has work that waits and '
    'makes no progress"}}]'
)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (Debian package prometheus)")
@pytest.mark.parametrize(
    ("state", "waiting", "progress", "alerts"),
    [
        ("running", "1x20", "0x20", FIRES),
        ("running", "1x20", "0+15x20", "[]"),
        ("running", "0x20", "0x20", "[]"),
        ("paused", "1x20", "0x20", "[]"),
        ("created", "1x20", "0x20", "[]"),
    ],
    ids=["stuck", "it goes on", "nothing waits", "paused by a person", "starting"],
)
def test_stuck_is_told_when_work_waits_and_nobody_has_paused_it(
    tmp_path: Path, state: str, waiting: str, progress: str, alerts: str
) -> None:
    assert promtool_says(tmp_path, state=state, waiting=waiting, progress=progress, alerts=alerts) == ""
