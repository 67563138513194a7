"""Programs of skills, real ones, and the variables that they alone are given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acting.tools.shell import CommandError, ShellTool, without
from spar.errors import ConfigError, PermanentError
from spar.protocols import Home

pytestmark = pytest.mark.process
SECRET = "s3cr3t-value-of-the-key"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEATHER_KEY", SECRET)


def skill(home: Home, name: str, script: str, environment: str = "WEATHER_KEY") -> str:
    """Write a skill with one program; returns the program's path."""
    own = Path(home.config, "skills", name)
    own.mkdir(parents=True)
    (own / "SKILL.md").write_text(f"---\nname: {name}\ndescription: d\nenvironment: [{environment}]\n---\nbody\n")
    return program(own / "run.sh", script)


def program(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def linked(path: Path, to: str) -> Path:
    path.symlink_to(to)
    return path


def shell(home: Home, **options: Any) -> ShellTool:
    return ShellTool(home=home, skills="skills", **options)


async def test_a_skills_program_is_given_its_variables_and_its_words_are_without_their_values(home: Home) -> None:
    path = skill(home, "weather", 'test "$WEATHER_KEY" && echo "key is $WEATHER_KEY in $1"; echo "$WEATHER_KEY" >&2')
    answer = await shell(home)(argv=[path, "Graz"])

    assert answer["stdout"] == "key is [WEATHER_KEY] in Graz\n"
    assert answer["stderr"] == "[WEATHER_KEY]\n"
    assert SECRET not in json.dumps(answer)


async def test_what_a_failing_program_says_is_without_them_too(home: Home) -> None:
    path = skill(home, "weather", 'echo "bad key $WEATHER_KEY" >&2; exit 3')
    with pytest.raises(CommandError) as caught:
        await shell(home)(argv=[path])

    assert "bad key [WEATHER_KEY]" in str(caught.value)
    assert SECRET not in json.dumps([str(caught.value), caught.value.output])


async def test_no_other_program_is_given_them(home: Home) -> None:
    skill(home, "weather", "env")
    other = skill(home, "other", "env", environment="")
    outside = program(Path(home.workspace, "run.sh"), "env")
    link = linked(Path(home.config, "skills", "weather", "link.sh"), outside)
    tool = shell(home, programs=["*"])

    for argv in ([other], [outside], [str(link)], ["sh", "-c", "env"], ["env"]):
        assert "WEATHER_KEY" not in (await tool(argv=argv))["stdout"]


async def test_an_approval_is_bound_to_the_names_of_its_variables_and_to_no_value(home: Home) -> None:
    path = skill(home, "weather", "true")
    bound = shell(home).binds({"argv": [path]})

    assert bound["program"] == path
    assert "WEATHER_KEY" in bound["variables"]
    assert SECRET not in json.dumps(bound)


async def test_a_program_of_a_skill_that_is_not_available_does_not_run(home: Home) -> None:
    unset = skill(home, "unset", "true", environment="NOBODY_SETS_THIS")
    broken = skill(home, "broken", "true", environment="no name")
    tool = shell(home)

    with pytest.raises(PermanentError, match="'unset' is not available: its environment is missing: NOBODY_SETS_THIS"):
        await tool(argv=[unset])
    with pytest.raises(PermanentError, match="'broken' is not available: its environment names"):
        await tool(argv=[broken])


async def test_programs_of_skills_do_not_run_where_nobody_says_so(home: Home) -> None:
    path = skill(home, "weather", "true")
    with pytest.raises(PermanentError, match="is not allowed"):
        await ShellTool(home=home)(argv=[path])


@pytest.mark.parametrize(
    ("folder", "why"),
    [
        ("nowhere", "no folder 'nowhere'"),
        ("workspace/skills", "lie where tools may write"),
        (".", "lie where tools may write"),
        ("link", "lie where tools may write"),
        ("state/skills", "skills 'state/skills' and the service's state .* must not lie in one another"),
    ],
)
def test_a_folder_that_tools_may_write_in_is_refused(home: Home, folder: str, why: str) -> None:
    Path(home.workspace, "skills").mkdir()
    Path(home.state, "skills").mkdir(parents=True)
    Path(home.config, "link").symlink_to(Path(home.workspace, "skills"))
    with pytest.raises(ConfigError, match=why) as caught:
        ShellTool(home=home, skills=folder)
    assert caught.value.path == ("skills",)


def test_longer_values_are_replaced_first_and_short_ones_are_no_secrets() -> None:
    assert without("abcdef abcd 1", {"A": "abcd", "B": "abcdef", "C": "1"}) == "[B] [A] 1"
