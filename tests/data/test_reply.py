"""What of an answer people are told, and when two texts say the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from spar.data.reply import TOKEN, Reply, failure, fallback, is_silent, may_become_silent, reply_of
from spar.data.text import comparable, repeats
from spar.types import Call, CallResult, Fault
from tests.effort import effort, growth


def is_same(before: str, text: str) -> bool:
    """Return whether a text says nothing that the text before did not say, as its callers ask."""
    return repeats(comparable(before), comparable(text))


@pytest.mark.parametrize(
    ("output", "reply"),
    [
        ("hello", Reply("hello")),
        ("NO_REPLY", Reply(None, True)),
        ("  no_reply\n", Reply(None, True)),
        ("NO_REPLY NO_REPLY", Reply(None, True)),
        ("NO_REPLY, thank you", Reply("NO_REPLY, thank you")),
        ("I say NO_REPLY", Reply("I say NO_REPLY")),
        ("", Reply()),
        ("  \n", Reply()),
        (None, Reply()),
        ({"silent": True, "text": "nobody hears this"}, Reply(None, True)),
        ({"silent": False, "text": "hello"}, Reply("hello")),
        ({"silent": "yes", "text": "hello"}, Reply("hello")),
        ({"reply": "NO_REPLY"}, Reply(None, True)),
        ({"sum": 3}, Reply('{"sum": 3}')),
        ([1, "é"], Reply('[1, "é"]')),
        (0, Reply("0")),
        (False, Reply("false")),
    ],
)
def test_silence_is_chosen_and_is_not_having_nothing_to_say(output: Any, reply: Reply) -> None:
    assert reply_of(output) == reply


@given(some.text(max_size=30))
def test_what_turns_out_to_be_silence_was_never_shown_on_the_way(text: str) -> None:
    for whole in (TOKEN, TOKEN.lower(), f" {TOKEN}\n{TOKEN} ", text):
        if is_silent(whole):
            assert all(may_become_silent(whole[:length]) for length in range(len(whole) + 1))


@pytest.mark.parametrize("text", ["NO_REPLX", "Hello", "NO REPLY", "NO_REPLY.", "N.", "NO_REPLYS"])
def test_what_cannot_become_silence_any_more_is_shown(text: str) -> None:
    assert not may_become_silent(text)


@pytest.mark.parametrize(
    ("before", "text", "same"),
    [
        ("The build is green.", "the  build is GREEN. 🎉", True),
        ("The build is green", "The build is green!", True),
        ("The build is green.", "The build is green. Actually it failed.", False),
        ("The build is green.", "All is well: the build is green.", True),
        ("The build is green.", "I have looked at everything there was and thought long: the build is green.", False),
        ("All is well: the build is green.", "The build is green.", True),
        ("Done.", "Done.", False),  # too short to tell
        ("The build is green.", "The build is red.", False),
    ],
)
def test_two_texts_that_differ_in_dress_only_say_the_same(before: str, text: str, same: bool) -> None:
    assert is_same(before, text) is same


def test_calls_that_failed_yield_one_sentence_and_others_none() -> None:
    fine = CallResult(Call("a"), "ok")
    failed = CallResult(Call("http"), "failed", fault=Fault("io", "no route to host"))
    late = CallResult(Call("shell"), "timeout")

    assert fallback([fine, CallResult(Call("b"), "skipped", "branch")]) is None
    assert fallback([fine, failed]) == "http did not work: no route to host"
    assert fallback([late, failed]) == "shell did not work: timeout (1 more calls did not end well)"
    assert fallback([CallResult(Call("c"), "failed", "handled")]) is None


@given(some.text(max_size=60), some.text(max_size=5))
def test_dress_is_taken_away_whatever_the_text_is(text: str, sign: str) -> None:
    plain = comparable(text)

    assert comparable(text.upper().lower()) == comparable(plain.upper().lower())
    assert comparable(f" {text}\n🎉^`") == plain
    assert is_same(text, f"{text} 🎉") is (len(plain) >= 10)


def test_to_compare_texts_takes_the_same_few_steps_however_long_they_are() -> None:
    def compared(words: int) -> None:
        assert not is_same("y " + "wörd " * words, "x " + "wörd 🎉 " * words)

    assert effort(lambda: compared(20_000)) <= effort(lambda: compared(200)) + 20
    assert growth(lambda times: [compared(100) for _ in range(times)], 20) < 2.2


def test_a_very_long_text_is_the_same_as_an_equal_one_only() -> None:
    text = "word " * 10_000

    assert is_same(text, f"{text.upper()} 🎉")
    assert not is_same(text, f"{text} and more")


def test_a_failure_is_one_sentence_of_bounded_length_without_secrets() -> None:
    assert failure("it broke:\n  token=abcdef123456 was refused") == (
        "I could not finish this: it broke: token=*** was refused"
    )
    assert failure("") == "I could not finish this: nobody knows why"
    assert len(failure("x" * 10_000)) < 600
