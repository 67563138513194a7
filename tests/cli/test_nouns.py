"""Reads without a service: each reading operation of the table answers from the store, in the words of a service."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import apsw
import click
import msgspec
import pytest
from click.testing import CliRunner
from msgspec import NODEFAULT, to_builtins

from memory import Memory
from spar import Call, Experience, Perception, facts
from spar.agent.agent import build_agent
from spar.cli.context import Options, Time
from spar.cli.main import cli
from spar.cli.nouns import ask, blocks_of
from spar.cli.offline import StoreAlone
from spar.config.load import load
from spar.decoding import encode
from spar.operations import history
from spar.operations.knowledge.rules import RuleRow, RulesChoice, chosen_rules
from spar.operations.operation import NOT_RUNNING, Caller, Operation, operations
from spar.records.approvals import Approval, Grant
from spar.records.journal import Doubt, Item, RowChange
from spar.records.senders import Delivery, SenderRow
from spar.service.app import Service
from tests.journal.left import tell
from tests.memory.sqlite.test_schema import released
from tests.process.conftest import PATIENCE
from tests.process.template import clean_environ
from tests.process.test_bad_input import give_up_roots_privilege

NOW: Final = datetime.now(UTC)
#: Reading operations that only a process can answer: what it does now, what waits for it, what it would do.
OF_A_PROCESS: Final = {
    "status",
    "shadow",
    "events",
    "next",
    "runs wait",
    "runs follow",
    "sessions prompt",
    "examples try",
    "services",
    "nodes list",
}
#: Lists of what a process does with what is configured: without one they have their parts, but no figures.
OF_PARTS: Final = {"parts", "sensors list", "channels list", "notifiers list"}
#: Lists whose rows have no time.
WITHOUT_TIME: Final = {"sensors list", "channels list", "notifiers list", "break list", "stops list"}
#: Other operations that return a list of rows.
FURTHER_LISTS: Final = {
    "channels failed", "approvals grants", "sessions transcript", "sessions transcripts", "memory transcripts",
}  # fmt: skip
CONFIG: Final = """
[agent]
loop_interval = "off"
[[sensors]]
use = "messages"
[[channels]]
use = "tests.recorded.parts:FolderChannel"
name = "folder"
options = { path = "line" }
[[senders.allow]]
senders = ["folder:alice"]
[[notifiers]]
use = "log"
name = "ops"
[perception.intents.restart_service]
examples = ["restart {service}", "bounce {service}"]
[[rules]]
name = "answer"
when = { kind = "message" }
answer = "fine"
"""


def reads() -> list[Operation[Any, Any]]:
    """Return all operations that only read."""
    return [operation for operation in operations() if operation.is_read]


def lists() -> list[Operation[Any, Any]]:
    """Return the operations that return rows and need no process."""
    names = {operation.name for operation in reads() if operation.name.endswith(" list")} | FURTHER_LISTS
    return [operation for operation in reads() if operation.name in names - OF_A_PROCESS]


def offline() -> list[Any]:
    """Return the operations that answer without a service, as parameters of a test."""
    return [pytest.param(operation, id=operation.name) for operation in reads() if operation.is_stored]


def given_of(operation: Operation[Any, Any], **values: Any) -> Any:
    """Return an input of an operation; a field that must be given is the session "main"."""
    fields = msgspec.structs.fields(operation.given)
    needed: dict[str, Any] = {field.name: "main" for field in fields if field.default is NODEFAULT and field.required}
    if operation.name == "changes":  # else it begins a day before each question
        needed["since"] = NOW
    return operation.given(**needed, **values)


def options_in(folder: Path) -> Options:
    return Options(folder / "config.toml", (), as_json=True)


async def lived(folder: Path) -> dict[str, Any]:
    """Let a service live in a folder with rows of each kind; return its answers by the names of operations."""
    (folder / "line").mkdir()
    (folder / "config.toml").write_text(CONFIG)
    async with Memory(f"sqlite:///{folder / 'state' / 'memory.db'}") as memory:
        tell(memory.journal, facts.CallDoubted, doubt=Doubt("c1/pay", Call("pay", id="pay"), "c1", at=NOW))
        tell(memory.journal, facts.PutAside, item=Item("d1", Perception("x", id="d1"), at=NOW), reason="it failed")
        message = Delivery("m1", "folder", "bob", "hello", NOW, state="failed", error="no such person")
        memory.journal.append(facts.RowsChanged(changes=(RowChange("channels:main", "out/m1", to_builtins(message)),)))
        await memory.journal.safe()
        hour = timedelta(hours=1)
        for id, status in (("a1", "denied"), ("a2", "used")):
            row = Approval(id, Call("pay"), "0" * 64, NOW, NOW + hour, agent="main", status=status)  # type: ignore[arg-type]
            await memory.keep("approval", id, to_builtins(row))
        await memory.keep("grant", "g1", to_builtins(Grant("g1", "pay", {}, NOW + hour, granted_at=NOW)))
        denied = SenderRow("folder:eve", "main", "denied", last_at=NOW)
        await memory.keep("sender", "main/folder:eve", to_builtins(denied))
        await memory.store(Experience("the disk is full", "look", "seen", success=True, id="e1"))
    loaded = load(folder / "config.toml", environ={})
    agent = build_agent(loaded)
    async with agent:
        service = Service(loaded, agent)
        await service.tokens.create("ci", ["read"], days=None, by="test")
        await agent.setup.modules["sense"].part.teach("intent", "the shop is slow", "restart_service")
        for session in ("main", "main", "hall"):
            await agent.wait((await agent.submit("hello", session=session)).run_id, 60)
        answers = {}
        for operation in reads():
            if operation.name not in OF_A_PROCESS:
                try:
                    answer = await operation.run(service, given_of(operation), Caller("test"))
                except LookupError as error:
                    answers[operation.name] = str(error.args[0])
                else:
                    answers[operation.name] = json.loads(encode(answer))
    return answers


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A folder in which a service has lived, and its answers."""
    folder = tmp_path_factory.mktemp("life")
    (folder / "state").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        answers = asyncio.run(lived(folder))
    return folder, answers


