"""Time from an alert's arrival at the webhook to the repairing action: a real service, its journal, one at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from http.client import HTTPConnection
from pathlib import Path
from statistics import median, quantiles

from benchmarks.perception.quality import Quality

ALERTS = 100
WITHIN = 30.0  # seconds that the service, or one action, may take
TOKEN = "token-of-the-benchmark"
PARTS = '''
import time
from pathlib import Path
from spar import tool

@tool(effect="idempotent")
def repair(service: str) -> str:
    """Note when the repair begins."""
    with Path("repairs").open("a") as file:
        file.write(f"{service} {time.time_ns()}\\n")
    return "repaired"
'''
CONFIG = """
[agent]
loop_interval = "off"

[[sensors]]
use = "webhook"
name = "alerts"
options = { format = "alertmanager", token = { env = "ALERTS_TOKEN" } }

[[tools]]
use = "bench_parts:repair"
safe_with_untrusted = true

[[rules]]
name = "repair"
when = { kind = "incident.opened" }
[[rules.calls]]
tool = "repair"
params = { service = "{incident.entities.service}" }
"""


def measure(data: Path) -> list[Quality]:
    """Return one line. Args: data: not needed here."""
    with tempfile.TemporaryDirectory() as folder:
        taken, work = _taken(Path(folder))
    middle, tenths = median(taken), quantiles(taken, n=20)
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"
    spread = f"95 of 100 within {tenths[-1]:.1f} ms, 10 within {tenths[1]:.1f} ms"
    remark = f"median {middle:.1f} ms, {spread}; owed: 20 ms; {work:.1f} ms of processor time; {load}"
    return [Quality("repairs begun a second, alert by alert, webhook to action", 1_000 / middle, 50, remark=remark)]


def _taken(folder: Path) -> tuple[list[float], float]:
    """Return for each alert the milliseconds until its repair began, and the processor time of one in the service."""
    (folder / "bench_parts.py").write_text(PARTS)
    (folder / "config.toml").write_text(CONFIG)
    environ = {**os.environ, "ALERTS_TOKEN": TOKEN,
               "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}  # fmt: skip
    with (folder / "log").open("wb") as log:
        service = subprocess.Popen([sys.executable, "-m", "spar", "--set", "service.port=0", "run"], cwd=folder,
                                   env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log)  # fmt: skip
    try:
        port = _port(folder)
        before = _work(service.pid)
        taken = [_one(folder, port, number) for number in range(ALERTS)]
        return taken, (_work(service.pid) - before) / ALERTS
    finally:
        service.kill()
        service.wait(10)


def _work(pid: int) -> float:
    """Return the milliseconds that a process has worked."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1_000 / os.sysconf("SC_CLK_TCK")


def _port(folder: Path) -> int:
    deadline = time.monotonic() + WITHIN
    while time.monotonic() < deadline:
        for line in (folder / "log").read_text().splitlines():
            if '"service started"' in line:
                return int(json.loads(line)["http"].rpartition(":")[2])
        time.sleep(0.05)
    raise RuntimeError((folder / "log").read_text())


def _one(folder: Path, port: int, number: int) -> float:
    labels = {"alertname": f"Down{number}", "service": f"service{number}", "severity": "critical"}
    alert = {"status": "firing", "labels": labels, "annotations": {}, "startsAt": "2026-01-01T00:00:00Z",
             "fingerprint": f"{number:016x}"}  # fmt: skip
    connection = HTTPConnection("127.0.0.1", port, timeout=WITHIN)
    body = json.dumps({"version": "4", "status": "firing", "alerts": [alert]})
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    began = time.time_ns()
    connection.request("POST", "/hooks/alerts", body, headers)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    if answer.status not in (200, 202):
        raise RuntimeError(f"{answer.status} {text!r}")
    deadline = time.monotonic() + WITHIN
    repairs = folder / "repairs"
    while time.monotonic() < deadline:
        for line in repairs.read_text().splitlines()[-1:] if repairs.exists() else ():
            service, at = line.split()
            if service == f"service{number}":
                return (int(at) - began) / 1e6
        time.sleep(0.005)
    raise RuntimeError((folder / "log").read_text()[-3_000:])
