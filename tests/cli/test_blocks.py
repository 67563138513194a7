"""Blocks of answers: plain lines for a pipe, drawings for a terminal; whatever text they hold is harmless and short."""

from __future__ import annotations

from datetime import datetime

import pytest

from spar.cli.blocks import CELL, UNCUT, Branch, Fields, Table, harmless, local, plain, styled, table, took, zoned
from spar.cli.screen import draw
from spar.data.text import printable

#: Escape sequences, C1 controls, marks that turn the direction, markup of rich, lone surrogates, an emoji's name.
HOSTILE = "\x1b[31mred\x1b]0;title\x07 \x9b2J \u202egnp.exe\u2066 [red]x[/] \ud800 :smile: \u2028 \x00 \u200b end"
#: Signs of it that may reach no terminal.
EVIL = "\x1b\x07\x9b\u202e\u2066\u2028\x00\u200b"


def on(monkeypatch: pytest.MonkeyPatch, columns: int, *, colour: bool = False) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.delenv("NO_COLOR", raising=False)
    if not colour:
        monkeypatch.setenv("NO_COLOR", "1")


def blocks(text: str) -> list[Table | Fields | Branch]:
    return [
        table(("a", ">b"), [(text, "1"), ("x", text)]),
        Fields(text, (("label", text),)),
        Branch(text, (Branch(text, took="1 s", bar=(0.1, 0.2, 0.5)),), took="2 s", bar=(0.0, 0.0, 1.0)),
    ]


def test_columns_stand_under_their_heads_and_numbers_to_the_right() -> None:
    shown = plain(table((">seq", "kind", "text"), [("1", "user", "hello"), ("12", "end", "two\nlines")]))

    assert shown.split("\n") == ["seq  kind  text", "  1  user  hello", " 12  end   two lines"]


def test_times_are_local_and_their_zone_is_named() -> None:
    at = "2026-11-22T07:28:44.791333Z"

    assert local(at) == datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    assert zoned("started") == f"started ({datetime.now().astimezone().tzname()})"
    assert local(None) == ""
    assert [took(0.00034), took(0.0035), took(12.01)] == ["340 µs", "3.5 ms", "12.01 s"]


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
@pytest.mark.parametrize("kind", range(3))
def test_hostile_text_is_harmless_wherever_it_is_drawn(
    monkeypatch: pytest.MonkeyPatch, columns: int, kind: int
) -> None:
    on(monkeypatch, columns)
    block = blocks(HOSTILE)[kind]

    for shown in (draw([block]), plain(block)):
        assert not set(EVIL) & set(shown)
        assert "[red]x[/]" in shown.replace("\n", "").replace(" ", "").replace("│", "") or columns < 200
        assert "😄" not in shown


def test_ordinary_writing_of_any_language_is_shown_as_it_is() -> None:
    for text in ("naïve café", "שלום", "می‌خواهم", "日本語", "👩‍👩‍👧 ❤️", "½ → ✓"):
        assert printable(text) == text


@pytest.mark.parametrize("columns", [20, 40, 80])
@pytest.mark.parametrize("kind", range(3))
def test_a_word_of_a_megabyte_is_shortened_visibly_and_no_line_is_wider_than_the_screen(
    monkeypatch: pytest.MonkeyPatch, columns: int, kind: int
) -> None:
    on(monkeypatch, columns)
    block = blocks("w" * 1_000_000)[kind]
    shown = draw([block])

    assert max(map(len, shown.split("\n"))) <= columns
    assert len(plain(block)) < 5_000
    assert "w…" in plain(block)
    assert "…" in shown


def test_what_has_no_room_is_cut_with_a_sign_and_what_has_is_whole() -> None:
    assert harmless("x" * CELL) == "x" * CELL
    assert harmless("x" * (CELL + 1)) == "x" * (CELL - 1) + "…"
    assert harmless(" " * 10_000 + "x").endswith("…")
    assert plain(table(("a",), [("y" * 5_000,)], room=UNCUT)).endswith("y" * 5_000)


def test_a_screen_of_forty_columns_shows_a_wide_table_as_records(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, 40)
    wide = table(("started (UTC)", "outcome", ">took", "cycle", "calls", "about"),
                 [("2026-11-22 23:26:48", "acted", "229.7 ms", "18ea81b346fa", "✓ 4", "file a.txt")])  # fmt: skip

    shown = draw([wide]).split("\n")

    assert [line.split(None, 1)[0] for line in shown if line] == [
        "started",
        "outcome",
        "took",
        "cycle",
        "calls",
        "about",
    ]
    assert shown[-2].split() == ["about", "file", "a.txt"]


def test_colour_is_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    block = table(("outcome",), [(styled("failed", "bad"),)])

    on(monkeypatch, 80, colour=True)
    assert "\x1b[31mfailed" in draw([block])
    on(monkeypatch, 80)
    assert "\x1b" not in draw([block])
    assert plain(block) == "outcome\nfailed"


def test_a_bar_shows_the_wait_and_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, 80)

    calls = Branch("call", took="4 s", bar=(0.2, 0.4, 0.8)), Branch("tiny", bar=(1.0, 1.0, 1.0))
    slow, tiny = draw([Branch("all", calls)]).split("\n")[1:]
    end = len(tiny)

    assert slow.rstrip().endswith("4 s     ░░░░████████")
    assert tiny.endswith(" █")
    assert len(slow.rstrip()) == end - 4


def test_text_between_tables_is_not_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, 30)
    command = "spar sessions list --after 18ea81b346fa05510004ffe1e7"

    assert command in draw([table(("a",), [("x",)]), command]).split("\n")
