"""A memory moves from a file to a database and back: every row of every table, whole or not at all."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import psycopg
import pytest

from memory import Memory
from memory.care.doctor import Doctor
from memory.care.integrity import verify
from memory.postgres import moving
from memory.postgres.care import ServerCare
from memory.postgres.connection import PostgresConnection
from memory.postgres.server import connect, parsed
from memory.postgres.store import PostgresMemory
from memory.sqlite import database
from spar.errors import ConfigError, SparError
from spar.failpoints import KILLED
from spar.records.audit import AuditDraft
from spar.types import Experience
from tests.effort import growth
from tests.memory.experiences.test_search import Words, embedded
from tests.memory.postgres.test_loss import accepted
from tests.memory.sqlite.test_seals import fill
from tests.process.template import Forked, clean_environ
from tests.servers.postgresql import PostgresServer

AT = datetime(2026, 6, 1, tzinfo=UTC)
#: Tables that only one side has, and rows of `state` that belong to a file.
ONLY_FILE, ONLY_SERVER = ("seal", "sqlite_sequence"), ("spar_format",)
OWN = "key IN ('seals', 'flushed')"


def draft() -> AuditDraft:
    return AuditDraft("alice", "shell", "memory.move", "the new place", rows=())


@pytest.fixture
async def path(tmp_path: Path) -> str:
    """Return the path of a file with rows in every table."""
    path = str(tmp_path / "memory.db")
    async with Memory.open(f"sqlite:///{path}", ballast=0, embedder=Words()) as memory:
        await fill(memory)
        await memory.store(Experience("naïve 印刷 fire\U0001f525", action="\x00 and \ud800", id="odd", at=AT))
        await memory.store(Experience("gone", id="gone", at=AT))
        await memory.forget(id="gone")  # the number of its row is never used again
        await embedded(memory)
    return path


def rows_of(connection: Any, columns: Callable[[str], list[str]], names: set[str]) -> dict[str, list[Any]]:
    """Return all rows of all tables as they are, in an order that is the same everywhere."""
    rows = {}
    for name in sorted(names):
        where = f" WHERE NOT {OWN}" if name == "state" else ""
        marked = ", ".join(f'"{column}"' for column in columns(name))
        rows[name] = sorted(map(repr, map(tuple, connection.execute(f"SELECT {marked} FROM {name}{where}"))))
    return rows


def file_rows(path: str) -> dict[str, list[Any]]:
    connection = database.open_reader(path)
    try:
        names = {name for name in connection.tables() if not name.startswith(("experience_text", *ONLY_FILE))}

        def columns(name: str) -> list[str]:
            return sorted(str(row[1]) for row in connection.execute(f"PRAGMA table_info({name})"))

        return rows_of(connection, columns, names)
    finally:
        connection.close()


def server_rows(url: str) -> dict[str, list[Any]]:
    connection: PostgresConnection = connect(parsed(url))
    try:
        names = {name for name in connection.tables() if name not in ("experience_text", *ONLY_SERVER)}
        query = "SELECT column_name FROM information_schema.columns WHERE table_schema = current_schema() AND "

        def columns(name: str) -> list[str]:
            return sorted(str(column) for (column,) in connection.execute(f"{query} table_name = ?", (name,)))

        return rows_of(connection, columns, names)
    finally:
        connection.close()


def but_last_audit(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Return rows without the entry of the move itself."""
    return {**rows, "audit": [row for row in rows["audit"] if "memory.move" not in row]}


def digest(path: str) -> str:
    return sha256(Path(path).read_bytes()).hexdigest()


def mode_of(path: str) -> int:
    return Path(path).stat().st_mode & 0o777


