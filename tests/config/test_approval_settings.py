"""Approvals as they are configured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spar.agent.agent import build_agent
from spar.config.in_force import differing, digest_of, explaining, readable
from spar.config.load import load, reloads
from spar.config.tables.settings import Loaded
from spar.errors import ConfigError
from spar.parts.factory import BUILT_FROM

BASE = """
[[tools]]
use = "note"

[memory]
use = "sqlite"
url = "sqlite://:memory:"

[approval]
hold = "5s"
expires = "2m"
max_pending = 3

[[approval.rules]]
tool = "note"
params = { title = "secret*", tags = ["a", "*"] }
decision = "deny"

[[approval.rules]]
effect = ["once", "idempotent"]
trust = "untrusted"
session = "web-*"
decision = "ask"
"""


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "config.toml"
        path.write_text(text)
        return path

    return write


def test_the_table_reaches_the_act_module(written: Callable[[str], Path]) -> None:
    loaded = load(written(BASE), environ={})
    act = build_agent(loaded).setup.modules["act"].part

    assert act.approvals is not None
    assert loaded.settings.approval.hold == 5.0
    assert loaded.settings.approval.expires == 120.0
    assert [rule.decision for rule in loaded.settings.approval.rules] == ["deny", "ask"]


def test_a_change_of_it_is_applied_between_two_cycles() -> None:
    assert reloads("approval.rules") == "live"
    assert "approval" in BUILT_FROM["act"]


@pytest.mark.parametrize(
    ("old", "new", "sentences"),
    [
        ('decision = "deny"', 'decision = "maybe"', ("approval.rules[0].decision", "'auto', 'ask' or 'deny'")),
        ('session = "web-*"', 'sesion = "web-*"', ("approval.rules[1].sesion",)),
        ('effect = ["once", "idempotent"]', 'effect = "sometimes"', ("approval.rules[1].effect",)),
        ("max_pending = 3", "max_pending = 0", ("approval.max_pending",)),
        ('expires = "2m"', "expires = 0", ("approval.expires",)),
    ],
)
def test_what_is_wrong_is_named_with_its_line(
    old: str, new: str, sentences: tuple[str, ...], written: Callable[[str], Path]
) -> None:
    assert old in BASE

    with pytest.raises(ConfigError) as caught:
        load(written(BASE.replace(old, new)), environ={})

    line = BASE.replace(old, new).splitlines().index(new) + 1
    assert f"config.toml:{line}" in str(caught.value)
    assert all(sentence in str(caught.value) for sentence in sentences), str(caught.value)


def test_a_pattern_that_is_none_is_found_when_the_agent_is_built(written: Callable[[str], Path]) -> None:
    with pytest.raises(ConfigError, match=r"approval.rules\[0\].tool is .* expected a pattern: text of at most 1000"):
        build_agent(load(written(BASE.replace('tool = "note"\nparams', f'tool = "{"x" * 2000}"\nparams')), environ={}))


# -- configurations that were in force: what is kept of them, how two differ, and what explains the past


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
