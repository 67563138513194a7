"""The new part of a mail: what people wrote, without quotes and signatures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spar.mail.text import new_text


@pytest.mark.parametrize(("body", "expected"), [
    ("hello\n-- \nAlice\nExample Ltd", "hello"),
    ("hello\n--\nAlice", "hello"),
    ("yes\n\nOn Mon, 1 Jan 2026 at 10:00, Bob\n<bob@x.org> wrote:\n> no\n>> maybe", "yes"),
    ("ja\n\nAm 1.1.2026 um 10:00 schrieb Bob:\n> nein", "ja"),
    ("> one?\nfirst\n> two?\nsecond", "first\nsecond"),
    ("top\n\n-----Original Message-----\nFrom: x\n/stop", "top"),
    ("top\n\n________________________________\nFrom: Bob\nSent: Monday\nTo: me\nold", "top"),
    ("top\n\nFrom: Bob\nDate: Monday\nSubject: x\nold", "top"),
    ("From: here to there\nis the title", "From: here to there\nis the title"),
    ("a -- b\n--- rule", "a -- b\n--- rule"),
    ("hello\n-- \nAlice\n> quoted below\nand more", "hello\n\nand more"),
    ("he wrote:\nnothing", "he wrote:\nnothing"),
])  # fmt: skip
def test_only_the_new_part_is_left(body: str, expected: str) -> None:
    assert [line for line in new_text(body).text.split("\n") if line] == [line for line in expected.split("\n") if line]


def test_what_was_left_out_is_counted() -> None:
    found = new_text("yes\n\nBob wrote:\n> a\n> b\n-- \nAlice")
    assert (found.text, found.quoted) == ("yes", 3)


@given(st.text(alphabet=st.sampled_from(list("> -/\nab:_F")), max_size=200))
def test_no_quoted_line_is_ever_left(body: str) -> None:
    assert not any(line.startswith(">") for line in new_text(body).text.split("\n"))
