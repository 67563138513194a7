from __future__ import annotations

import fnmatch
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spar.data.patterns import Pattern, glob
from tests.effort import hang_guard

SIGNS = st.text(st.sampled_from("ab*?[]!-^\\.\n é\ud800"), max_size=8)


@given(SIGNS, SIGNS)
def test_a_glob_matches_as_the_shell_patterns_of_the_standard_library_do(pattern: str, text: str) -> None:
    assert glob(pattern)(text) == fnmatch.fnmatchcase(text, pattern)


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"restart (?P<unit>\w+)( on (?P<host>\w+))?", "please restart nginx now", {"unit": "nginx"}),
        (r"(?i)STRASSE (?P<n>\d+)", "strasse ٣", {"n": "٣"}),
        (r"^(?P<name>\w+)$", "Größe", {"name": "Größe"}),
        (r"a\sb", "a\u2003b", {}),
        (r"^[\w-]+$", "é-1", {}),
        (r"^[^\s,]+$", "a\xa0b", None),
        (r"^(?P<x>[^a]*)done$", "done\n", {"x": ""}),
        (r"done\Z", "done\n", None),
        (r"\Adone\Z", "done", {}),
        (r"(?m)^b$", "a\nb\nc", {}),
        (r"[]a]\u00e9\x41", "]éA", {}),
        (r"x.y", "x\ud800y", {}),
        (r"x(?P<odd>.)y", "x\ud800y", {"odd": "\ud800"}),
    ],
)
def test_a_pattern_means_what_it_means_in_python(pattern: str, text: str, found: dict[str, str] | None) -> None:
    match = re.search(pattern, text)

    assert (None if match is None else {k: v for k, v in match.groupdict().items() if v is not None}) == found
    assert Pattern(pattern).search(text) == found


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "missing )"),
        ("a(?=b)", "(?="),
        ("(?<!no )error", "(?<"),
        (r"(a)\1", r"\1"),
        ("(?P<a>x)(?P=a)", "(?P"),
        ("a++", "++"),
        ("(?>a)b", "(?>"),
        ("(?x) a", "(?x"),
        (r"\bÜbung", "no word boundary"),
        ("a{2000}", "repetition size"),
    ],
)
def test_a_pattern_that_cannot_be_matched_in_linear_time_is_refused_with_the_reason(pattern: str, reason: str) -> None:
    with pytest.raises(ValueError, match="RE2") as caught:
        Pattern(pattern)

    assert reason in str(caught.value)


@pytest.mark.parametrize("pattern", [r"^(\w+\s?)+$", r"^(\w+\s?)*$", "(a|aa)+$", "(a*)*b", "([a-z]+)+[A-Z]"])
def test_no_text_makes_an_unlucky_pattern_hang(pattern: str) -> None:
    unlucky = Pattern(pattern)

    with hang_guard():
        assert unlucky.search("a" * 10_000 + "!") is None


@pytest.mark.parametrize("pattern", ["*a" * 400 + "*b*", "*a?" * 400 + "b", "*[ab]" * 400 + "c"])
def test_no_text_makes_an_unlucky_glob_hang(pattern: str) -> None:
    with hang_guard():
        assert not glob(pattern)("a" * 100_000)
