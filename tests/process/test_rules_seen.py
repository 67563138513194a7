"""Shipped rules as a service in trouble meets them: seen to fire and to resolve by a real Prometheus.

What is to hold for minutes or hours holds for seconds here (`Watcher`); the expressions are those that are shipped.
Each rule fires and resolves in `tests/observe/test_shipped_rules.py`, by series as `tests/service` shows them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.ports import free_port
from tests.process.conftest import PATIENCE, Service, Spar, until
from tests.process.test_channels import CHANNEL
from tests.process.test_watched_from_outside import Watcher, watch
from tests.servers.postgresql import postgres_server, programs

__all__ = ["watch"]
pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        shutil.which("prometheus") is None or shutil.which("prometheus-alertmanager") is None,
        reason="needs Prometheus and Alertmanager (Debian packages prometheus, prometheus-alertmanager)",
    ),
]

PARTS = (
    CHANNEL
    + '''
import pathlib, time, uuid
from spar import Action, Call, tool
from spar.types import Perception


class Line(FolderChannel):
    async def receive(self, context):
        if pathlib.Path("dead").exists():
            raise TransientError("the line is dead")
        context.ready()
        while not pathlib.Path("dead").exists():
            await asyncio.sleep(0.02)
        raise TransientError("the line is dead")


class Ticker:
    every = 0.3

    def open(self, context): ...

    def close(self): ...

    def poll(self):
        if pathlib.Path("blind").exists():
            raise OSError("nothing to see")
        return [Perception(uuid.uuid4().hex, kind="tick")]  # equal ones would be one


async def plan(perceptions):
    """Fail, hold on or block the event loop while somebody wants it; carry out what a message says."""
    while pathlib.Path("block").exists():
        time.sleep(0.01)
    while pathlib.Path("hold").exists():
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            continue
    if pathlib.Path("fail").exists():
        raise RuntimeError("as it was told")
    said = [each.text for each in perceptions if each.kind == "message"]
    if said and pathlib.Path("wrong").exists():
        raise PermanentError("no answer is known")
    if said and said[0] == "well?":
        return Action(output="well")
    if said and said[0].startswith("ask") and not pathlib.Path("asked").exists():
        pathlib.Path("asked").touch()
        return Action(calls=[Call("pay", {})])
    return Action(calls=[Call("look", {})])


@tool(effect="once", approval="ask")
async def pay() -> str:
    return "paid"


@tool(effect="read", safe_with_untrusted=True)
async def look() -> str:
    return "seen"


class Forgetful:
    async def store(self, experience):
        if pathlib.Path("full").exists():
            raise PermanentError("the page is torn")
'''
)
CONFIG = """
[agent]
loop_interval = 0.3

[health]
failing_after = 6
backoff = 0.05
max_restarts = 1000
stalled_after = 2

[agent.phases.plan]
timeout = "off"

[plan]
use = "mine:plan"

[[sensors]]
use = "messages"

[[sensors]]
use = "mine:Ticker"
name = "ticker"
max_failures = 1
probe_after = 0.3

[[sensors]]
use = "schedule"
name = "often"
options = { interval = 0.2, text = "now" }

[[channels]]
use = "mine:Line"
name = "line"
options = { path = "line" }

[[channels]]
use = "mine:FolderChannel"
name = "post"
options = { path = "line" }

[[senders.allow]]
senders = ["post:nobody"]

[[tools]]
use = "mine:pay"
[[tools]]
use = "mine:look"

[budgets]
hour = { calls = 100000, effects = 100000 }
day = { calls = 100000 }

