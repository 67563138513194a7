"""Secrets that stand outside of the configuration: read in one way for every part, and shown nowhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from spar.config.load import load, show
from spar.config.tables.secret import LARGEST, with_secrets
from spar.data.scrub import MASK, mask, mask_json, scrub
from spar.errors import ConfigError
from spar.parts.factory import Parts, digests_of, secrets_of

CANARY = 'canary/ä "swordfish"'
CONFIG = """
[[tools]]
use = "notify"
options = { via = [{ use = "webhook", url = "http://127.0.0.1:9/", secret = SECRET }] }
"""


def written(folder: Path, secret: str) -> Path:
    """Write a configuration whose webhook has this secret; returns its path."""
    path = folder / "config.toml"
    path.write_text(CONFIG.replace("SECRET", secret))
    return path


def secret_of(path: Path) -> str:
    """Return the secret that the webhook was made with."""
    (tool,) = Parts(load(path, environ={})).tools()
    (notifier,) = tool._notifiers.values()
    found: bytes = notifier._secret
    return found.decode()


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_secret_is_read_from_a_file_beside_the_configuration(tmp_path: Path, end: str) -> None:
    (tmp_path / "webhook.key").write_bytes((CANARY + end).encode())
    assert secret_of(written(tmp_path, '{ file = "webhook.key" }')) == CANARY


def test_a_secret_is_read_from_the_environment_and_from_a_credential(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK", CANARY)
    assert secret_of(written(tmp_path, '{ env = "HOOK" }')) == CANARY
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    (tmp_path / "hook").write_text(f"{CANARY}2")
    assert secret_of(written(tmp_path, '{ credential = "hook" }')) == f"{CANARY}2"


@pytest.mark.parametrize(
    ("secret", "sentence"),
    [
        ('{ file = "none" }', "cannot be read: No such file or directory"),
        ('{ file = "." }', "cannot be read: Is a directory"),
        ('{ file = "pipe" }', "is no regular file"),
        ('{ file = "empty" }', "is empty"),
        ('{ file = "large" }', f"has more than {LARGEST} bytes"),
        ('{ file = "bytes" }', "is not UTF-8"),
        ('{ file = "" }', "must be text, { file ="),
        ('{ env = "SPAR_TEST_NONE" }', "the environment variable 'SPAR_TEST_NONE' is not set"),
        ('{ credential = "hook" }', "$CREDENTIALS_DIRECTORY is not set; systemd sets it for a unit with Load"),
        ('{ credential = "../hook" }', "is the name of a credential, not a path"),
        ('{ file = "a", env = "B" }', "found a table with file, env"),
        ("{ file = 7 }", "must be text"),
    ],
)
def test_a_secret_that_cannot_be_read_is_refused_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secret: str, sentence: str
) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "large").write_text("x" * (LARGEST + 1))
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(ConfigError) as refused:
        secret_of(written(tmp_path, secret))
    assert sentence in str(refused.value)
    assert str(refused.value).startswith(f"{tmp_path}/config.toml:4: tools[0].options.via[0].secret")


def test_only_under_the_name_of_a_secret_is_a_table_one(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("open sesame")
    given: dict[str, Any] = {
        "path": {"file": "key"},
        "headers": {"X-Api-Key": {"file": "key"}, "accept": "json"},
        "secret": {"kind": "a table of a part's own", "token": {"file": "key"}},
        "password": ["a", {"file": "key"}],
    }

    found = with_secrets(given, ("tools", 0, "options"), tmp_path)

    assert found["path"] == {"file": "key"}
    assert found["headers"] == {"X-Api-Key": "open sesame", "accept": "json"}
    assert found["secret"] == {"kind": "a table of a part's own", "token": "open sesame"}
    assert found["password"] == ["a", {"file": "key"}]
    assert given["headers"]["X-Api-Key"] == {"file": "key"}


def test_a_known_secret_is_shown_in_none_of_its_forms(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(CANARY)
    loaded = load(written(tmp_path, '{ file = "key" }'), environ={})
    assert mask(f"it is {CANARY}") == f"it is {CANARY}"  # nobody knows it yet
    Parts(loaded).tools()

    quoted = CANARY.replace('"', '\\"')
    for text in (CANARY, quoted, "canary%2F%C3%A4%20%22swordfish%22", "Y2FuYXJ5L8OkICJzd29yZGZpc2gi"):
        assert mask(f"it is {text}!") == scrub(f"it is {text}!") == f"it is {MASK}!"
    assert mask_json(f'{{"said": "{quoted}"}}') == f'{{"said": "{MASK}"}}'
    assert show(loaded).count("swordfish") == 0
    assert 'file = "key"' in show(loaded)  # where it stands is no secret


def test_a_secret_in_the_configuration_itself_is_known_too(tmp_path: Path) -> None:
    loaded = load(written(tmp_path, '"plain swordfish"'), environ={})
    Parts(loaded).tools()
    assert mask("the plain swordfish bites") == f"the {MASK} bites"
    assert "swordfish" not in show(loaded) + show(loaded, form="json")


def test_what_stands_elsewhere_is_listed_and_a_new_value_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("the first one")
    loaded = load(written(tmp_path, '{ file = "key" }'), environ={})
    (found,) = secrets_of(loaded)
    assert (found.origin, found.name, found.file(loaded.folder)) == ("file", "key", tmp_path / "key")
    before = digests_of(loaded)
    assert digests_of(loaded) == before
    (tmp_path / "key").write_text("the second one")
    assert digests_of(loaded) != before
    assert "second" not in str(digests_of(loaded))
