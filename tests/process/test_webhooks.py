"""What real programs post to a running service, and what is left of it when that is killed."""

from __future__ import annotations

import hashlib
import hmac
import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.ports import free_port
from tests.process.conftest import PATIENCE

pytestmark = pytest.mark.process

TOKEN = "0123456789abcdef0123456789abcdef"
CONFIG = """
[[sensors]]
use = "webhook"
name = "alerts"
options = {{ format = "alertmanager", token = {{ file = "token" }} }}

[[sensors]]
use = "webhook"
name = "github"
options = {{ format = "github", secret = {{ env = "GITHUB_SECRET" }} }}

[service]
port = {port}

[[tools]]
use = "note"

[[rules]]
name = "write down"
when = {{ kind = "{kind}" }}

[[rules.calls]]
tool = "note"
params = {{ title = "{{kind}}", text = "{{content}} {{attributes.{what}}}", tags = ["hook"] }}
"""


def config(kind: str, what: str, port: int = 0) -> str:
    return CONFIG.format(kind=kind, what=what, port=port)


def notes(spar: Any) -> list[str]:
    """Return what was said of alerts in the notes that were taken."""
    lines = [line.strip() for each in sorted(spar.workspace.rglob("*.md")) for line in each.read_text().splitlines()]
    return [line for line in lines if not line.startswith("#") and (" fires" in line or " is resolved" in line)]


def post(service: Any, hook: str, body: bytes, **headers: str) -> httpx.Response:
    given = {"content-type": "application/json", **headers}
    return httpx.post(
        f"{service.address}/hooks/{hook}", content=body, headers=given, timeout=PATIENCE, trust_env=False, verify=False
    )


ALERT = {
    "alerts": [
        {"status": "firing", "labels": {"alertname": "Hot"}, "startsAt": "2026-01-01T00:00:00Z", "fingerprint": "f1"}
    ]
}
BEARER = {"authorization": f"Bearer {TOKEN}"}


@pytest.mark.parametrize("place", ["sense.recv", "sense.before_commit", "sense.committed_before_ack"])
def test_killed_at_any_point_an_alert_is_handled_once_when_its_sender_tries_again(
    spar: Any, start: Callable[..., Any], place: str
) -> None:
    spar.write(config("alert.*", "status"))
    (spar.folder / "token").write_text(TOKEN)
    secret = {"GITHUB_SECRET": TOKEN}
    first = start(environ={**secret, "SPAR_CRASH": f"{place}:1"}).ready()
    with pytest.raises(httpx.HTTPError):
        post(first, "alerts", json.dumps(ALERT).encode(), **BEARER)
    first.wait()

    second = start(environ=secret).ready()
    answer = post(second, "alerts", json.dumps(ALERT).encode(), **BEARER)

    is_known = place == "sense.committed_before_ack"
    assert answer.json() == ({"accepted": 0, "known": 1} if is_known else {"accepted": 1, "known": 0})
    spar.until(lambda: notes(spar), "the note")
    assert post(second, "alerts", json.dumps(ALERT).encode(), **BEARER).status_code == 200
    spar.until(lambda: second.agent["recovery"]["in_hand"] == 0, "nothing in hand")
    assert notes(spar) == ["Hot fires firing"]


def test_a_signed_delivery_of_github_is_taken_and_a_forged_one_is_not(spar: Any, start: Callable[..., Any]) -> None:
    spar.write(config("github.*", "delivery"))
    (spar.folder / "token").write_text(TOKEN)
    service = start(environ={"GITHUB_SECRET": TOKEN}).ready()
    body = json.dumps({"zen": "Keep it logically awesome.", "repository": {"full_name": "octo/cat"}}).encode()
    signature = "sha256=" + hmac.new(TOKEN.encode(), body, hashlib.sha256).hexdigest()
    headers = {"x-github-event": "ping", "x-github-delivery": "d-1", "user-agent": "GitHub-Hookshot/044aadd"}

    assert post(service, "github", body, **headers).status_code == 401
    assert post(service, "github", body + b" ", **headers, **{"x-hub-signature-256": signature}).status_code == 401
    taken = post(service, "github", body, **headers, **{"x-hub-signature-256": signature})
    again = post(service, "github", body, **headers, **{"x-hub-signature-256": signature})

    assert (taken.status_code, again.json()) == (202, {"accepted": 0, "known": 1})
    spar.until(lambda: list(spar.workspace.rglob("*.md")), "the note")
    hooks = service.agent["modules"]["sense"]["sensors"]["github"]["requests"]
    assert hooks == {"unauthorized": 2, "accepted": 1, "known": 1}
    assert TOKEN not in service.err