def test_every_reading_operation_answers_without_a_service_but_those_about_a_process() -> None:
    assert {operation.name for operation in reads() if not operation.is_stored} == OF_A_PROCESS


@pytest.mark.parametrize("operation", offline())
def test_the_answer_of_the_store_is_that_of_the_service(
    operation: Operation[Any, Any], life: tuple[Path, dict[str, Any]]
) -> None:
    folder, answers = life
    expected = answers[operation.name]
    given = given_of(operation)
    if isinstance(expected, str):
        with pytest.raises(click.ClickException) as refused:
            ask(options_in(folder), operation, given)
        assert refused.value.message == expected
        return
    answer = ask(options_in(folder), operation, given)
    if operation.name in OF_PARTS:
        assert _names(answer) == _names(expected) != []
    elif operation.name == "examples list":
        assert (answer["labels"], answer["taught"]) == (expected["labels"], expected["taught"])
    else:
        assert answer == expected
    ask(options_in(folder), operation, given, is_typed=True)


def _names(answer: Any) -> list[str]:
    return list(answer) if isinstance(answer, dict) else [row["name"] for row in answer]


def test_parts_that_do_not_run_say_so_and_what_waits_for_them_is_counted(life: tuple[Path, dict[str, Any]]) -> None:
    by_name = {operation.name: operation for operation in lists()}

    def cells(name: str) -> Any:
        given = given_of(by_name[name])
        (block,) = blocks_of(
            by_name[name],
            by_name[name].commands[name.split()[-1]],
            given,
            ask(options_in(life[0]), by_name[name], given, is_typed=True),
        )
        return block.rows  # type: ignore[union-attr]

    assert cells("sensors list") == (("messages", NOT_RUNNING, ""),)
    assert cells("channels list") == (("folder", NOT_RUNNING, NOT_RUNNING, "0", "0", "0", "1", ""),)
    assert [row[:2] for row in cells("rules list")] == [("answer", "3")]
    assert cells("notifiers list") == (("ops", "0", "0", "0", ""),)


def test_every_list_has_a_limit_and_a_time_where_its_rows_have_one(life: tuple[Path, dict[str, Any]]) -> None:
    for operation in lists():
        fields = {field.name for field in msgspec.structs.fields(operation.given)}
        assert "limit" in fields, operation.name
        assert ("since" in fields) == (operation.name not in WITHOUT_TIME), operation.name
        answer = ask(options_in(life[0]), operation, given_of(operation, limit=1))
        assert _count(answer) <= 1, operation.name
        if "since" in fields:
            later = NOW + timedelta(days=1)
            assert _count(ask(options_in(life[0]), operation, given_of(operation, since=later))) == 0, operation.name


def _count(answer: Any) -> int:
    """Return how many rows an answer has: it is a list, has its rows by name, or has a list of them."""
    if isinstance(answer, list):
        return len(answer)
    return len(next((answer[name] for name in ("sessions", "taught") if name in answer), answer))


# -- a store that cannot be read


def _missing(file: Path) -> None:
    file.unlink()


def _no_database(file: Path) -> None:
    file.write_bytes(b"this is no database at all" * 1000)


def _of_later_format(file: Path) -> None:
    with apsw.Connection(str(file)) as connection:
        connection.execute("PRAGMA user_version = 999")
    connection.close()


def _of_earlier_format(file: Path) -> None:
    file.unlink()
    released(file, 6)


