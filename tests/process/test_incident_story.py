"""The story of `examples/incident`: a real Prometheus and Alertmanager, an agent killed in each half."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.conftest import PATIENCE

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        shutil.which("prometheus") is None or shutil.which("prometheus-alertmanager") is None,
        reason="needs Prometheus and Alertmanager (Debian packages prometheus, prometheus-alertmanager)",
    ),
]
EXAMPLE = Path(__file__).parents[2] / "examples" / "incident" / "story.py"


def test_an_alert_its_lines_and_a_load_are_one_incident_that_a_rule_repairs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), str(tmp_path)],
        cwd=EXAMPLE.parents[2],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    logs = "".join(path.read_text()[-3_000:] for path in tmp_path.glob("*.log"))

    assert done.returncode == 0, done.stdout + done.stderr + logs
    listed, _, story = done.stdout.partition("I-1, closed, critical")
    assert "I-2" not in listed, done.stdout
    assert (tmp_path / "shop.started").read_text().count("started") == 2, "restarted once"
    for source in ("shop-log/log.error", "load/host.load", "alerts/alert.firing"):
        assert source in story, done.stdout
    assert "restart_shop(" in story
    assert "all that fired in it is over" in story
