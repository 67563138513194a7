"""Profiles of `spar init`: selections of the shipped configuration, each of which can be used as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from spar.agent.agent import build_agent
from spar.cli.commands.config import PROFILES
from spar.cli.templates import template
from spar.config.lines import PACKAGED
from spar.config.load import load
from tests.docs import profiles
from tests.docs.profiles import SELECTIONS, Selection, profile_text

WHOLE = PACKAGED.read_text()


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_is_a_configuration_of_which_every_part_can_be_built(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(template("profile", f"{name}.toml"))

    loaded = load(tmp_path / "config.toml", environ={})
    agent = build_agent(loaded)

    assert agent.name == "main"
    assert loaded.settings.plan.use == ("llm" if name == "assistant" else "rules")
    assert {sensor.label for sensor in loaded.settings.sensors} >= {"messages"}


@pytest.mark.parametrize("name", PROFILES)
def test_each_comment_of_a_profile_is_one_of_the_shipped_file(name: str) -> None:
    """So nothing can drift apart: but for its first two lines a profile has no word of its own."""
    comments = {line.partition("#")[2].strip() for line in WHOLE.replace("\n# ", "\n").splitlines()}
    comments |= {line.partition("#")[2].strip() for line in WHOLE.splitlines()}

    lines = profile_text(name, WHOLE).splitlines()

    assert lines[0].startswith(f'# spar, profile "{name}": {PROFILES[name]}.')
    assert [line for line in lines[2:] if "#" in line and line.partition("#")[2].strip() not in comments] == []


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_is_what_the_shipped_file_says_now(name: str) -> None:
    assert template("profile", f"{name}.toml") == profile_text(name, WHOLE), "run `make docs`"


def test_blocks_are_the_whole_file() -> None:
    assert "".join(text for _, text in profiles._blocks(WHOLE)) == WHOLE


@pytest.mark.parametrize(
    "wrong", [Selection(("agent", "sensors.gone")), Selection(("agent",), {("agent", "gone"): "1"})]
)
def test_a_profile_that_names_what_is_not_there_is_found(wrong: Selection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SELECTIONS, "wrong", wrong)

    with pytest.raises(LookupError, match="gone"):
        profile_text("wrong", WHOLE)
