"""A good session beside all kinds of trouble, for ten minutes: `python -m tests.simulation.endure [--minutes 10]`.

A real service answers one session by a rule. Meanwhile another session fails at each message, a third one asks a model
whose provider is down, a call waits for an approval that nobody gives, and 8,000 files lie in the inbox. The service is
restarted three times, once by kill -9. The same session is first heard without any of that, and its waits are compared.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.process.template import Forked, clean_environ

ROOT = Path(__file__).parents[2]
FILES = 8_000
RESTARTS = (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM)
#: Seconds between two messages of the good session.
EVERY = 0.2
PATIENCE = 120.0

CALM = """
[agent]
loop_interval = 1.0
[[sensors]]
use = "messages"
options = { trust = "trusted" }
[plan]
use = "llm"
options = { model = "openai:gone", base_url = "http://127.0.0.1:9/v1", rules_are = "first" }
[runs]
limit = 8
[service]
port = 0
min_free_disk = 1
[[tools]]
use = "trouble:fails"
[[tools]]
use = "trouble:risky"
[[rules]]
name = "good"
when = { kind = "message", pattern = "^good" }
answer = "well"
"""
TROUBLE = """
[[sensors]]
use = "directory"
name = "inbox"
options = { path = "inbox" }
[[rules]]
name = "fails"
when = { kind = "message", pattern = "^fail" }
calls = [{ tool = "fails" }]
[[rules]]
name = "risky"
when = { kind = "message", pattern = "^risky" }
calls = [{ tool = "risky" }]
[[rules]]
name = "files"
when = { source = "inbox" }
calls = [{ tool = "fails" }]
"""
TOOLS = """
from spar import tool

@tool(effect="read")
async def fails() -> None:
    raise RuntimeError("always")

@tool(effect="once", approval="ask")
async def risky() -> str:
    return "done"
"""


class Service:
    """`spar run` in a folder, and how it is asked."""

    def __init__(self, folder: Path, config: str) -> None:
        self.folder = folder
        (folder / "config.toml").write_text(config)
        (folder / "trouble.py").write_text(TOOLS)
        self.environ = {**clean_environ(), "PYTHONPATH": str(ROOT), "OPENAI_API_KEY": "none"}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "spar", "run"]
        with (self.folder / "log").open("ab") as log:
            self.process = Forked(command, cwd=self.folder, env=self.environ, stderr=log)
        until = time.monotonic() + PATIENCE
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the service did not start; see {self.folder}/log")
            time.sleep(0.05)

    def end(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(PATIENCE)

    def client(self) -> httpx.Client:
        socket = str(self.folder / "state" / "control.sock")
        return httpx.Client(
            transport=httpx.HTTPTransport(verify=False, uds=socket), base_url="http://spar", timeout=PATIENCE
        )

    def is_ready(self) -> bool:
        try:
            with self.client() as client:
                return client.get("/v1/status").json()["agent"]["state"] == "running"
        except (httpx.HTTPError, KeyError, ValueError):
            return False

    def send(self, client: httpx.Client, message: str, session: str) -> str:
        answer = client.post("/v1/runs", json={"message": message, "session": session})
        answer.raise_for_status()
        return str(answer.json()["run_id"])

    def asked(self, client: httpx.Client, message: str, session: str) -> float:
        """Seconds until a message was answered. Raises: RuntimeError for a wrong answer."""
        began = time.monotonic()
        run = self.send(client, message, session)
        status = client.get(f"/v1/runs/{run}/wait", params={"timeout": 60}).json()
        if status["status"] != "ok" or status["output"] != "well":
            raise RuntimeError(f"a good message was answered by {status}")
        return time.monotonic() - began


def heard(service: Service, seconds: float, restarts: Sequence[signal.Signals] = ()) -> list[float]:
    """The good session's waits for its answers, with restarts at even intervals."""
    took: list[float] = []
    pieces = len(restarts) + 1
    for piece in range(pieces):
        until = time.monotonic() + seconds / pieces
        with service.client() as client:
            service.asked(client, "good morning", "good")  # the connection is made, and what a start owes is paid
            while time.monotonic() < until:
                took.append(service.asked(client, "good", "good"))
                time.sleep(EVERY)
        if piece < len(restarts):
            service.end(restarts[piece])
            service.start()
    return took


def bother(service: Service, stop: threading.Event) -> None:
    """Send what fails, what asks a model and what waits for a person, again and again, until told to stop."""
    with service.client() as client:
        number, is_asked = 0, False
        while not stop.wait(0.25):
            number += 1
            try:
                service.send(client, "fail please", "bad")
                if number % 20 == 1 or not is_asked:
                    service.send(client, "ask the model", f"model {number % 3}")
                    service.send(client, "risky thing", "careful")
                    is_asked = True
            except httpx.HTTPError:  # it is just being restarted, or has enough that waits
                time.sleep(0.5)


def told(name: str, took: Sequence[float]) -> str:
    ordered = sorted(took)
    p99 = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    figures = {"median": statistics.median(ordered), "p99": p99, "longest": ordered[-1]}
    said = ", ".join(f"{word} {seconds * 1e3:.1f} ms" for word, seconds in figures.items())
    return f"{name}: {len(ordered)} answers, {said}"


def endured(minutes: float, files: int) -> tuple[list[float], list[float], dict[str, Any]]:
    """The good session's waits without and with trouble, and the status of the agent at the end."""
    with tempfile.TemporaryDirectory() as calm_folder, tempfile.TemporaryDirectory() as folder:
        calm = Service(Path(calm_folder), CALM)
        calm.start()
        undisturbed = heard(calm, minutes * 60 / 5)
        calm.end(signal.SIGTERM)

        inbox = Path(folder, "inbox")
        inbox.mkdir()
        for number in range(files):
            (inbox / f"file-{number:05d}.txt").write_text(f"file {number}\n")
        service, stop = Service(Path(folder), CALM + TROUBLE), threading.Event()
        service.start()
        other = threading.Thread(target=bother, args=(service, stop), daemon=True)
        other.start()
        try:
            disturbed = heard(service, minutes * 60, RESTARTS)
        finally:
            stop.set()
            other.join()
        with service.client() as client:
            begin, agent = time.monotonic(), client.get("/v1/status").json()["agent"]
            while not agent["approvals"]["pending"] and time.monotonic() < begin + 60:  # it was asked for just now
                time.sleep(0.1)
                agent = client.get("/v1/status").json()["agent"]
        service.end(signal.SIGTERM)
    return undisturbed, disturbed, agent


def main() -> int:
    parser = argparse.ArgumentParser(description="a good session beside trouble")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--ratio", type=float, default=2.0, help="how much longer the longest answer may take")
    given = parser.parse_args()
    undisturbed, disturbed, agent = endured(given.minutes, given.files)
    ratio = max(disturbed) / max(undisturbed)
    alerts = sorted({alert["kind"] for alert in agent["alerts"]})
    lines = (
        told("undisturbed", undisturbed),
        told("disturbed", disturbed),
        f"agent {agent['state']}, approvals pending {agent['approvals']['pending']}, alerts {alerts}",
        f"outcomes {agent['stats']['outcomes']}",
        f"the longest answer took {ratio:.2f} times the longest undisturbed one; at most {given.ratio:g} is owed",
    )
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if ratio <= given.ratio and agent["state"] == "running" else 1


if __name__ == "__main__":
    sys.exit(main())
