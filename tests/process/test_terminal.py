"""`spar run`, `spar status --watch` and `spar service logs -f` as people see them on a terminal, and in a pipe."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.process.conftest import PATIENCE, Service, Spar, until

pytestmark = pytest.mark.process


class Terminal:
    """A pseudo-terminal and all that was shown on it."""

    def __init__(self) -> None:
        self._master, self.slave = pty.openpty()
        self._shown = bytearray()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            try:
                found = os.read(self._master, 65536)
            except OSError:
                return
            if not found:
                return
            self._shown += found

    @property
    def text(self) -> str:
        return self._shown.decode("utf-8", "replace").replace("\r\n", "\n")

    def shows(self, pattern: str) -> None:
        until(lambda: re.search(pattern, self.text), f"{pattern!r} in:\n{self.text}")


@contextmanager
def command(spar: Spar, *arguments: str, terminal: Terminal | None = None) -> Iterator[subprocess.Popen[bytes]]:
    out = subprocess.PIPE if terminal is None else terminal.slave
    process = spar.popen([sys.executable, "-m", "spar", *arguments], cwd=spar.folder,
                         env={**spar.environ, "TERM": "xterm", "COLUMNS": "100"},
                         stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE)  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_run_says_what_to_type_and_then_a_line_for_each_cycle_that_acted(
    spar: Spar, start: Callable[..., Service]
) -> None:
    terminal = Terminal()
    service = start(stderr=terminal.slave).ready()
    terminal.shows(r"socket .*/state/control\.sock, http http://127\.0\.0\.1:\d+\n")
    terminal.shows(r"In another terminal, in this folder:\n +spar chat +talk with it\n")
    terminal.shows("Ctrl-C lets the work in hand finish")
    terminal.shows(r"service started.*\n")
    idle = terminal.text
    until(lambda: service.agent["stats"]["outcomes"]["idle"] > 2, "idle cycles")
    assert terminal.text == idle

    spar.drop("report.txt", "printer on fire")
    terminal.shows(r"info    inbox: report\.txt → rule 'file what was dropped' matched → note ✓ files ✓  [\d.]+ m?s\n")

    assert "{" not in terminal.text
    assert service.stop() == 0


def test_the_status_is_watched_on_a_terminal_and_ends_cleanly(running: Service) -> None:
    terminal = Terminal()
    with command(running.spar, "status", "--watch", "--every", "0.2", terminal=terminal) as watch:
        until(lambda: terminal.text.count("\x1b[H\x1b[2J\x1b[3J") > 2, "it is drawn again")
        watch.send_signal(signal.SIGINT)
        assert watch.wait(PATIENCE) == 0
        assert watch.stderr is not None
        assert watch.stderr.read() == b""
    assert f"process {running.process.pid}" in terminal.text


def watched_in_a_pipe_it_waits_for_a_service_that_ends(spar: Spar, service: Service) -> None:
    with command(spar, "--json", "status", "--watch", "--every", "0.2") as watch:
        assert watch.stdout is not None
        assert watch.stderr is not None
        first = json.loads(watch.stdout.readline())
        service.stop()
        assert b"waiting for it" in watch.stderr.readline()
        watch.send_signal(signal.SIGINT)
        assert watch.wait(PATIENCE) == 0
    assert first["pid"] == service.process.pid


def test_log_and_status_are_followed_while_the_service_lives(spar: Spar, start: Callable[..., Service]) -> None:
    spar.edit('# file = "spar.log"', 'file = "spar.log"')
    service = start().ready()
    with command(spar, "service", "logs", "-f", "--session", "main") as follow:
        assert follow.stdout is not None
        spar.drop("report.txt", "printer on fire")
        line = follow.stdout.readline().decode()
        follow.send_signal(signal.SIGINT)
        assert follow.wait(PATIENCE) == 0
    assert re.search(r"^\d{4}-.* info    inbox: report\.txt → .* → note ✓ files ✓  ", line), line
    assert "service started" in spar("service", "logs").out
    watched_in_a_pipe_it_waits_for_a_service_that_ends(spar, service)


def test_what_is_typed_wrong_is_shown_harmlessly(spar: Spar) -> None:
    for arguments in (["\x1b[31mx"], ["status", "--\x1b]0;t\x07"], ["init", "--profile", "\x1b[2J\u202e"]):
        answer = spar(*arguments)
        assert answer.code == 64
        assert not set("\x1b\x07\u202e") & set(answer.err), answer


def test_a_pipe_that_closes_leaves_no_traceback(running: Service) -> None:
    """A list ends so, too: tests/cli/test_nouns.py."""
    spar, (read, written) = running.spar, os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-m", "spar", "status", "--watch"], cwd=spar.folder, env=spar.environ,
                          stdout=written, stderr=subprocess.PIPE, timeout=PATIENCE)  # fmt: skip
    os.close(written)
    assert (done.returncode, done.stderr) == (0, b"")


def test_tables_and_trees_are_drawn_on_a_terminal_and_plain_in_a_pipe(running: Service) -> None:
    spar = running.spar
    spar("send", "note: [red]x[/red] \x1b[31m\u202e")
    terminal = Terminal()
    id: Any = spar("--json", "cycles", "list").json[0]["cycle_id"]
    for arguments in (["cycles", "list"], ["cycles", "show", id]):
        with command(spar, *arguments, terminal=terminal) as shown:
            assert shown.wait(PATIENCE) == 0
    terminal.shows("█")

    assert "├── noticed" in terminal.text
    assert "[red]x[/red]" in terminal.text
    assert "\x1b[31m" not in terminal.text
    assert "\u202e" not in terminal.text
    piped = spar("cycles", "list").out + spar("cycles", "show", id).out
    assert not set("├─│━█\x1b\u202e") & set(piped)
    assert "[red]x[/red]" in piped
