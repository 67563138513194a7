"""Probes and metrics over real HTTP. What only reads shares a service that runs."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.process.conftest import PATIENCE, Service, Spar, until

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service of more than one test, from scratch."""
    spar = Spar(tmp_path_factory.mktemp("service"))
    spar.popen = subprocess.Popen
    service = Service(spar)
    del spar.popen
    try:
        yield service.ready()
    finally:
        service.kill()


def test_a_running_service_is_alive_started_and_ready(running: Service) -> None:
    until(lambda: running.agent["stats"]["total_cycles"], "a cycle")

    for path, word in (("/livez", "ok"), ("/healthz", "ok"), ("/startupz", "started")):
        answer = running.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["status"] == word

    def found_ready() -> Any:
        found = running.get("/readyz").json()
        return found if (found["state"], found["alerts"]) == ("running", []) else None

    ready = until(found_ready, "no alert")  # a busy machine may have been one
    assert 0 <= ready["last_cycle_age_seconds"] < 60


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
def test_starting_and_draining_are_told_apart_over_ipv6_too(spar: Any, start: Any) -> None:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("needs IPv6 on loopback")
    (spar.folder / "mine.py").write_text(
        "import asyncio, pathlib\n"
        "async def until(name):\n"
        "    while not pathlib.Path(name).exists(): await asyncio.sleep(0.01)\n"
        "class Mine:\n"
        "    async def __aenter__(self): await until('open')\n"
        "    async def __aexit__(self, *e): await until('close')\n"
        "    async def reflect(self, result): ...\n"
    )
    spar.edit('[reflect]\nuse = "standard"', '[reflect]\nuse = "mine:Mine"')
    service = start("--set", "service.host=::1")
    spar.until(lambda: service.get("/startupz").status_code == 503, "the door open before the start is over")
    assert service.address.startswith("http://[::1]:")
    assert service.get("/startupz").json() == {"status": "starting"}
    assert service.get("/readyz").status_code == 503
    (spar.folder / "open").touch()
    spar.until(lambda: service.get("/startupz").status_code == 200, "started")

    service.signal(signal.SIGTERM)

    spar.until(lambda: service.get("/startupz").json() == {"status": "draining"}, "draining")
    assert service.get("/readyz").status_code == 503
    assert service.get("/livez").status_code == 200
    (spar.folder / "close").touch()
    assert service.wait() == 0


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_promtool_finds_nothing_to_say_about_the_metrics(running: Service) -> None:
    for arguments in (("send", "hello"), ("send", "note: buy milk"), ("pause",)):
        running.spar(*arguments)
    page = running.get("/metrics")
    assert 'spar_calls_total{agent="main",outcome="ok",tool="note"}' in page.text
    assert 'spar_call_duration_seconds_count{agent="main",tool="note"}' in page.text
    assert 'spar_approvals_pending{agent="main"}' in page.text

    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=page.content, capture_output=True, timeout=PATIENCE
    )

    ours = [
        line
        for line in (checked.stdout + checked.stderr).decode().splitlines()
        if line.startswith("spar_") or "error" in line
    ]
    assert ours == []