async def test_every_row_is_there_and_the_work_goes_on_there_and_back(path: str, url: str, tmp_path: Path) -> None:
    before, back = file_rows(path), str(tmp_path / "back.db")
    assert not [name for name, rows in before.items() if not rows], "a table without rows shows nothing"
    counts = moving.file_to_server(path, parsed(url), draft())

    assert {name: len(rows) for name, rows in before.items()} == counts
    assert but_last_audit(server_rows(url)) == before == file_rows(path)
    assert ServerCare(parsed(url)).verify().is_whole
    async with PostgresMemory(url, embedder=Words()) as memory:
        assert {hit.id for hit in await memory.recall("disk 印刷")} >= {"e0", "odd"}
        assert len(await memory.journal.views.items("main")) == 3
        assert [entry.action for entry in await memory.audit.entries()][:1] == ["memory.move"]
        await memory.store(Experience("of the server", id="new"))
        await memory.journal.commit(accepted("more"), "main")
        journal_epoch = memory.journal.epoch
    with psycopg.connect(url) as connection:
        numbers = [seq for (seq,) in connection.execute("SELECT seq FROM experience ORDER BY seq")]
    gone = numbers[-2] + 1
    assert numbers[-1] == gone + 1
    middle = server_rows(url)
    moving.server_to_file(parsed(url), back, draft())

    assert but_last_audit(file_rows(back)) == but_last_audit(middle) == but_last_audit(server_rows(url))
    assert verify(back).is_whole, verify(back).findings
    assert mode_of(back) == 0o600
    async with Memory.open(f"sqlite:///{back}", ballast=0, embedder=Words()) as memory:
        assert {hit.id for hit in await memory.recall("disk 印刷 server")} >= {"e0", "odd", "new"}
        assert memory.journal.epoch == journal_epoch + 1
        await memory.store(Experience("of the file", id="newest"))
        await memory.journal.commit(accepted("most"), "main")
    assert verify(back).is_whole, verify(back).findings


async def test_one_that_is_in_use_is_refused_whichever_end_it_is(path: str, url: str, tmp_path: Path) -> None:
    async with Memory.open(f"sqlite:///{path}", ballast=0):
        with pytest.raises(ConfigError, match=r"is in use by this process .* stop it first"):
            moving.file_to_server(path, parsed(url), draft())
    async with PostgresMemory(url):
        with pytest.raises(ConfigError, match=r"is in use by 'spar .*; stop it first"):
            moving.file_to_server(path, parsed(url), draft())
        with pytest.raises(ConfigError, match=r"is in use by 'spar .*; stop it first"):
            moving.server_to_file(parsed(url), str(tmp_path / "new.db"), draft())
    assert not (tmp_path / "new.db").exists()


async def test_a_target_that_is_not_empty_is_refused_and_left_as_it_was(path: str, url: str, tmp_path: Path) -> None:
    async with PostgresMemory(url) as memory:
        await memory.save("key", 1)
    rows = server_rows(url)
    with pytest.raises(ConfigError, match="holds a memory already; move into an empty database"):
        moving.file_to_server(path, parsed(url), draft())
    before = digest(path)
    with pytest.raises(ConfigError, match="exists; move into a file with a new name"):
        moving.server_to_file(parsed(url), path, draft())

    assert server_rows(url) == rows
    assert digest(path) == before


