"""Profiles of `spar init`: selections of the shipped configuration, each of which can be used as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from spar.agent.agent import build_agent
from spar.cli.commands.setup import profiles
from spar.cli.commands.setup.profiles import PROFILES, Profile, profile_text
from spar.config.lines import PACKAGED
from spar.config.load import load

WHOLE = PACKAGED.read_text()


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_is_a_configuration_of_which_every_part_can_be_built(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(profile_text(name, WHOLE))

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

    assert lines[0].startswith(f'# spar, profile "{name}": {PROFILES[name].summary}.')
    assert [line for line in lines[2:] if "#" in line and line.partition("#")[2].strip() not in comments] == []


def test_blocks_are_the_whole_file() -> None:
    assert "".join(text for _, text in profiles._blocks(WHOLE)) == WHOLE


@pytest.mark.parametrize(
    "wrong", [Profile("x", ("agent", "sensors.gone")), Profile("x", ("agent",), {("agent", "gone"): "1"})]
)
def test_a_profile_that_names_what_is_not_there_is_found(wrong: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROFILES, "wrong", wrong)

    with pytest.raises(LookupError, match="gone"):
        profile_text("wrong", WHOLE)