TROUBLES: Final[dict[str, tuple[Any, int, str]]] = {
    "missing": (_missing, 69, "the first 'spar run' makes it"),
    "no database": (_no_database, 65, "is not a database"),
    "later": (_of_later_format, 69, "was written by a newer version (format 999"),
    "earlier": (_of_earlier_format, 69, "has the older format 6; open it once for writing"),
}


def test_a_store_that_cannot_be_read_is_refused_in_one_sentence_and_left_as_it_is(
    life: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    answering = [operation for operation in reads() if operation.is_stored]
    for trouble, (make, code, sentence) in TROUBLES.items():
        folder = tmp_path / trouble
        shutil.copytree(life[0], folder)
        make(folder / "state" / "memory.db")
        before = content_of(folder)
        for operation in answering if trouble == "missing" else (history.list_cycles,):  # all open the store alike
            with pytest.raises(click.ClickException) as refused:
                ask(options_in(folder), operation, given_of(operation))
            assert (refused.value.exit_code, sentence in refused.value.message) == (code, True), refused.value.message
            assert "\n" not in refused.value.message
        assert content_of(folder) == before


def test_a_store_that_another_program_locks_is_refused(life: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    shutil.copytree(life[0], tmp_path / "life")
    connection = apsw.Connection(str(tmp_path / "life" / "state" / "memory.db"))
    connection.execute("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE").fetchall()
    try:
        with pytest.raises(click.ClickException) as refused:
            ask(options_in(tmp_path / "life"), history.list_cycles, history.CyclesChoice())
    finally:
        connection.execute("ROLLBACK")
        connection.close()

    assert (refused.value.exit_code, "is locked by another program" in refused.value.message) == (69, True), refused


def test_cycles_before_a_time_are_those_that_began_earlier(life: tuple[Path, dict[str, Any]]) -> None:
    every = ask(options_in(life[0]), history.list_cycles, history.CyclesChoice())
    last = every[0]["started_at"]
    earlier = ask(options_in(life[0]), history.list_cycles, history.CyclesChoice(before=last))
    assert [row["cycle_id"] for row in earlier] == [row["cycle_id"] for row in every if row["started_at"] < last] != []


def test_reading_changes_no_file(life: tuple[Path, dict[str, Any]]) -> None:
    before = content_of(life[0])
    for operation in lists():
        ask(options_in(life[0]), operation, given_of(operation))
    assert content_of(life[0]) == before


def content_of(folder: Path) -> dict[str, bytes]:
    """Return the content of all files in a folder, but those by which connections know of each other."""
    files = (file for file in folder.rglob("*") if file.is_file() and file.suffix not in (".db-shm", ".db-wal"))
    return {str(file): file.read_bytes() for file in files}


# -- many rows


ROWS: Final = 20_000
#: For each list with many rows: the statement that makes them, and the field that continues after a page.
MANY: Final = {
    "cycles list": (
        "INSERT INTO cycle (id, started_at, bytes, outcome, session, agent, duration, summary, body) "
        "SELECT printf('c%07d', n), n, 100, 'acted', 'main', 'main', 1.0, '{}', '' FROM numbers", "before", "cycle_id",
    ),
    "runs list": (
        "INSERT INTO item (id, agent, session, kind, key, at, attempts, state, body) "
        "SELECT printf('r%07d', n), 'main', 'main', 'run', NULL, n, 1, 'done', '{\"answer\": {\"status\": \"ok\"}}' "
        "FROM numbers", "before", "run_id",
    ),
    "audit list": (
        "INSERT INTO audit (seq, at, actor, subject, action, body, link) "
        "SELECT n, n, 'ann', '', 'x', '{}', x'00' FROM numbers", "before", "seq",
    ),
    "sessions list": (
        "INSERT INTO session (agent, key, ordinal, began_at, used_at, is_set, body) "
        "SELECT 'main', printf('s%07d', n), 1, n, n, 0, '{\"created_at\": \"2026-11-24T00:00:00Z\"}' FROM numbers",
        "after", "key",
    ),
    "sessions transcript": (
        "INSERT INTO transcript (agent, session, run, kind, at, bytes, body) "
        "SELECT 'main', 'main', 'r', 'user', n, 100, '{}' FROM numbers", "before", "seq",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MANY)
async def test_a_page_of_many_rows_takes_as_much_work_as_one_of_few(name: str, tmp_path: Path) -> None:
    operation = next(operation for operation in lists() if operation.name == name)
    statement, continues, key = MANY[name]
    steps = {}
    for number in (ROWS // 100, ROWS):
        file = tmp_path / f"{number}.db"
        async with Memory(f"sqlite:///{file}"):
            pass
        with apsw.Connection(str(file)) as connection:
            recursion = f"VALUES (1) UNION ALL SELECT n + 1 FROM numbers WHERE n < {number}"
            connection.execute(f"WITH RECURSIVE numbers (n) AS ({recursion}) {statement}")
        connection.close()
        async with counted_steps() as counted, Memory(f"sqlite:///{file}", read_only=True) as memory:
            store: Any = StoreAlone(memory, "main", lambda *keys: load(None, environ={}))
            first = _rows(await operation.run(store, given_of(operation, limit=50), Caller("test")))
            place = _place_after(first, operation, key)
            given = given_of(operation, limit=50, **{continues: place})
            second = _rows(await operation.run(store, given, Caller("test")))
        assert len(first) == len(second) == 50
        assert not {row[key] for row in first} & {row[key] for row in second}
        steps[number] = counted[0]

    assert steps[ROWS] < 1.5 * steps[ROWS // 100], steps


@asynccontextmanager
async def counted_steps() -> AsyncIterator[list[int]]:
    """Count the steps that SQLite takes for the connections that are opened meanwhile, in twenties."""
    steps = [0]

    def step() -> bool:
        steps[0] += 1
        return False

    def count(connection: apsw.Connection) -> None:
        connection.set_progress_handler(step, 20)

    apsw.connection_hooks.append(count)
    try:
        yield steps
    finally:
        apsw.connection_hooks.remove(count)


def _rows(answer: Any) -> list[dict[str, Any]]:
    rows = json.loads(encode(answer))
    return rows if isinstance(rows, list) else [{**row, "next": rows["next"]} for row in rows["sessions"]]


def _place_after(rows: list[dict[str, Any]], operation: Operation[Any, Any], key: str) -> Any:
    """Return the place at which the page after these rows begins; a transcript is read backwards."""
    if operation.name == "sessions list":
        return rows[-1]["next"]
    return rows[0 if operation.name == "sessions transcript" else -1][key]


# -- from outside


def run(folder: Path, *words: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a folder as a process of its own."""
    command = [sys.executable, "-m", "spar", *words]
    environ = {**clean_environ(), "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(command, cwd=folder, env=environ, stderr=subprocess.PIPE, timeout=PATIENCE, **more)


def test_a_reader_that_has_gone_ends_a_list_quietly(life: tuple[Path, dict[str, Any]]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = run(life[0], "cycles", "list", stdout=writer)
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_store_in_a_folder_that_may_not_be_written_is_refused_in_one_sentence(
    life: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    shutil.copytree(life[0], tmp_path / "life", ignore=shutil.ignore_patterns("*.db?*", "*.db.*"))
    state = tmp_path / "life" / "state"
    (state / "memory.db").chmod(0o400)
    state.chmod(0o500)
    ended = run(tmp_path / "life", "cycles", "list", stdout=subprocess.PIPE, preexec_fn=give_up_roots_privilege)
    state.chmod(0o700)
    assert (ended.returncode, ended.stdout, ended.stderr.count(b"\n")) == (69, b"", 1), ended
    assert b"memory.db' cannot be opened" in ended.stderr
    assert [file.name for file in state.glob("memory.db*")] == ["memory.db"]


def test_a_verb_that_a_noun_has_not_is_guessed() -> None:
    told = CliRunner().invoke(cli, ["runs", "lst"]).output
    assert "no command 'lst'; known: list, " in told
    assert "did you mean 'list'?" in told


@pytest.mark.parametrize("noun", ["runs", "cycles"])
def test_a_list_that_goes_on_before_what_is_not_known_says_so(life: tuple[Path, dict[str, Any]], noun: str) -> None:
    config = str(life[0] / "config.toml")
    ended = CliRunner().invoke(cli, ["--config", config, noun, "list", "--before", "nowhere"])
    assert ended.exit_code == 1
    assert f"no {noun[:-1]} 'nowhere' to go on before: begin anew, without `before`" in ended.output


def test_a_time_may_be_said_as_how_long_ago_it_is() -> None:
    at = Time().convert("15m", None, None)
    assert abs((datetime.now(UTC) - at).total_seconds() - 900) < 60
    assert Time().convert("2026-01-31T14:30:00+02:00", None, None) == datetime(2026, 1, 31, 12, 30, tzinfo=UTC)
    assert Time().convert("2026-01-31", None, None).tzinfo is not None


def test_rules_are_listed_by_how_often_they_fire_and_those_alone_that_never_did() -> None:
    rows = [RuleRow("one", 1), RuleRow("none", 0), RuleRow("most", 5), RuleRow("new")]

    def names(**given: Any) -> list[str]:
        return [row.name for row in chosen_rules(RulesChoice(**given), rows)]

    assert names() == ["one", "none", "most", "new"]
    assert names(sort="fired", limit=2) == ["most", "one"]
    assert names(never=True) == ["none", "new"]
