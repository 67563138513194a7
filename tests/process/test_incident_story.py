"""The story of `examples/incident`: a real Prometheus and Alertmanager, an agent killed in each half."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.process.template import Forked, clean_environ, run_here

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        shutil.which("prometheus") is None or shutil.which("prometheus-alertmanager") is None,
        reason="needs Prometheus and Alertmanager (Debian packages prometheus, prometheus-alertmanager)",
    ),
]
EXAMPLE = Path(__file__).parents[2] / "examples" / "incident" / "story.py"


def command(story: Any, *words: str) -> str:
    """Run a command of the story in this process."""
    return run_here([*words], str(story.folder), story.environ)[1].decode()


def test_an_alert_its_lines_and_a_load_are_one_incident_that_a_rule_repairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its services are forked."""
    monkeypatch.setattr(subprocess, "Popen", Forked)
    for name in set(os.environ) - set(clean_environ()):
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONUTF8", "1")
    try:
        main = runpy.run_path(str(EXAMPLE))["main"]
        main.__globals__["Story"].spar = command
        main(tmp_path)
    except SystemExit as end:
        pytest.fail(f"{end}\n" + "".join(path.read_text()[-3_000:] for path in tmp_path.glob("*.log")))

    told = capsys.readouterr().out
    listed, _, story = told.partition("I-1, closed, critical")
    assert "I-2" not in listed, told
    assert (tmp_path / "shop.started").read_text().count("started") == 2, "restarted once"
    for source in ("shop-log/log.error", "load/host.load", "alerts/alert.firing"):
        assert source in story, told
    assert "restart_shop(" in story
    assert "all that fired in it is over" in story