async def test_what_is_damaged_or_older_or_missing_is_refused(path: str, url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no memory at"):
        moving.file_to_server(str(tmp_path / "none.db"), parsed(url), draft())
    with pytest.raises(ConfigError, match="holds no memory yet"):
        moving.server_to_file(parsed(url), str(tmp_path / "new.db"), draft())
    connection = database.open_writer(path, "off")
    connection.execute("UPDATE fact SET call = 'other' WHERE seq = 2")
    connection.close()
    with pytest.raises(SparError, match=r"is damaged .*fact 2.*nothing was moved, see: spar memory verify"):
        moving.file_to_server(path, parsed(url), draft())
    with psycopg.connect(url) as raw:
        assert raw.execute("SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()").fetchone() == (0,)


def move(folder: Path, target: str, **environ: str) -> tuple[int, str]:
    """Run the command in a process of its own, with the configuration of the folder. Return its code and its error."""
    command = [sys.executable, "-m", "spar", "memory", "move", "--to", target]
    env = {**clean_environ(), **environ}
    with Forked(command, cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        _, error = process.communicate(timeout=120)
    return process.returncode, error.decode()


POINTS = ("move.table:1", "move.table:18", "move.commit:1", "move.done:1")


@pytest.mark.process
@pytest.mark.parametrize("point", POINTS)
def test_a_move_that_is_killed_leaves_nothing_or_all_and_can_be_made_again(
    point: str, path: str, url: str, tmp_path: Path
) -> None:
    (tmp_path / "config.toml").write_text(f'[memory]\nurl = "sqlite:///{path}"\n')
    before, rows, is_done = digest(path), file_rows(path), point.startswith("move.done")
    assert move(tmp_path, url, SPAR_CRASH=point)[0] == KILLED
    code, error = move(tmp_path, url)

    assert digest(path) == before
    assert code == (69 if is_done else 0), error
    assert is_done == ("holds a memory already" in error)
    assert but_last_audit(server_rows(url)) == rows

    back = tmp_path / "back.db"
    (tmp_path / "config.toml").write_text(f'[memory]\nuse = "postgres"\nurl = "{url}"\n')
    assert move(tmp_path, f"sqlite:{back}", SPAR_CRASH=point)[0] == KILLED
    assert back.exists() == is_done
    code, error = move(tmp_path, f"sqlite:{back}")

    assert code == (69 if is_done else 0), error
    assert but_last_audit(file_rows(str(back))) == rows == but_last_audit(server_rows(url))
    assert verify(str(back)).is_whole
    assert not list(tmp_path.glob("*.moving"))


@pytest.mark.process
def test_a_wrong_target_ends_the_command_with_one_sentence_and_its_code(path: str, url: str, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(f'[memory]\nurl = "sqlite:///{path}"\n')
    wrong = {
        "mysql://x": (64, "--to: known are postgresql://user@host:5432/database, sqlite:FILE and a path"),
        "other.db": (64, "one must be a file and one a database"),
        "postgresql://spar:s3cret@127.0.0.1:1/d": (69, "postgresql://spar@127.0.0.1:1/d cannot be reached: "),
        url.replace("postgres?", "none?"): (69, 'database "none" does not exist; make it with: createdb'),
    }
    for target, (code, sentence) in wrong.items():
        ended, error = move(tmp_path, target)
        assert (ended, error.count("\n"), "s3cret" in error) == (code, 1, False), error
        assert sentence in error


@pytest.mark.process
def test_a_connection_that_breaks_in_the_middle_is_one_sentence_and_leaves_nothing(
    path: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end_backends(label: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'spar %'"
            )

    monkeypatch.setattr(moving, "crashpoint", end_backends)
    with pytest.raises(SparError, match="cannot be reached"):
        moving.file_to_server(path, parsed(url), draft())
    monkeypatch.undo()

    assert moving.file_to_server(path, parsed(url), draft())["experience"]


def new_file(path: Path, count: int) -> str:
    """Make a file with this number of rows of two kilobytes. Return its path."""
    path.unlink(missing_ok=True)
    connection = moving.SqliteConnection(str(path))
    moving.file_schema.migrate(connection)
    rows = [(f"{count}-{number}", f'"{"x" * 2_000}"') for number in range(count)]
    with connection:  # one transaction, not one and a flush for each row
        connection.executemany("INSERT INTO own_row (owner, key, value) VALUES ('test', ?, ?)", rows)
        moving.seals.seal_all(connection)
    connection.close()
    return str(path)


def test_work_grows_with_the_rows_and_room_does_not(server: PostgresServer, tmp_path: Path) -> None:
    def there_and_back(path: str) -> None:
        target, back = parsed(server.database()), tmp_path / "back.db"
        moving.file_to_server(path, target, draft())
        moving.server_to_file(target, str(back), draft())
        back.unlink()

    files = {size: new_file(tmp_path / f"{size}.db", 40 * size) for size in (1, 4, 8)}
    assert growth(lambda size: there_and_back(files[size]), 4) < 2.5

    large = new_file(tmp_path / "large.db", 6_000)
    assert Doctor(large, 0).verify().is_whole
    tracemalloc.start()
    try:
        there_and_back(large)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20, f"{peak >> 10} KiB for 12 MB of rows"
