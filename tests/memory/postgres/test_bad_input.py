"""Wrong servers, databases and disks, seen from outside: one sentence with what to do, and no password anywhere."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psycopg
import pytest

from memory.postgres import server as server_module
from memory.postgres.server import parsed
from memory.postgres.store import PostgresMemory
from spar.errors import ConfigError, TransientError
from spar.types import Fault
from tests.memory.postgres.test_loss import accepted, admin, whole
from tests.process.conftest import Service, Spar
from tests.waiting import until

SECRET = "s3cret-of-the-database"
CONFIG = """
[memory]
use = "postgres"
url = "{url}"

[[sensors]]
use = "messages"

[service]
port = 0
"""
#: Makes the rows of a table fail as on a full disk.
FULL = """
CREATE FUNCTION full_disk() RETURNS TRIGGER LANGUAGE plpgsql AS
'BEGIN RAISE EXCEPTION ''could not extend file: No space left on device'' USING ERRCODE = ''disk_full''; END';
CREATE TRIGGER full_disk BEFORE INSERT ON item EXECUTE FUNCTION full_disk();
"""


def with_password(url: str) -> str:
    return url.replace("spar@", f"spar:{SECRET}@")


@pytest.fixture
def spar(tmp_path: Path) -> Spar:
    return Spar(tmp_path)


WRONG = (
    (f"postgresql://spar:{SECRET}@127.0.0.1:1/agent", 69, "postgresql://spar@127.0.0.1:1/agent cannot be reached: "),
    (f"postgresql://spar:{SECRET}@127.0.0.1:port/agent", 69, "start the server, or see host and port in memory.url"),
    (f"mysql://spar:{SECRET}@127.0.0.1/agent", 78, "memory.url is no URL of PostgreSQL; known: 'postgresql://"),
)


@pytest.mark.process
@pytest.mark.parametrize(("url", "code", "sentence"), WRONG)
def test_a_wrong_or_unreachable_server_ends_every_command_with_one_sentence(
    url: str, code: int, sentence: str, spar: Spar
) -> None:
    spar.write(CONFIG.format(url=url))
    for command in (("run",), ("memory", "verify"), ("cycles", "list")):
        answer = spar(*command)
        assert answer.code == code
        assert sum(sentence in line for line in answer.err.splitlines()) == 1
        assert SECRET not in answer.out + answer.err


@pytest.mark.process
def test_the_password_of_the_url_is_shown_nowhere_and_a_second_service_is_refused(spar: Spar, url: str) -> None:
    spar.write(CONFIG.format(url=with_password(url)))
    service = Service(spar, environ={"SPAR_LOG__LEVEL": "debug"})
    try:
        service.ready()
        shown = [service.get("/readyz").text, service.get("/metrics").text]
        shown += [service.api(path).text for path in ("/v1/status", "/v1/config", "/v1/parts")]
        for command in ("status", "status --json", "doctor", "doctor --json", "config show", "config show --json",
                        "config check", "memory verify", "memory backup x.db", "memory move --to x.db",
                        "audit list", "parts"):  # fmt: skip
            answer = spar(*command.split())
            shown.append(answer.out + answer.err)
        second = Spar(spar.folder / "second") if (spar.folder / "second").mkdir() is None else spar
        second.write(CONFIG.format(url=with_password(url)))
        refused = second("run")
        shown.append(refused.out + refused.err)
        spar.write(CONFIG.format(url=with_password(url)) + "nonsense = 1\n")
        shown.append(spar("reload").err)
        shown.append(Path(f"/proc/{service.process.pid}/cmdline").read_text())
        with psycopg.connect(url) as connection:
            shown.append(str(connection.execute("SELECT application_name, query FROM pg_stat_activity").fetchall()))
    finally:
        service.kill()
    shown.append(service.err)

    assert not [text for text in shown if SECRET in text]
    assert refused.code != 0
    assert "is in use by 'spar " in refused.err
    assert "stop it first, stand by (memory.standby)" in refused.err
    assert service.err, "a log without lines shows nothing"


async def test_a_full_disk_of_the_server_is_told_and_work_waits_for_room(url: str) -> None:
    told: list[Fault | None] = []
    async with PostgresMemory(url) as memory:
        memory.on_fault = told.append
        with admin(url) as connection:
            connection.execute(FULL.encode())
            waiting = asyncio.create_task(memory.journal.commit(accepted("first"), "main"))
            await until(lambda: bool(told))
            assert "No space left on device" in memory.journal.refusal
            connection.execute("DROP TRIGGER full_disk ON item")
        await waiting
        await until(lambda: told[-1] is None)
        assert memory.journal.refusal == ""

    assert "No space left on device; 1 accepted items are kept and tried again" in told[0].message
    assert whole(url)[1] == {"first"}


def test_an_older_server_is_refused_with_its_version_and_the_least(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_LEAST_VERSION", 990_000)
    with pytest.raises(ConfigError, match=r"is PostgreSQL \d+\.\d+.*; 13 is the least: upgrade the server"):
        server_module.connect(parsed(url))


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (psycopg.errors.DiskFull("could not extend file"), "has no room: could not extend file; make room on its disk"),
        (psycopg.errors.TooManyConnections("sorry"), "has no room: sorry; make room on its disk, or raise its limits"),
    ],
)
def test_a_server_without_room_at_the_opening_is_not_called_unreachable(error: psycopg.Error, sentence: str) -> None:
    with pytest.raises(TransientError, match=sentence), server_module.explained(parsed("postgresql://h/d")):
        raise error
