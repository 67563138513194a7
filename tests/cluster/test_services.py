"""`spar run` on two machines with one database and one inbox: sensed once, answered everywhere, over a kill too."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import psycopg
import pytest

from tests.process.conftest import Service, Spar, until

pytestmark = pytest.mark.process

CONFIG = """
[agent]
loop_interval = 0.2

[memory]
use = "postgres"
url = "{url}"
nodes = true

[[sensors]]
use = "directory"
name = "inbox"
options = {{ path = "{inbox}" }}

[[sensors]]
use = "messages"

[[rules]]
name = "all"
when = {{ kind = "*" }}
calls = [{{ tool = "note", params = {{ text = "seen" }} }}]
answer = "done"

[[tools]]
use = "note"
"""


@pytest.fixture
def machines(url: str, tmp_path: Path) -> list[Spar]:
    """Return the folders of two machines, which share the inbox alone."""
    (tmp_path / "inbox").mkdir()
    machines = []
    for name in "ab":
        (tmp_path / name).mkdir()
        machines.append(spar := Spar(tmp_path / name))
        spar.inbox = tmp_path / "inbox"
        spar.write(CONFIG.format(url=url, inbox=spar.inbox))
    return machines


def seen(url: str) -> list[str]:
    """Return the names of the files that cycles noticed."""
    with psycopg.connect(url) as connection:
        bodies = [row[0] for row in connection.execute("SELECT body FROM cycle WHERE session = 'main' ORDER BY seq")]
    noticed = [json.loads(body.partition("\n")[0])["record"]["perceptions"] for body in bodies]
    return [perception["attributes"]["name"] for perceptions in noticed for perception in perceptions]


def test_sensors_are_where_main_is_and_go_on_elsewhere_after_a_kill(machines: list[Spar], url: str) -> None:
    services = [Service(machine).ready() for machine in machines]
    try:
        machines[0].drop("f1.txt", "one")
        until(lambda: "f1.txt" in seen(url), "the first file seen")

        def owner() -> int:
            with psycopg.connect(url) as connection:
                row = connection.execute(
                    "SELECT node.name FROM partition JOIN node ON owner = token WHERE id = 56"
                ).fetchone()
            assert row is not None
            return [str(service.process.pid) for service in services].index(row[0].rpartition(":")[2])

        sensing = owner()
        for machine in machines:
            answer = machine("send", "hello", "--session", "people")
            assert answer.out.strip() == "done", answer
        names = [row["name"] for row in machines[0]("nodes", "list", "--json").json]
        assert sorted(name.rpartition(":")[2] for name in names) == sorted(str(s.process.pid) for s in services)
        metrics = services[0].get("/metrics").text
        for name in ("partitions", "lease_age_seconds", "takeovers_total", "fenced_total"):
            assert f"spar_node_{name}{{" in metrics
        services[sensing].kill()
        machines[0].drop("f2.txt", "two")
        until(lambda: "f2.txt" in seen(url), "the second file seen by the other machine")
        assert seen(url) == ["f1.txt", "f2.txt"]
        assert machines[1 - sensing]("send", "hello", "--session", "people").out.strip() == "done"
        left = f"{socket.gethostname()[:30]}:{services[1 - sensing].process.pid}"
        assert machines[1 - sensing]("nodes", "drain", left).out == f"{left}: hands its sessions over\n"
        answer = machines[1 - sensing]("--json", "audit", "list", "--action", "node.drain")
        assert answer.code == 0, answer
        (entry,) = answer.json
        assert entry["subject"] == left
        services.append(Service(machines[sensing]).ready())

        def owners() -> list[tuple[str, int]]:
            return [
                (row["name"], row["partitions"])
                for row in machines[sensing]("nodes", "list", "--json").json
                if row["state"] != "gone"
            ]

        until(lambda: sorted(number for _, number in owners()) == [0, 256], "the new machine owning all")
        assert (left, 0) in owners()
        assert re.search(r"spar_node_partitions\{.*\} 0.0", services[1 - sensing].get("/metrics").text)
        assert services[1 - sensing].stop() == 0
        machines[0].drop("f3.txt", "three")
        until(lambda: "f3.txt" in seen(url), "the third file seen by the new machine")
        assert seen(url) == ["f1.txt", "f2.txt", "f3.txt"]
    finally:
        for service in services:
            service.kill()


#: A channel whose other side is a folder: it knows the ids of what it was sent, and notes who sent what again.
CHANNEL = """
import asyncio, json, os
from pathlib import Path
from spar.ports.channel import Channel, Incoming

