"""`spar service logs`: lines of the service's log file, over its rotation, chosen, for people, damaged ones as such."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from logging import makeLogRecord
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from spar.cli.commands.unit import LONGEST, LogFile
from spar.cli.main import cli
from spar.observe.writer import FileOutput

NOW = datetime.now(UTC)


def line(message: str, *, age: float = 0.0, level: str = "info", **fields: Any) -> dict[str, Any]:
    return {"ts": (NOW - timedelta(seconds=age)).isoformat(), "level": level, "msg": message, "logger": "x", **fields}


def asked(folder: Path, *arguments: str, file: str | None = "spar.log") -> Result:
    config = folder / "config.toml"
    config.write_text("" if file is None else f'[log]\nfile = "{file}"\n')
    return CliRunner().invoke(cli, ["-c", str(config), *arguments], prog_name="spar")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of two files, with damaged lines among the others."""
    (tmp_path / "spar.log.1").write_text(json.dumps(line("the oldest", age=7200)) + "\n")
    lines: list[Any] = [
        line("began", age=60, session="alice", cycle="18ea10a4aa", level="debug"),
        line("cycle acted", noticed="inbox: a.txt", decided="rule 'x' matched", calls="note ✓", milliseconds=229.7),
        line("bad", level="error", session="bob", reason="\x1b[31m\u202e"),
    ]
    text = "\n".join(map(json.dumps, lines)) + '\n{"cut": "in the mid\n\x1b]0;t\x07 no json\n7\n'
    (tmp_path / "spar.log").write_text(text)
    return tmp_path


def test_lines_are_shown_for_people_the_oldest_first(log: Path) -> None:
    found = asked(log, "service", "logs")
    shown = found.output.splitlines()

    assert found.exit_code == 0
    assert [each[24:] for each in shown[:3]] == [
        "info    the oldest", "debug   began  session=alice cycle=18ea10a4aa",
        "info    inbox: a.txt → rule 'x' matched → note ✓  230 ms"]  # fmt: skip
    assert shown[3].endswith('error   bad  session=bob reason="\\x1b[31m\\u202e"')
    assert shown[4:] == ['damaged line: {"cut": "in the mid', "damaged line: \\x1b]0;t\\x07 no json", "damaged line: 7"]
    assert shown[0].startswith((NOW - timedelta(hours=2)).astimezone().strftime("%Y-%m-%d %H:%M:%S."))


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (["--session", "alice"], ["began"]),
        (["--cycle", "18ea10"], ["began"]),
        (["--level", "warning"], ["bad", None, None, None]),
        (["--level", "WARN"], ["bad", None, None, None]),
        (["--since", "30m"], ["began", "cycle acted", "bad", None, None, None]),
        (["--since", "2020-01-01", "--cycle", "1"], ["began"]),
        (["-n", "2"], [None, None]),
        (["-n", "1", "--session", "bob"], ["bad"]),
        (["-n", "0"], []),
    ],
)
def test_lines_are_chosen_and_printed_as_they_stand(log: Path, arguments: list[str], messages: list[Any]) -> None:
    found = asked(log, "--json", "service", "logs", *arguments).output.splitlines()

    told = [json.loads(each) if each.endswith("}") else {} for each in found]
    assert [each.get("msg") for each in told] == messages


@pytest.mark.parametrize("since", ["yesterday", "", "-", "nan", "2026"])
def test_a_time_that_is_none_is_refused(log: Path, since: str) -> None:
    found = asked(log, "service", "logs", "--since", since)

    assert found.exit_code == click.UsageError.exit_code
    assert "must be a time (2026-01-31, 2026-11-22T18:00) or a duration (15m)" in found.output


def test_without_a_file_it_says_where_the_log_is_and_how_to_get_one(tmp_path: Path) -> None:
    none, missing = asked(tmp_path, "service", "logs", file=None), asked(tmp_path, "service", "logs")

    assert (none.exit_code, missing.exit_code) == (69, 69)
    assert "journalctl -u spar" in none.output
    assert 'file = "spar.log"' in none.output
    assert "is not there; the service writes it as soon as it runs: spar run" in missing.output


@pytest.mark.parametrize("looked_at", [1, 7, 30])
def test_a_log_is_followed_over_its_rotation_and_each_line_is_told_once(tmp_path: Path, looked_at: int) -> None:
    """The real writer rotates after each few lines; it is looked at between, also after several rotations."""
    path, told = tmp_path / "spar.log", list[bytes]()
    writer = FileOutput(path, max_bytes=40, older=50)
    with LogFile(path) as file:
        assert list(file.more()) == []
        for number in range(30):
            writer.emit(makeLogRecord({"msg": f"line {number}"}))
            if number % looked_at == 0:
                told += file.more()
        writer.close()
        told += file.more()

    assert told == [b"line %d" % number for number in range(30)]
    with LogFile(path) as file:
        assert list(file.more()) == told


def test_a_line_that_is_being_written_is_told_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "spar.log"
    with path.open("ab", buffering=0) as target, LogFile(path) as file:
        target.write(b"one\ntw")
        first = list(file.more())
        target.write(b"o\n")

        assert (first, list(file.more())) == ([b"one"], [b"two"])


def test_an_emptied_file_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "spar.log"
    path.write_bytes(b"one\ntwo\n")
    with LogFile(path) as file:
        before = list(file.more())
        path.write_bytes(b"new\n")

        assert (before, list(file.more())) == ([b"one", b"two"], [b"new"])


def test_a_line_without_end_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "spar.log"
    path.write_bytes(b"x" * (4 * LONGEST) + b"\nnext\n")

    with LogFile(path) as file:
        found = list(file.more())

    assert [len(each) for each in found] == [LONGEST, 4]
