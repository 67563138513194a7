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

pytestmark = pytest.mark.process

#: Libraries and packages that only a service needs, a model, or a terminal.
OF_A_SERVICE = ("starlette", "uvicorn", "httpx", "httpx2", "loguru", "prometheus_client", "psutil", "watchfiles",
                "apscheduler", "jsonschema_rs", "pydantic_ai", "openai", "mcp", "sklearn", "numpy", "rich", "textual",
                "spar.agent.agent", "spar.session.session", "spar.loop.core", "planning", "acting",
                "perception")  # fmt: skip
#: Those that only reading the whole configuration needs.
OF_ALL_SETTINGS = ("pydantic_settings", "spar.config.sources", "spar.config.tables.descriptions")
#: Those that reading the configuration and the store needs.
OF_A_STORE = ("pydantic", "pydantic_settings", "asyncio", "apsw")

PROGRAM = """
import atexit, gc, json, sys
def tell():
    looks = sum(each["collections"] for each in gc.get_stats())
    print(json.dumps([code, sorted(sys.modules), looks, gc.get_freeze_count()]), file=sys.stderr)
atexit.register(tell)
from spar.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    code = end.code
"""


class Start(NamedTuple):
    """What a command took: the modules it imported, the looks of the collector, the objects it need not look at."""

    modules: set[str]
    looks: int
    set_apart: int


def start_of(spar: Any, *arguments: str, terminal: bool = False) -> Start:
    """Return what a command took when it ends well."""
    program = f"import sys; sys.stdout.isatty = lambda: True\n{PROGRAM}" if terminal else PROGRAM
    done = subprocess.run([sys.executable, "-c", program, *arguments], cwd=spar.folder, env=spar.environ,
                          capture_output=True, text=True, timeout=60)  # fmt: skip
    code, names, looks, set_apart = json.loads(done.stderr.splitlines()[-1])
    assert code == 0, done
    return Start(set(names), looks, set_apart)


def modules(spar: Any, *arguments: str, terminal: bool = False) -> set[str]:
    """Return the modules that a command has imported when it ends well."""
    return start_of(spar, *arguments, terminal=terminal).modules


def test_commands_that_ask_the_service_import_little(spar: Any, service: Any) -> None:
    for arguments in (["status"], ["sessions", "list"], ["approvals", "list"], ["channels", "list"], ["dead", "list"],
                      ["calls", "list"], ["senders", "list"], ["pause"], ["resume"]):  # fmt: skip
        found = modules(spar, *arguments)
        assert not found & {*OF_A_SERVICE, *OF_A_STORE}, arguments
        assert len(found) < 260, (arguments, len(found))


def test_commands_that_read_the_store_import_no_service(spar: Any, service: Any) -> None:
    spar("send", "hello")
    for arguments in (["cycles", "list"], ["transcript"], ["memory", "search", "hello"], ["verify"], ["audit"]):
        found = modules(spar, *arguments)
        assert not found & {*OF_A_SERVICE, *OF_ALL_SETTINGS}, arguments
        assert len(found) < 500, (arguments, len(found))


def test_the_log_is_shown_without_the_rest_of_the_configuration(spar: Any) -> None:
    spar.write("[log]\nfile = 'spar.log'\n")
    (spar.folder / "spar.log").write_text("")

    found = modules(spar, "logs")

    assert not found & {*OF_A_SERVICE, *OF_ALL_SETTINGS, "apsw"}
    assert len(found) < 420, len(found)


def test_commands_that_look_at_every_part_import_no_service_and_little_garbage_is_looked_for(spar: Any) -> None:
    for arguments, most in ((["parts"], 800), (["config", "check"], 900), (["doctor"], 620)):
        start = start_of(spar, *arguments)
        found = start.modules
        assert not found & {"uvicorn", "starlette", "prometheus_client", "textual", "rich", "openai"}, arguments
        assert len(found) < most, (arguments, len(found))
        assert start.looks < 60, (arguments, start.looks)
        assert start.set_apart > 10_000, (arguments, "what was imported is looked at when the interpreter ends")


def test_what_draws_on_a_terminal_is_imported_there_alone(spar: Any, service: Any) -> None:
    spar("send", "hello")

    assert "rich" in modules(spar, "sessions", "list", terminal=True)
    assert "rich" not in modules(spar, "--json", "sessions", "list", terminal=True)
    assert "rich" not in modules(spar, "pause", terminal=True)


def test_a_mistake_in_the_configuration_keeps_nobody_from_stopping_the_service(spar: Any, service: Any) -> None:
    spar.write("[log]\nlevle = 1\n")

    assert spar("config", "check").code == 78
    assert spar("status").code == 0
    assert spar("stop").code == 0


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