class Folder(Channel):
    def __init__(self, path):
        self.path = Path(path)

    async def receive(self, context):
        context.ready()
        while True:
            for file in sorted((self.path / "in").iterdir()):
                self.put("holder", str(os.getpid()))  # before an answer can come
                await context.accept(Incoming(file.name, file.name.partition("-")[0], file.read_text()))
                file.rename(self.path / "heard" / file.name)
            await asyncio.sleep(0.01)

    async def send(self, message):
        is_known = (self.path / "out" / message.id).exists()
        self.put("again" if is_known else f"out/{message.id}", json.dumps([message.address, message.text]))
        return ""

    def put(self, name, text):  # whole, or not at all
        (self.path / f"written-{os.getpid()}").write_text(text)
        (self.path / f"written-{os.getpid()}").rename(self.path / name)
"""


def test_people_are_heard_and_answered_once_over_two_kills_of_the_node_with_the_channel(
    machines: list[Spar], url: str, tmp_path: Path
) -> None:
    side = tmp_path / "side"
    for name in ("in", "heard", "out"):
        (side / name).mkdir(parents=True)
    (tmp_path / "c").mkdir()
    machines.append(Spar(tmp_path / "c"))
    machines[2].write(machines[0].config.read_text())
    for machine in machines:
        (machine.folder / "mine.py").write_text(CHANNEL)
        machine.edit('calls = [{ tool = "note", params = { text = "seen" } }]\nanswer = "done"',
                     'answer = "I heard {content}"')  # fmt: skip
        with machine.config.open("a") as file:
            file.write(f'\n[[channels]]\nuse = "mine:Folder"\nname = "mine"\noptions = {{ path = "{side}" }}\n'
                       '[[senders.allow]]\nsenders = ["mine:*"]\ntrust = "untrusted"\n')  # fmt: skip
    written: list[list[str]] = []

    def write(number: int) -> None:
        for person in range(number):
            text = f"message {len(written)}"
            (side / "new").write_text(text)
            (side / "new").rename(side / "in" / f"p{person}-{len(written)}")
            written.append([f"p{person}", f"I heard {text}"])

    def sent() -> list[list[str]]:
        return [json.loads(file.read_text()) for file in (side / "out").iterdir()]

    services = [Service(machine).ready() for machine in machines]
    try:
        for _ in range(2):
            write(12)
            until(lambda: len(sent()) > len(written) - 12, "an answer")
            holder = int((side / "holder").read_text())
            (gone,) = (number for number, service in enumerate(services) if service.process.pid == holder)
            write(12)
            services[gone].kill()
            write(12)
            until(lambda: len(sent()) >= len(written), "all answers")
            answer = machines[gone - 1]("channels", "list", "--json")
            assert answer.json["mine"]["receiving"]["state"] == "ok", answer
            services[gone] = Service(machines[gone]).ready()
        assert sorted(sent()) == sorted(written)
        for machine in machines:  # what is sent is waiting until that is on disk
            until(lambda machine=machine: machine("channels", "list", "--json").json["mine"]["waiting"] == 0, "no rest")
        assert all(machine("channels", "test", "mine", "--to", "p1").out == "mine: sent\n" for machine in machines)

        def receiving() -> list[str]:
            return sorted(service.agent["channels"]["mine"]["receiving"]["state"] for service in services)

        until(
            lambda: receiving() == ["elsewhere", "elsewhere", "ok"], "one that has the channel"
        )  # it may change hands
    finally:
        for service in services:
            service.kill()


def test_the_doctor_names_the_sensor_whose_place_has_no_node(machines: list[Spar]) -> None:
    machines[0].edit('name = "inbox"', 'name = "inbox"\nplace = "plant"')
    service = Service(machines[0]).ready()
    try:
        sentence = "no node has memory.place = 'plant'"

        def found() -> list[str]:
            return [line for line in machines[0]("doctor").out.splitlines() if sentence in line]

        (line,) = until(found, "the doctor telling it")
        assert "inbox" in line
    finally:
        service.kill()
