"""The same with the service as it is run: `spar run` with a configuration, killed and started by its process.

The producer is a client of the control socket, as `spar send` is. It offers what was not promised until it is, and says
that all has come to its end when runs have their answer and nothing is left open in the database.
"""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.faults.lives import Life, Order, Starter, environ
from tests.faults.rows import UNREADABLE, left_open
from tests.faults.workloads.life import Workload, drop
from tests.faults.workloads.rules import FILES, MESSAGES, RULES, wants_of
from tests.faults.world import World
from tests.ports import SocketConnection
from tests.process.template import Forked, clean_environ

NAME = "service"
_PATIENCE = 30.0  # seconds for anything that the service is asked

_CONFIG = """
[agent]
loop_interval = 0.05

[[sensors]]
use = "directory"
name = "inbox"
options = { path = "inbox", settle = 0.0 }

[[sensors]]
use = "messages"
options = { trust = "trusted" }

[plan]
use = "rules"

[approval]
untrusted = "auto"

[service]
probes = false
"""


def configuration(world: World) -> str:
    rules = "".join(_table("rules", rule) for rule in RULES)
    tools = "".join(f'\n[[tools]]\nuse = "tests.faults.service_tools:{name}"\n' for name in ("look", "tally", "pay"))
    memory = f'\n[memory]\nuse = "postgres"\nurl = "{world.url}"\nstandby = true\n' if world.is_on_server else ""
    return f"{_CONFIG}{rules}{tools}{memory}"


def _table(name: str, values: dict[str, Any]) -> str:
    calls = values["calls"]
    head = "".join(f"{key} = {_toml(value)}\n" for key, value in values.items() if key != "calls")
    return f"\n[[{name}]]\n{head}calls = [{', '.join(map(_toml, calls))}]\n"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


class Services(Starter):
    """Has services live and die; made like a zygote, and as good as one for a sweep."""

    def live(self, order: Order, following: Order | None = None) -> Life:
        """One life of `spar run`: until it dies of its strike, or all is done and it was stopped."""
        folder, strike, more = order.folder, order.strike, order.variables
        world, began = World(folder), time.monotonic()
        (folder / "config.toml").write_text(configuration(world))
        with (folder / "out").open("ab") as out:
            command = [sys.executable, "-m", "spar", "run"]
            variables = {**clean_environ(), "PYTHONPATH": environ()["PYTHONPATH"], **more}
            process = Forked(command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            after = None if strike is None else strike.after
            is_over = _lived(world, process, began + (2 * _PATIENCE if after is None else after))
            if is_over and after is None:
                with suppress(subprocess.TimeoutExpired):  # it was stopped, and does not end
                    process.wait(_PATIENCE)
            is_hung = after is None and process.poll() is None
        finally:
            process.kill()
            code = process.wait(_PATIENCE)
        return Life(code, time.monotonic() - began, 0, is_hung)

    def __enter__(self) -> Services:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        return None


def _lived(world: World, process: subprocess.Popen[bytes], deadline: float) -> bool:
    """Give the service its work and stop it when that is done; False when the time was over before."""

    def until(condition: Callable[[], Any]) -> bool:
        while process.poll() is None:
            if time.monotonic() >= deadline:
                return False
            with suppress(OSError, http.client.HTTPException, *UNREADABLE):  # it is not there yet, or not any more
                if condition():
                    return True
            time.sleep(0.01)
        return True

    (world.folder / "inbox").mkdir(exist_ok=True)
    drop(world, FILES)
    sock = world.state / "control.sock"
    if not until(lambda: _ask(sock, "GET", "/v1/status")["agent"]["state"] == "running"):
        return False
    for number, event in enumerate(MESSAGES):
        if event in world.acked() and number % 2:
            continue
        world.events.write(event=event, told="offered")
        if not until(lambda event=event: _offer(world, sock, event)):  # type: ignore[misc]
            return False
    for line in world.acked().values():
        if "run" in line and not until(lambda run=line["run"]: _has_ended(sock, run)):  # type: ignore[misc]
            return False
    if not until(lambda: not left_open(world)):
        return False
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    return True


def _offer(world: World, sock: Path, event: str) -> bool:
    said = _ask(sock, "POST", "/v1/runs", {"message": event, "idempotency_key": f"key-{event}"})
    world.events.write(event=event, told="acked", run=said["run_id"])
    return True


def _has_ended(sock: Path, run: str) -> bool:
    return bool(_ask(sock, "GET", f"/v1/runs/{run}/wait?timeout=1").get("status") != "timeout")


def _ask(sock: Path, method: str, path: str, body: Any = None) -> dict[str, Any]:
    """Raises: OSError, HTTPException when nobody answers, or says no."""
    with SocketConnection(sock, _PATIENCE) as connection:
        connection.request(method, path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        said: dict[str, Any] = json.loads(response.read())
    if response.status >= 400:
        raise OSError(f"{method} {path}: {response.status} {said}")
    return said


async def _never(world: World) -> None:
    raise NotImplementedError("a service lives in a process of its own")


WORKLOAD = Workload(NAME, _never, tuple(want for event in (*MESSAGES, *FILES) for want in wants_of(event)))
