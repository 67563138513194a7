"""What commands import before they answer, and how often the garbage collector looks meanwhile: what their start takes.

Nothing is timed: on a busy machine that would say nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from spar.cli.context import STATE_DIR, quick_state_dir
from spar.config.load import from_mapping
from tests.process.conftest import PATIENCE

pytestmark = pytest.mark.process

#: Libraries and packages that only a service needs, a model, or a terminal.
OF_A_SERVICE = ("starlette", "uvicorn", "httpx", "httpx2", "loguru", "prometheus_client", "psutil", "watchfiles",
                "apscheduler", "jsonschema_rs", "pydantic_ai", "openai", "mcp", "sklearn", "numpy", "rich", "textual",
                "spar.agent.agent", "spar.session.sessions", "spar.loop.core", "planning", "acting",
                "perception")  # fmt: skip
#: Those that only reading the whole configuration needs.
OF_ALL_SETTINGS = ("pydantic_settings", "docstring_parser")
#: Those that reading the configuration and the store needs.
OF_A_STORE = ("pydantic", "pydantic_settings", "asyncio", "apsw")

#: Packages of the project, whose modules are counted by their lines: one that is cut in two takes no longer.
OWN = ("spar", "perception", "planning", "acting", "reflection", "memory")

PROGRAM = f"""
import atexit, gc, json, sys
from pathlib import Path
def tell():
    looks = sum(generation["collections"] for generation in gc.get_stats())
    names, apart = sorted(sys.modules), gc.get_freeze_count()
    own = [sys.modules[name].__file__ for name in names if name.partition(".")[0] in {OWN}]
    lines = sum(Path(file).read_text().count(chr(10)) for file in own)
    print(json.dumps([code, names, lines, looks, apart]), file=sys.stderr)
atexit.register(tell)
from spar.cli.main import main
code = 0
for command in " ".join(sys.argv[1:]).split(" , "):
    try:
        main(command.split())
    except SystemExit as end:
        code = code or end.code
"""


class Start(NamedTuple):
    """Cost of commands: the modules imported, the lines of those of the project, the runs of the garbage collector,
    and the objects that the collector need not look at."""

    modules: set[str]
    lines: int
    looks: int
    set_apart: int

    def check(self, command: object, most_others: int, most_lines: int) -> None:
        """Raise AssertionError when it imported more modules of others, or more lines of the project, than these."""
        others = [name for name in self.modules if name.partition(".")[0] not in OWN]
        assert len(others) < most_others, (command, len(others))
        assert self.lines < most_lines, (command, self.lines)


def start_of(spar: Any, *arguments: str, terminal: bool = False) -> Start:
    """Return what commands took together, a comma between any two, when they end well."""
    program = f"import sys; sys.stdout.isatty = lambda: True\n{PROGRAM}" if terminal else PROGRAM
    done = subprocess.run([sys.executable, "-c", program, *arguments], cwd=spar.folder, env=spar.environ,
                          capture_output=True, text=True, timeout=PATIENCE)  # fmt: skip
    code, names, *counts = json.loads(done.stderr.splitlines()[-1])
    assert code == 0, done
    return Start(set(names), *counts)


def test_commands_that_ask_the_service_import_little(running: Any) -> None:
    for arguments in (["status"], ["pause"]):
        start = start_of(running.spar, *arguments, terminal=arguments == ["pause"])
        assert not start.modules & {*OF_A_SERVICE, *OF_A_STORE}, arguments
        assert no_replay(start.modules), arguments
        start.check(arguments, 220, 6_000)
    running.spar("resume")


def test_commands_that_read_the_store_import_no_service(running: Any) -> None:
    running.spar("send", "hello")
    start = start_of(running.spar, *["cycles", "list", ",", "memory", "search", "hello", ",", "memory", "verify"])
    assert not start.modules & {*OF_A_SERVICE, *OF_ALL_SETTINGS}
    assert no_replay(start.modules)
    start.check("all three", 350, 22_000)


def no_replay(modules: set[str]) -> bool:
    """Return whether nothing that decides cycles again is there but the values of an answer."""
    return {name for name in modules if name.startswith("spar.replay.")} <= {"spar.replay.tally"}


def test_the_log_is_shown_without_the_rest_of_the_configuration(spar: Any) -> None:
    spar.write("[log]\nfile = 'spar.log'\n")
    (spar.folder / "spar.log").write_text("")

    start = start_of(spar, "service", "logs")

    assert not start.modules & {*OF_A_SERVICE, *OF_ALL_SETTINGS, "apsw"}
    start.check("logs", 360, 8_000)


def test_commands_that_look_at_every_part_import_no_service_and_little_garbage_is_looked_for(spar: Any) -> None:
    for arguments, others, lines in (
        (["config", "check"], 410, 78_500), (["doctor"], 400, 30_000)
    ):  # fmt: skip
        start = start_of(spar, *arguments)
        assert not start.modules & {"uvicorn", "starlette", "prometheus_client", "textual", "rich", "openai"}, arguments
        start.check(arguments, others, lines)
        assert start.looks < 60, (arguments, start.looks)
        assert start.set_apart > 10_000, (arguments, "what was imported is looked at when the interpreter ends")


def test_commands_that_decide_again_import_no_server(running: Any) -> None:
    spar = running.spar
    spar("send", "hello")
    spar.until(lambda: spar("cycles", "list", "--json").json, "the cycle")
    imported = start_of(spar, "cycles", "replay", ",", "backtest").modules
    assert not imported & {"uvicorn", "starlette", "prometheus_client", "textual", "rich", "openai",
                           "spar.agent.agent", "spar.replay.shadow"}  # fmt: skip


def test_what_draws_on_a_terminal_is_imported_there_alone(running: Any) -> None:
    running.spar("send", "hello")

    assert "rich" in start_of(running.spar, "sessions", "list", terminal=True).modules


@pytest.mark.parametrize(
    ("text", "overrides", "environ", "expected"),
    [
        ("", (), {}, "state"),
        ("[service]\nstate_dir = 'other'\n", (), {}, "other"),
        ("[service]\nstate_dir = 'other'\n", ("log.level=debug",), {"SPAR_SERVICE__PORT": "0"}, "other"),
        ("", ("service.state_dir=x",), {}, None),
        ("", ("nothing",), {}, None),
        ("", (), {"SPAR_SERVICE__STATE_DIR": "x"}, None),
        ("", (), {"spar_service": "{}"}, None),
        ("[service]\nstate_dir = 7\n", (), {}, None),
        ("[service]\nstate_dir = ' x'\n", (), {}, None),
        ("service = 7\n", (), {}, None),
        ("[service\n", (), {}, None),
    ],
)
def test_the_state_is_where_the_file_says_unless_something_else_has_a_say(
    tmp_path: Path, text: str, overrides: tuple[str, ...], environ: dict[str, str], expected: str | None
) -> None:
    (tmp_path / "config.toml").write_text(text)

    found = quick_state_dir(tmp_path / "config.toml", overrides, environ)

    assert found == (None if expected is None else tmp_path / expected)


def test_the_default_folder_is_that_of_the_settings() -> None:
    assert from_mapping({}).service.state_dir == STATE_DIR
