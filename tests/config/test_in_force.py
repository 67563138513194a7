"""Configurations that were in force: what is kept of them, how two differ, and what explains the past."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spar.config.in_force import differing, digest_of, explaining, readable
from spar.config.load import load
from spar.config.tables.settings import Loaded
from spar.errors import ConfigError

TEXT = """
[agent]
loop_interval = 2
[service]
port = {port}
[[rules]]
name = "keep"
when = {{ kind = "{kind}" }}
answer = "kept"
[[approval.rules]]
tool = "shell"
decision = "{decision}"
[[notifiers]]
use = "webhook"
options = {{ url = "https://example.org/hook", secret = "s3cr3t-of-the-hook" }}
"""


def loaded(folder: Path, port: int = 1, kind: str = "message", decision: str = "ask") -> Loaded:
    (folder / "config.toml").write_text(TEXT.format(port=port, kind=kind, decision=decision))
    return load(folder / "config.toml", environ={})


def test_what_decides_is_kept_without_secrets_and_what_does_not_is_left_out(tmp_path: Path) -> None:
    values = readable(loaded(tmp_path))
    assert values["agent"]["loop_interval"] == 2
    assert [rule["name"] for rule in values["rules"]] == ["keep"]
    assert "s3cr3t" not in str(values)
    assert values == readable(loaded(tmp_path, port=2))
    assert digest_of(values) == digest_of(readable(loaded(tmp_path, port=2)))


@pytest.mark.parametrize(
    ("given", "keys"), [({}, []), ({"kind": "log.*"}, ["rules[keep]"]), ({"decision": "deny"}, ["approval.rules[0]"])]
)
def test_two_differ_in_keys_and_named_tables(given: dict[str, Any], keys: list[str], tmp_path: Path) -> None:
    then, now = readable(loaded(tmp_path)), readable(loaded(tmp_path, **given))
    assert differing(then, now) == keys
    assert (digest_of(then) == digest_of(now)) is not bool(keys)


def test_the_past_is_explained_by_its_rules_and_its_policy(tmp_path: Path) -> None:
    then, now = readable(loaded(tmp_path)), loaded(tmp_path, kind="log.*", decision="deny").settings
    settings = explaining(now, then)
    assert settings.rules == loaded(tmp_path).settings.rules
    assert settings.approval == loaded(tmp_path).settings.approval
    assert settings.agent == now.agent
    with pytest.raises(ConfigError):
        explaining(now, {"rules": [], "approval": {"untrusted": "of another version"}})
