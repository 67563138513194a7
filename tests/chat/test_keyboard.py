"""Lines of a conversation: from a pipe, whole, the last one without an end, too long ones cut."""

from __future__ import annotations

import io

import pytest

from spar.chat.lines import LONGEST, Keyboard


def lines_of(content: bytes, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str | None, bool]]:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    keyboard, lines = Keyboard(), list[tuple[str | None, bool]]()
    while not lines or lines[-1][0] is not None:
        lines.append((keyboard.line(), keyboard.is_cut))
    return lines


def test_each_line_is_read_once_also_one_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines_of(b"one\r\n\ntwo \xff", monkeypatch) == [
        ("one", False), ("", False), ("two \ufffd", False), (None, False)]  # fmt: skip


def test_the_rest_of_a_line_that_is_too_long_is_dropped_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"x" * LONGEST + b"\n" + b"y" * (3 * LONGEST) + b"\nnext\n" + b"z" * (2 * LONGEST)
    read = [(text and (text[0], len(text)), is_cut) for text, is_cut in lines_of(content, monkeypatch)]

    assert read == [(("x", LONGEST), False), (("y", LONGEST), True), (("n", 4), False), (("z", LONGEST), True),
                    (None, False)]  # fmt: skip
