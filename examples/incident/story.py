"""An incident from its first sign to its end, with a real Prometheus and a real Alertmanager.

    python examples/incident/story.py [FOLDER]

The shop breaks: its log says so, its load rises, Prometheus sees it and the Alertmanager posts an alert. All that is
one incident; a rule restarts the shop, and the resolved alert closes the incident. The agent is killed once in each
half.
"""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
#: At least sixteen characters; the agent and the Alertmanager have it.
TOKEN = "the-token-of-the-shop"
WITHIN = 90.0  # seconds that each step may take


class Story:
    """The processes of the story, each in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.processes = folder, list[subprocess.Popen[bytes]]()
        self.shop, self.prometheus, self.manager, self.port = free_ports(4)
        (folder / "shop.port").write_text(str(self.shop))
        ports = {"SHOP_PORT": self.shop, "ALERTMANAGER_PORT": self.manager, "SPAR_PORT": self.port}
        for name in ("config.toml", "shop_parts.py", "shop.py", "prometheus.yml", "rules.yml", "alertmanager.yml"):
            text = (HERE / name).read_text()
            for mark, value in {**ports, "ALERTS_TOKEN": TOKEN}.items() if name.endswith(".yml") else ():
                text = text.replace(mark, str(value))
            (folder / name).write_text(text)
        self.environ = {**os.environ, "ALERTS_TOKEN": TOKEN, "SHOP_FOLDER": str(folder),
                        "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}  # fmt: skip

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a process whose output goes to a file."""
        with (self.folder / f"{Path(command[0]).name}.log").open("ab") as log:
            process = subprocess.Popen(
                command, cwd=self.folder, env=self.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.processes.append(process)
        return process

    def agent(self) -> subprocess.Popen[bytes]:
        """Start the agent and wait until it hears the webhook."""
        spar = self.start(sys.executable, "-m", "spar", "--set", f"service.port={self.port}", "run")
        until(lambda: ask(self.port, "/readyz") == 200, "the agent is ready")
        return spar

    def world(self) -> None:
        """Start the shop, Prometheus and the Alertmanager."""
        shop = self.start(sys.executable, "shop.py", str(self.shop), str(self.folder))
        (self.folder / "shop.pid").write_text(str(shop.pid))
        manager, prometheus = f"127.0.0.1:{self.manager}", f"127.0.0.1:{self.prometheus}"
        self.start("prometheus-alertmanager", "--config.file=alertmanager.yml", "--storage.path=alertmanager",
                   f"--web.listen-address={manager}", "--cluster.listen-address=")  # fmt: skip
        self.start("prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=prometheus",
                   f"--web.listen-address={prometheus}")  # fmt: skip
        until(lambda: ask(self.shop, "/metrics") == 200, "the shop is open")
        until(lambda: ask(self.manager, "/-/ready") == 200, "the Alertmanager is ready")
        until(lambda: ask(self.prometheus, "/-/ready") == 200, "Prometheus is ready")

    def spar(self, *arguments: str) -> str:
        """Run one command of the agent and return what it prints."""
        done = subprocess.run([sys.executable, "-m", "spar", *arguments], cwd=self.folder, env=self.environ,
                              capture_output=True, timeout=60, check=False)  # fmt: skip
        return done.stdout.decode()

    def incidents(self) -> list[dict[str, Any]]:
        """Return the incidents, newest first."""
        text = self.spar("incidents", "list", "--json")
        return json.loads(text) if text else []

    def restarts(self) -> int:
        """Return how often the shop was started after the first time."""
        return (self.folder / "shop.started").read_text().count("started") - 1

    def end(self) -> None:
        """End all that was started, also the shop that the agent has started."""
        for process in self.processes:
            process.kill()
            process.wait(10)
        pid = int((self.folder / "shop.pid").read_text())
        if pid not in [process.pid for process in self.processes]:
            os.kill(pid, signal.SIGKILL)


def main(folder: Path) -> None:
    story = Story(folder)
    try:
        spar = story.agent()
        story.world()
        ask(story.shop, "/break", "POST")
        print("the shop is broken")
        until(lambda: story.incidents(), "an incident is open")
        spar.kill()  # as by `kill -9`, in the first half
        spar.wait(10)
        print("the agent is killed, and starts again")
        spar = story.agent()
        until(lambda: story.restarts() >= 1, "the shop is restarted")
        print("the shop is restarted")
        spar.kill()  # in the second half
        spar.wait(10)
        print("the agent is killed, and starts again")
        story.agent()
        until(lambda: all(each["state"] == "closed" for each in story.incidents()), "the incident is closed")
        print(story.spar("incidents", "list"))
        print(story.spar("incidents", "show", "I-1"))
    finally:
        story.end()


def ask(port: int, path: str, method: str = "GET") -> int:
    """Return the status of an answer over HTTP; 0 where nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request(method, path)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def until(condition: Callable[[], object], what: str) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + WITHIN
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"within {WITHIN:g} s it did not happen: {what}")
        time.sleep(0.5)


def free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
