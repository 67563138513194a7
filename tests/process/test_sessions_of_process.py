"""Sessions from outside: the commands and HTTP of a real service, and a reset in whose middle the process is killed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spar.failpoints import KILLED
from tests.process.conftest import PATIENCE, Service, Spar
from tests.process.life_with_resets import life
from tests.process.template import Forked, clean_environ

pytestmark = pytest.mark.process
LIFE = Path(__file__).with_name("life_with_resets.py")
#: Where a process dies in the middle of a reset, and what becomes of it.
DEATHS = {"session.reset_told": False, "session.reset": False, "session.reset_kept": True}


def live(folder: Path, which: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command, root = [sys.executable, str(LIFE), str(folder), which], str(Path(__file__).parents[2])
    environ = {**clean_environ(), "PYTHONPATH": root, **environ}
    with Forked(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        out, err = process.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess(command, process.returncode, out.decode(), err.decode())


def end_of(folder: Path) -> dict[str, Any]:
    """Live the second life, which nobody kills, here."""
    return asyncio.run(life(folder, "end"))


def check(found: dict[str, Any], *, is_reset: bool, doubts: int = 1) -> None:
    """All of a reset has happened, or nothing of it."""
    assert found["verified"] == []
    assert found["open"] == 0
    assert found["first"] == ["ok", ""]
    assert found["other"] == ["ok", ""]
    assert found["after"] == []
    ends = {name: found[name] for name in ("long", "waiting", "steered")}
    if is_reset:
        assert list(ends.values()) == [["error", "reset"]] * 3
        assert found["ordinal"] == 2
        assert found["kinds"].count("reset") == 1
        assert found["read"] == []
    else:
        assert "reset" not in {error for _, error in ends.values()}
        assert found["ordinal"] == 1
        assert "reset" not in found["kinds"]
        assert found["read"][:2] == ["first", "long"]
    assert found["doubts"] == doubts  # nobody knows what became of the call that was cut off


def test_what_was_being_planned_when_a_process_is_killed_in_a_reset_is_planned_again_only_without_it(
    tmp_path: Path,
) -> None:
    for label in ("session.reset", "session.reset_kept"):
        folder = tmp_path / label
        folder.mkdir()
        assert live(folder, "plan", SPAR_CRASH=f"{label}:1").returncode == KILLED
        found = end_of(folder)
        assert found["planned"].count("long") == 1 if DEATHS[label] else found["planned"].count("long") > 1
        check(found, is_reset=DEATHS[label], doubts=0)


@pytest.mark.parametrize("label", DEATHS)
def test_killed_at_each_step_of_a_reset_all_of_it_is_there_or_nothing(tmp_path: Path, label: str) -> None:
    assert live(tmp_path, "begin", SPAR_CRASH=f"{label}:1").returncode == KILLED
    found = end_of(tmp_path)
    assert not (tmp_path / "promised").exists()
    check(found, is_reset=DEATHS[label])


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("sessions", "reset", "nobody"), 1, "no session 'nobody'; a session begins with its first message"),
        (("sessions", "show", "nobody"), 1, "no session 'nobody'"),
        (("sessions", "forget", "nobody", "-y"), 1, "no session 'nobody'"),
        (("sessions", "set", "alice", "colour=red"), 64, "names: title, model, thinking, timeout, verbose"),
        (("sessions", "set", "alice", "title"), 64, "must be NAME=VALUE"),
        (("sessions", "set", "alice", "timeout=soon"), 64, "option timeout is 'soon', expected seconds"),
        (("sessions", "set", "alice", "model=huge"), 64, "option model means nothing here"),
        (("sessions", "list", "--after", "x"), 64, "must be the 'next' of the page before"),
        (("sessions", "list", "--limit", "0"), 64, "'0': must be 1 to 1000"),
    ],
)
def test_what_cannot_be_done_with_sessions_is_said(
    running: Service, arguments: tuple[str, ...], code: int, said: str
) -> None:
    answer = running.spar(*arguments)
    assert answer.code == code, answer
    assert said in answer.err


def test_commands_in_messages_work_where_they_are_switched_on(spar: Spar, start: Callable[..., Service]) -> None:
    start("--set", "sessions.commands=true").ready()
    assert spar("send", "--session", "alice", "hello").code == 0
    assert "A new conversation begins (alice#2)." in spar("send", "--session", "alice", "/new").out
    assert "alice#2: at rest" in spar("send", "--session", "alice", "/status").out
