"""The services of this machine: those of the same user, each asked over its socket."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from spar import Agent
from spar.config.load import load
from spar.net import local_sockets
from spar.operations import setup
from spar.operations.operation import Caller, Nothing
from spar.operations.setup import ServiceRow, list_services
from spar.server.front import served
from spar.service.app import Service


class Machine:
    """Services in folders of one place; the sockets elsewhere on the machine are not looked at."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.stack = folder, ExitStack()

    def begin(self, name: str, *, agent: str = "") -> Service:
        """Serve an agent that does nothing."""
        folder = self.folder / name
        (folder / "state").mkdir(parents=True)
        (folder / "config.toml").write_text("[service]\nport = 0\n")
        service = Service(load(folder / "config.toml", environ={}), Agent(name=agent or name, loop_interval="off"))
        service.addresses["http"] = self.stack.enter_context(served(service))
        return service

    def listen(self, name: str, answer: bytes = b"") -> None:
        """Listen on a socket that has the name of a service's; its answer is sent at once."""
        path = self.folder / name / "control.sock"
        path.parent.mkdir()
        listener = self.stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            with suppress(OSError):  # nobody has asked until the end
                connection, _ = listener.accept()
                with connection:
                    connection.sendall(answer)
                    while connection.recv(65536):
                        pass

        threading.Thread(target=serve, daemon=True).start()

    async def rows(self, service: Service) -> list[ServiceRow]:
        rows = await list_services.run(service, Nothing(), Caller("ann"))
        return [row for row in rows if Path(row.folder).is_relative_to(self.folder)]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    here = tmp_path
    own = local_sockets.own_sockets
    monkeypatch.setattr(local_sockets, "own_sockets", lambda: [path for path in own() if path.is_relative_to(here)])
    monkeypatch.setattr(setup, "WITHIN", 0.5)
    machine = Machine(here)
    with machine.stack:
        yield machine


async def test_each_service_says_what_it_is_and_where_its_page_is(machine: Machine) -> None:
    one, other = machine.begin("one"), machine.begin("other", agent="x" * 200 + "\u202e<b>")

    first, second = await machine.rows(one)

    assert (first.name, first.is_this, first.state) == ("one", True, "created")
    assert (second.name, second.is_this) == ("x" * 200 + "\u202e<b>", False)
    assert first.console == f"{one.addresses['http']}/" != second.console == f"{other.addresses['http']}/"
    assert second.config == str(machine.folder / "other" / "config.toml")
    assert second.pid == os.getpid()
    assert all(row.trouble == "" for row in (first, second))


async def test_one_that_does_not_answer_or_is_no_service_delays_the_others_only_shortly(machine: Machine) -> None:
    one = machine.begin("one")
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"
    machine.listen("silent")
    machine.listen("stranger", b"HELO\r\n")
    for name, body in (("older", b'{"agents": []}'), ("link", b"")):
        machine.listen(name, head % (len(body), body))
    page = b'{"version": "9", "pid": 1, "addresses": {"http": "javascript:a(1)"}, "agent": {"name": "n", "state": ""}}'
    machine.listen("odd", head % (len(page), page))

    rows = {Path(row.folder).name: row for row in await machine.rows(one)}

    assert set(rows) == {"state", "silent", "stranger", "older", "link", "odd"}
    assert "within 0.5 s" in rows["silent"].trouble
    assert all("this version" in rows[name].trouble for name in ("stranger", "older", "link"))
    assert (rows["odd"].name, rows["odd"].console) == ("n", "")


async def test_what_is_no_socket_of_this_user_is_not_asked(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    one = machine.begin("one")
    machine.listen("alien")
    status: Any = os.lstat(machine.folder / "alien" / "control.sock")
    monkeypatch.setattr(local_sockets.os, "geteuid", lambda: status.st_uid + 1)

    (row,) = await machine.rows(one)

    assert row.is_this