# -- real servers


class Exporter:
    """A program that Prometheus scrapes; `value` is what it measures."""

    def __init__(self) -> None:
        self.value = 0.0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = f"room_temperature {outer.value}\n".encode()
                self.send_response(200)
                self.send_header("content-type", "text/plain; version=0.0.4")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: Any) -> None:
                return None

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    made = Exporter()
    yield made
    made.close()


@pytest.fixture
def launch() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start servers that do not outlive the test."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*command: str) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("prometheus-alertmanager")),
    reason="Debian's prometheus and prometheus-alertmanager are not installed",
)
def test_an_alert_of_a_real_prometheus_comes_through_and_so_does_its_end(
    spar: Any, start: Callable[..., Any], exporter: Exporter, launch: Callable[..., Any], tmp_path: Path
) -> None:
    port, alerts_port, metrics_port = free_port(), free_port(), free_port()
    spar.environ["SPAR_SERVICE__PORT"] = str(port)
    spar.write(config("alert.*", "labels.severity", port))
    (spar.folder / "token").write_text(TOKEN)
    secret = {"GITHUB_SECRET": TOKEN}
    service = start(environ=secret).ready()
    prometheus(tmp_path, exporter.port, alerts_port, port)
    launch("prometheus-alertmanager", f"--config.file={tmp_path}/alertmanager.yml", "--cluster.listen-address=",
           f"--storage.path={tmp_path}/alerts", f"--web.listen-address=127.0.0.1:{alerts_port}")  # fmt: skip
    launch("prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/series",
           f"--web.listen-address=127.0.0.1:{metrics_port}")  # fmt: skip

    exporter.value = 40.0
    spar.until(lambda: "TooHot on room:1 fires: it is hot critical" in notes(spar), "the alert")
    service.kill()  # the end of the alert is posted to nobody, and again until somebody is there
    exporter.value = 10.0
    spar.until(lambda: states(metrics_port) == [], "the end of the alert")
    start(environ=secret).ready()

    spar.until(lambda: "TooHot on room:1 is resolved: it is hot critical" in notes(spar), "its end")
    assert len(notes(spar)) == len(set(notes(spar))) == 2


def states(port: int) -> list[str]:
    found = httpx.get(f"http://127.0.0.1:{port}/api/v1/alerts", timeout=10, trust_env=False, verify=False).json()
    return [each["state"] for each in found["data"]["alerts"]]


def prometheus(folder: Path, target: int, alerts: int, hook: int) -> None:
    """Write the configurations of both servers."""
    (folder / "rules.yml").write_text(json.dumps({"groups": [{"name": "g", "rules": [{
        "alert": "TooHot", "expr": "room_temperature > 30", "labels": {"severity": "critical"},
        "annotations": {"summary": "it is hot"},
    }]}]}))  # fmt: skip
    (folder / "prometheus.yml").write_text(json.dumps({
        "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "200ms"},
        "rule_files": ["rules.yml"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{alerts}"]}]}]},
        "scrape_configs": [{"job_name": "room", "static_configs": [
            {"targets": [f"127.0.0.1:{target}"], "labels": {"instance": "room:1"}}]}],
    }))  # fmt: skip
    (folder / "alertmanager.yml").write_text(json.dumps({
        "route": {"receiver": "spar", "group_wait": "100ms", "group_interval": "1s", "repeat_interval": "1h"},
        "receivers": [{"name": "spar", "webhook_configs": [{
            "url": f"http://127.0.0.1:{hook}/hooks/alerts", "send_resolved": True,
            "http_config": {"authorization": {"credentials": TOKEN}},
        }]}],
    }))  # fmt: skip
