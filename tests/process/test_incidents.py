"""Incidents of a real service that is killed, and what the pipeline makes of lines; commands: tests/recorded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.process.conftest import PATIENCE, Service, Spar, until

pytestmark = pytest.mark.process

PARTS = '''
from pathlib import Path
from spar import Perception


class Alerts:
    """Lines of a file as alerts: NAME STATUS SERVICE."""

    every = 0.05

    async def open(self, ctx):
        self._ctx, self._read = ctx, int(ctx.cursor or 0)

    def poll(self):
        path = Path("alerts.txt")
        lines = path.read_text().splitlines() if path.exists() else []
        found = []
        for number, line in enumerate(lines[self._read:], self._read):
            name, status, service = line.split(maxsplit=2)
            found.append(Perception(
                f"{name} is {status}", kind="alert", key=str(number),
                attributes={"status": status, "severity": "error", "labels": {"alertname": name, "service": service}},
            ))
        if found:
            self._read = len(lines)
            self._ctx.checkpoint(self._read)
        return found
'''
CONFIG = """
[agent]
name = "watch"
loop_interval = "off"

[[sensors]]
use = "parts:Alerts"
name = "alerts"

[[tools]]
use = "note"

[[rules]]
name = "note it"
when = { kind = "incident.*" }
[[rules.calls]]
tool = "note"
params = { title = "{kind}", text = "{incident.id}" }
"""


@pytest.fixture
def watch(spar: Spar) -> Spar:
    (spar.folder / "parts.py").write_text(PARTS)
    spar.write(CONFIG)
    return spar


def say(spar: Spar, *lines: str) -> None:
    with (spar.folder / "alerts.txt").open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def listed(service: Service, path: str) -> list[Any]:
    answer = service.api(path)
    assert answer.status_code == 200, answer.text
    rows: list[Any] = answer.json()
    return rows


def incidents(service: Service) -> list[Any]:
    return listed(service, "/v1/incidents")


def notices(service: Service) -> list[str]:
    """The kinds of the notices that were acted on, in order."""
    cycles = listed(service, "/v1/cycles?limit=100&outcome=acted")[::-1]
    records = [service.api(f"/v1/cycles/{cycle['cycle_id']}").json() for cycle in cycles]
    kinds = [perception["kind"] for record in records for perception in record["perceptions"]]
    return [kind for kind in kinds if kind.startswith("incident.")]


def test_an_incident_and_its_end_are_neither_lost_nor_doubled_by_a_death(watch: Spar, start: Any) -> None:
    """The cycle that opens it is cut off before its end is on disk, the one that closes it after that."""

    def dies(label: str) -> None:
        dying = start(environ={"SPAR_CRASH": f"{label}:1"})
        dying.process.wait(PATIENCE)
        assert dying.process.returncode in (-9, 137), dying.err

    say(watch, "Down firing shop")
    dies("plan.committed")
    service: Service = start().ready()
    until(lambda: notices(service) == ["incident.opened"], "the notice, once")
    assert 'spar_incidents_open{agent="watch",severity="error"} 1.0' in service.get("/metrics").text
    say(watch, "Slow\x1b]0;x firing shop", "Slow\x1b]0;x resolved shop")
    until(lambda: incidents(service)[0]["count"] == 3, "its growth")
    assert service.stop() == 0

    say(watch, "Down resolved shop")
    dies("cycle.closed")
    service = start().ready()
    until(lambda: incidents(service)[0]["state"] == "closed", "its end")
    until(lambda: notices(service)[-1] == "incident.closed", "the notice of its end")
    until(lambda: service.agent["recovery"]["in_hand"] == 0, "the rest of the work")

    assert [each for each in notices(service) if each != "incident.grown"] == ["incident.opened", "incident.closed"]
    (incident,) = incidents(service)
    assert (incident["id"], incident["count"], incident["ordinal"]) == ("I-1", 4, 1)
    shown = watch("incidents", "show", "I-1").out
    assert "note(title=incident.opened" in shown
    assert "joins: it shares service shop" in shown
    assert "\x1b" not in shown


def test_what_the_pipeline_makes_of_lines_is_shown(watch: Spar) -> None:
    lines = [
        "ERROR shop[1]: no connection to the database",
        "ERROR shop[1]: no connection to the database",
        json.dumps({"content": "FIRING: Down", "kind": "alert", "attributes": {"labels": {"service": "shop"}}}),
        '{"content": ',
        '{"content": "x", "priority": 7}',
        "",
        "please restart the shop\x1b[2J",
        "x" * 1_100_000,
    ]
    answer = watch("cycles", "perceive", "-", stdin="\n".join(lines).encode())

    assert answer.code == 1
    assert "line 4 cannot be read" in answer.err
    assert "line 5 cannot be read" in answer.err
    assert "line 8 cannot be read: longer than 1048576 bytes" in answer.err
    assert "a line of template 1, told as line 1" in answer.out
    assert "8 lines, 3 of them cannot be read" in answer.out
    assert "\x1b" not in answer.out
    rows = [
        json.loads(row)
        for row in watch("cycles", "perceive", "-", "--json", stdin="\n".join(lines).encode()).out.splitlines()
    ]
    became = {row["line"]: row["became"] for row in rows[:-1]}
    assert became[2] == "templates: out"
    assert became[7] == "itself"
    assert {became[1], became[3]} == {"incident.opened", "incident.grown"}
    assert (rows[-1]["lines"], rows[-1]["unreadable"]) == (8, 3)
    assert watch("cycles", "perceive", "nothing.log").code == 64
    assert not watch.state.exists()
