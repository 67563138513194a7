"""Secrets, found by name, by shape and by value."""

import base64

import pytest

from spar.scrub import Scrubber, is_secret_name, scrub
from tests.effort import hang_guard


@pytest.mark.parametrize(
    "name",
    [
        "token",
        "API_KEY",
        "api-key",
        "apiKey",
        "accessToken",
        "smtp_password",
        "Authorization",
        "client_secret",
        "cookie",
    ],
)
def test_a_name_says_that_its_value_is_secret(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["max_tokens", "token_count", "keyboard", "author", "key", "path", "secretary", ""])
def test_other_names_do_not(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer ***"),
        ("https://user:hunter2@host/x?a=1", "https://user:***@host/x?a=1"),
        ("https://host/x?key=abc&b=2", "https://host/x?key=***&b=2"),
        ("https://host/x?b=2&api_key=abc", "https://host/x?b=2&api_key=***"),
        ("password = hunter2, next", "password = ***, next"),
        ('{"access_token": "abc"}', '{"access_token": "***"}'),
        ("use sk-abcdefgh1234 now", "use *** now"),
        ("ghp_abcdefghijklmnopqrstuvwx", "***"),
        ("AKIAABCDEFGHIJKLMNOP", "***"),
        ("eyJhbGciOi.eyJzdWIiOi.SflKxwRJ", "***"),
    ],
)
def test_what_is_shaped_like_a_secret_is_replaced(text: str, expected: str) -> None:
    assert scrub(text) == expected


@pytest.mark.parametrize(
    "text", ["the key to success", "max_tokens=5", "a token of thanks", "task-list", "http://host:80/x"]
)
def test_ordinary_text_stays(text: str) -> None:
    assert scrub(text) == text


def test_a_hidden_value_is_found_plain_and_encoded() -> None:
    scrubber = Scrubber("p/ss wörd!")
    encoded = base64.b64encode("p/ss wörd!".encode()).decode().rstrip("=")

    assert scrubber(f"a p/ss wörd! b p%2Fss%20w%C3%B6rd%21 c {encoded}") == "a *** b *** c ***"


def test_a_hidden_value_that_is_a_common_word_is_ignored() -> None:
    assert Scrubber("a", "")("banana") == "banana"


@pytest.mark.parametrize(
    "text",
    [
        "token" * 80_000,
        "a_" * 160_000 + "token=",
        "://" * 100_000,
        "eyJ" * 100_000,
        "eyJabcdef-" * 32_000,
        "bearer " * 40_000,
        "a-" * 160_000,
        "x://" + "a" * 320_000,
    ],
    ids=lambda text: text[:9],
)
def test_no_text_makes_it_hang(text: str) -> None:
    with hang_guard(30):  # a tenth of a second, and minutes by a pattern whose work is the square of the length
        scrub(text)
