"""Approvals as they are configured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spar.agent.agent import build_agent
from spar.config.factory import BUILT_FROM
from spar.config.load import load, reloads
from spar.errors import ConfigError

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
    act = build_agent(loaded).modules["act"].part

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
    with pytest.raises(ConfigError, match=r"approval rule 1: tool is .* expected a pattern: text of at most 1000"):
        build_agent(load(written(BASE.replace('tool = "note"\nparams', f'tool = "{"x" * 2000}"\nparams')), environ={}))