[log]
format = "json"
"""


@pytest.fixture
def troubled(spar: Spar) -> Spar:
    """A folder of a service whose parts fail while a file of that name is there."""
    (spar.folder / "mine.py").write_text(PARTS)
    (spar.folder / "line").mkdir()
    spar.write(CONFIG)
    spar.environ["SPAR_SERVICE__PORT"] = str(free_port())
    return spar


def fires(watcher: Watcher, *names: str) -> None:
    until(lambda: set(names) <= watcher.firing(), f"{', '.join(names)} firing")


def resolves(watcher: Watcher, *names: str) -> None:
    until(lambda: not set(names) & watcher.firing(), f"{', '.join(names)} resolved")


Watch = Callable[[Service], Watcher]


def asked(service: Service, message: str, session: str) -> None:
    assert service.api("/v1/runs", "POST", json={"message": message, "session": session}).status_code < 300


def test_what_fails_is_told_until_it_fails_no_more(troubled: Spar, start: Any, watch: Watch) -> None:
    troubled.edit("[plan]\n", '[memory]\nuse = "mine:Forgetful"\n\n[plan]\n')
    service = start().ready()
    watcher = watch(service)
    failing = ("SparFailing", "SparErrorsBurnFast", "SparErrorsBurnSlow")
    (troubled.folder / "fail").touch()
    fires(watcher, *failing)
    (troubled.folder / "fail").unlink()

    troubles = [troubled.folder / name for name in ("blind", "dead", "full", "wrong")]
    for trouble in troubles:
        trouble.touch()
    for number in range(10):
        asked(service, f"hello {number}", f"guest {number}")
    told = ("SparSensorStale", "SparChannelDown", "SparModuleRestarts", "SparLosing", "SparRunsFailing")
    fires(watcher, *told)
    for trouble in troubles:
        trouble.unlink()
    asked(service, "well?", "guest")
    resolves(watcher, *failing, *told)


def test_what_waits_or_is_spent_is_told_until_it_goes_on(troubled: Spar, start: Any, watch: Watch) -> None:
    troubled.edit("hour = { calls = 100000, effects = 100000 }", "hour = { calls = 20 }")
    service = start().ready()
    watcher = watch(service)
    fires(watcher, "SparBudgetNearlySpent")
    troubled.edit("hour = { calls = 20 }", "hour = { calls = 100000 }")
    assert troubled("reload").code == 0

    asked(service, "ask me", "bank")
    (troubled.folder / "m1.new").write_text(json.dumps({"from": "nobody", "text": "well?"}))
    (troubled.folder / "m1.new").rename(troubled.folder / "line" / "m1.in")
    fires(watcher, "SparApprovalOld", "SparUndelivered")
    for question in troubled("approvals", "list", "--json").json:
        assert troubled("approvals", "deny", question["id"]).code == 0
    for message in troubled("channels", "failed", "--json").json:
        assert troubled("channels", "drop", message["id"]).code == 0

    (troubled.folder / "hold").touch()
    asked(service, "hello", "guest")
    fires(watcher, "SparPhaseStuck", "SparTriggerMissed", "SparBacklog")
    # The cycle in hand is open, and what has come is on disk.
    with contextlib.closing(sqlite3.connect(troubled.state / "memory.db", timeout=PATIENCE)) as other:
        other.execute("BEGIN IMMEDIATE")  # as a program that copies the file and does not end
        (troubled.folder / "hold").unlink()
        fires(watcher, "SparStuck")
        other.rollback()

    (troubled.folder / "block").touch()
    fires(watcher, "SparBlocked")
    (troubled.folder / "block").unlink()
    resolves(watcher, "SparBudgetNearlySpent", "SparApprovalOld", "SparUndelivered", "SparPhaseStuck",
             "SparTriggerMissed", "SparBacklog", "SparStuck", "SparBlocked")  # fmt: skip


@pytest.mark.skipif(programs() is None and not os.environ.get("CI"), reason="needs PostgreSQL")
def test_a_node_that_owns_no_sessions_is_told_until_it_does(spar: Spar, start: Any, watch: Watch) -> None:
    spar.environ["SPAR_SERVICE__PORT"] = str(free_port())
    with postgres_server() as server:
        url = server.database()
        spar.write(f'[memory]\nuse = "postgres"\nurl = "{url}"\nnodes = true\n')
        watcher = watch(start().ready())
        with psycopg.connect(url, autocommit=True) as other:  # another node, which is there while this connection is
            other.execute(
                "INSERT INTO node SELECT 'x', 'x', 'x', 0, extract(epoch FROM now())::float8 + 3600, pid, "
                "extract(epoch FROM backend_start)::float8, 0, 1, 1, 1 FROM pg_stat_activity "
                "WHERE pid = pg_backend_pid()"
            )
            other.execute("UPDATE node SET is_draining = 1 WHERE token <> 'x'")
            fires(watcher, "SparNodeIdle")
        resolves(watcher, "SparNodeIdle")
