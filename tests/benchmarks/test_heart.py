"""The table of the heart: each row is printed with what is owed."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import heart
from benchmarks.heart import ROWS, Row, shown


def test_each_row_is_printed_with_what_is_owed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heart, "PACKAGES", ("spar/ports",))  # a part of them shows the row as well
    code = heart.main()

    text = capsys.readouterr().out
    lines = {row.name: next(line for line in text.splitlines() if row.name in line) for row in ROWS}
    for row in ROWS:
        if isinstance(row, Row):
            assert shown(row.owed) in lines[row.name]
            assert lines[row.name].endswith(("reached", "owed later" if row.is_later else "missed"))
        else:
            assert row.command in lines[row.name]
            assert row.owed in text
    assert code == any(line.endswith("missed") for line in lines.values())


def test_a_row_is_reached_when_each_figure_is() -> None:
    most, least = (Row("files", lambda: (3, 4), (3, 4), is_least=is_least) for is_least in (False, True))

    assert [most.is_reached(figures) for figures in ((3, 4), (2, 1), (3, 5))] == [True, True, False]
    assert [least.is_reached(figures) for figures in ((3, 4), (2, 9), (3, 5))] == [True, False, True]


def test_a_protocol_is_implemented_once_if_one_class_has_its_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ports.py").write_text("""
class Sends(Protocol):
    route: str
    def send(self): ...
class Closes(Protocol):
    def close(self): ...
class Base:
    def __init__(self):
        self.route = ""
class Mail(Base):
    def send(self): ...
    def close(self): ...
class File:
    close = None
""")
    monkeypatch.setattr(heart, "PACKAGES", (tmp_path,))

    assert heart.protocols() == (2, 1)
