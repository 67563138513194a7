"""Secrets, found by name, by shape and by value."""

import base64
import json

import pytest

from spar.data.scrub import is_secret_name, know, mask, mask_json, masked, scrub
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


@pytest.fixture
def hidden() -> None:  # what is known ends with each test
    know("p/ss wörd!", "a", "")


def test_a_hidden_value_is_found_plain_and_encoded(hidden: None) -> None:
    encoded = base64.b64encode("p/ss wörd!".encode()).decode().rstrip("=")

    assert scrub(f"a p/ss wörd! b p%2Fss%20w%C3%B6rd%21 c {encoded}") == "a *** b *** c ***"


def test_a_hidden_value_that_is_a_common_word_is_ignored(hidden: None) -> None:
    assert scrub("banana") == "banana"


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
        "-----BEGIN PRIVATE KEY-----" * 12_000,
        "-----BEGIN PRIVATE KEY-----" + "-a" * 160_000,
        "-----BEGIN " * 30_000,
        "authorization: " * 20_000,
        "authorization" + " " * 300_000,
        "sk-" * 100_000,
        "sk-a_" * 60_000,
        "SG." + "a." * 150_000,
        "AIza" * 80_000,
    ],
    ids=lambda text: text[:9],
)
def test_no_text_makes_it_hang(text: str) -> None:
    with hang_guard(30):  # a tenth of a second, and minutes by a pattern whose work is the square of the length
        scrub(text)
        mask(text)
        mask_json(text)


#: One of each known kind, made up.
KNOWN = (
    "sk-proj-4f9a8b7c6d5e4f3a2b1c",
    "sk-ant-api03-abcdefghijkl",
    "sk_live_51H8abcdefghij",
    "pk-" + "a" * 40,
    "ghp_abcdefghijklmnopqrstuvwx1234",
    "github_pat_11ABCDEFG0abcdefghij",
    "glpat-abcdefghij0123456789",
    "xoxb-123456789012-abcdef",
    "AKIAABCDEFGHIJKLMNOP",
    "spar_" + "aB3_-" * 8 + "xyz",
    "AIza" + "a1" * 17 + "b",
    "npm_" + "a1" * 18,
    "hf_" + "a1" * 17,
    "eyJhbGciOi.eyJzdWIiOi.SflKxwRJ",
)


@pytest.mark.parametrize("secret", KNOWN, ids=lambda text: text[:7])
def test_known_kinds_of_secrets_are_masked_in_what_a_person_typed(secret: str) -> None:
    assert mask(f"please keep {secret}, it is new") == "please keep ***, it is new"
    assert secret not in scrub(f"please keep {secret}, it is new")
    assert mask(mask(secret)) == mask(secret)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer ***"),
        ("authorization: Basic dXNlcjpwYXNz", "authorization: Basic ***"),
        ("curl -H 'Proxy-Authorization: token abcd' x", "curl -H 'Proxy-Authorization: token ***' x"),
        ("use bearer a1b2c3d4e5 then", "use bearer *** then"),
        (
            "a\n-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMIIE\n-----END RSA PRIVATE KEY-----\nb",
            "a\n***\nb",
        ),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl", "***"),
    ],
)
def test_headers_and_private_keys_are_masked(text: str, expected: str) -> None:
    assert mask(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "the password is a secret", "a basic introduction to sk-learn-contrib", "bearer of good news to everybody",
        "token = value", "ghp is short", "sk-", "authorization: no", "-----BEGIN CERTIFICATE-----\nMIIE",
        "https://user:hunter2@host/",
    ],
)  # fmt: skip
def test_what_is_no_known_kind_is_kept_as_it_was_said(text: str) -> None:
    assert mask(text) == text


@pytest.mark.parametrize(
    "value",
    [
        {"Authorization": "Bearer abc.def-123", "authorization": None},
        {"authorization": True, "proxy-authorization": 12345, "n": [1.5, False]},
        {"text": '-----BEGIN PRIVATE KEY-----\nMIIE "quoted" \\ back\n-----END PRIVATE KEY-----'},
        {"text": '{"Authorization": "Bearer abcdefgh1"}', "deep": [{"key": KNOWN[0]}]},
        {KNOWN[0]: KNOWN[1]},
    ],
)
@pytest.mark.parametrize("ascii", [True, False])
def test_json_stays_json(value: object, ascii: bool) -> None:
    found = json.loads(mask_json(json.dumps(value, ensure_ascii=ascii)))
    assert type(found) is type(value)
    text = json.dumps(found)
    assert not any(secret in text for secret in (*KNOWN, "abc.def", "MIIE", "abcdefgh1"))


@pytest.mark.parametrize("secret", KNOWN, ids=lambda text: text[:7])
@pytest.mark.parametrize("before", ["\n", "\t", "\r", "\b", "\f", "\\", '"', "\u200b", "€", " ", "a\\\n"])
def test_a_secret_behind_an_escape_of_json_is_masked(before: str, secret: str) -> None:
    text = json.dumps({"text": f"keep{before}{secret} and go"})

    assert json.loads(mask_json(text)) == {"text": f"keep{before}*** and go"}
    assert json.loads(mask_json(json.dumps({"text": text}))) == {"text": mask_json(text)}


@pytest.mark.parametrize("rest", ["pm_" + "a1" * 18, "k-a1b2c3d4e5f6", "earer a1b2c3d4e5", "k-" + "a" * 40])
@pytest.mark.parametrize("escaped", ["\n", "\r", "\b", "a\\\n"])
def test_an_escape_of_json_is_no_part_of_a_secret(escaped: str, rest: str) -> None:
    value = {"text": f"{escaped}{rest}"}

    assert json.loads(mask_json(json.dumps(value))) == value


def test_a_secret_within_what_only_looks_like_one_behind_an_escape_is_masked() -> None:
    assert json.loads(mask_json(json.dumps("\rk-sk-a1b2c3d4e5f6"))) == "\rk-***"


def test_plain_data_is_masked_text_by_text() -> None:
    assert masked({"a": [KNOWN[0], 1, None, {"b": "x " + KNOWN[4]}]}) == {"a": ["***", 1, None, {"b": "x ***"}]}
