"""Programs from a list, with words for arguments, real ones."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from acting.tools.shell import CommandError, CommandTimeoutError, ShellTool
from spar.errors import PermanentError
from spar.protocols import Home
from spar.testing import check_tool
from spar.types import Fault

pytestmark = pytest.mark.process


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(str(tmp_path), str(tmp_path / "workspace"), str(tmp_path / "state"))


@pytest.fixture
def anything(home: Home) -> ShellTool:
    return ShellTool(home=home, programs=["*"])


def script(home: Home, name: str, content: str) -> Path:
    Path(home.workspace).mkdir(exist_ok=True)
    file = Path(home.workspace) / name
    file.write_text(content)
    file.chmod(0o755)
    return file


async def test_a_listed_program_runs_in_the_workspace(home: Home) -> None:
    answer = await ShellTool(home=home, programs=["pwd"])(argv=["pwd"])

    assert answer.pop("duration") > 0
    assert answer == {
        "exit": 0,
        "signal": None,
        "stdout": f"{home.workspace}\n",
        "stderr": "",
        "truncated": False,
        "timed_out": False,
    }


async def test_by_default_only_programs_that_look_are_allowed(home: Home) -> None:
    shell = ShellTool(home=home)

    assert (await shell(argv=["uname"]))["stdout"] == "Linux\n"
    for name in ("sh", "rm", "env", "find", "python3", "/bin/sh", "./uname", "../bin/uname", "*"):
        with pytest.raises(PermanentError, match=r"is not allowed; allowed: cat, date, df, .*, wc"):
            await shell(argv=[name])


async def test_a_program_may_be_named_by_the_path_of_the_listed_one(home: Home) -> None:
    path = shutil.which("true")
    assert path is not None

    for listed in ("true", path):
        assert (await ShellTool(home=home, programs=[listed])(argv=[path]))["exit"] == 0
    with pytest.raises(PermanentError, match="not allowed"):
        await ShellTool(home=home, programs=[path])(argv=["true"])


async def test_a_program_of_that_name_elsewhere_is_another_one(home: Home) -> None:
    fake = script(home, "uname", "#!/bin/sh\necho fake\n")

    for name in (str(fake), "./uname"):
        with pytest.raises(PermanentError, match="not allowed"):
            await ShellTool(home=home)(argv=[name])


async def test_a_program_in_the_workspace_is_not_found_by_its_bare_name(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(home, "uname", "#!/bin/sh\necho fake\n")
    monkeypatch.setenv("PATH", f"{home.workspace}:.::/usr/bin:/bin")

    assert (await ShellTool(home=home)(argv=["uname"]))["stdout"] == "Linux\n"


async def test_a_script_in_the_workspace_runs_when_it_is_listed(home: Home) -> None:
    script(home, "job.sh", '#!/bin/sh\necho "job $1"\n')

    answer = await ShellTool(home=home, programs=["./job.sh"])(argv=["./job.sh", "a b; id"])

    assert answer["stdout"] == "job a b; id\n"


async def test_a_program_that_is_not_there_says_where_it_was_looked_for(anything: ShellTool) -> None:
    with pytest.raises(PermanentError, match=r"program 'no-such-thing' is not there .*; PATH is '"):
        await anything(argv=["no-such-thing"])


async def test_an_empty_list_allows_nothing(home: Home) -> None:
    with pytest.raises(PermanentError, match="allowed: none"):
        await ShellTool(home=home, programs=[])(argv=["true"])


async def test_nothing_is_expanded_or_joined(anything: ShellTool) -> None:
    words = ["$(id)", "`id`", "a b", ";id", "|", "*", "~", "--", "$HOME", "\n"]

    answer = await anything(argv=["printf", "<%s>", *words])

    assert answer["stdout"] == "".join(f"<{word}>" for word in words)


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"argv": "ls -l"}, r"must be a list of words, not one string; did you mean \['ls', '-l'\]"),
        ({"argv": ["ls -l"]}, r"'ls -l' is one word with spaces; 'argv' is a list like \['ls', '-l'\]"),
        ({"argv": []}, "must be a list of words that begins with the program"),
        ({"argv": None}, "must be a list of words"),
        ({"argv": [""]}, "must begin with the program's name"),
        ({"argv": ["ls", 5]}, "must hold text without NUL"),
        ({"argv": ["ls", "a\0b"]}, "must hold text without NUL"),
        ({"argv": ["ls", "\ud800"]}, "no program can be given"),
        ({"argv": ["ls", "x" * 70_000]}, "more than 65536"),
        ({"argv": ["ls"], "timeout": 0}, "'timeout' must be above 0 and at most 60 seconds, found 0"),
        ({"argv": ["ls"], "timeout": 61}, "'timeout' must be above 0"),
        ({"argv": ["ls"], "timeout": float("nan")}, "'timeout' must be above 0"),
        ({"argv": ["ls"], "timeout": "5"}, "'timeout' must be above 0"),
        ({"argv": ["ls"], "timeout": True}, "'timeout' must be above 0"),
        ({"argv": ["ls"], "stdin": 5}, "'stdin' must be text"),
        ({"argv": ["ls"], "stdin": "\ud800"}, "'stdin' has a lone surrogate at 0"),
    ],
)
async def test_wrong_parameters_are_named(home: Home, params: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        await ShellTool(home=home)(**params)


async def test_input_reaches_the_program(home: Home) -> None:
    assert (await ShellTool(home=home)(argv=["cat"], stdin="grüße"))["stdout"] == "grüße"


async def test_a_failing_program_is_a_failed_call_that_says_what_it_said(anything: ShellTool) -> None:
    with pytest.raises(CommandError, match=r"'sh' ended with exit code 3: no luck$") as caught:
        await anything(argv=["sh", "-c", "echo out; echo no luck >&2; exit 3"])

    assert (caught.value.output["exit"], caught.value.output["stdout"]) == (3, "out\n")
    assert Fault.of(caught.value).kind == "error"


async def test_exit_codes_can_be_declared_good(home: Home) -> None:
    shell = ShellTool(home=home, programs=["sh"], ok_exits=[0, 1])

    assert (await shell(argv=["sh", "-c", "exit 1"]))["exit"] == 1
    with pytest.raises(CommandError, match="exit code 2 and said nothing"):
        await shell(argv=["sh", "-c", "exit 2"])


async def test_a_killed_program_says_by_what(anything: ShellTool) -> None:
    with pytest.raises(CommandError, match="was ended by SIGSEGV"):
        await anything(argv=["sh", "-c", "kill -SEGV $$"])


async def test_the_timeout_is_a_timeout_and_tells_what_was_said(anything: ShellTool) -> None:
    with pytest.raises(CommandTimeoutError, match=r"ended with all its processes after 0.3 s: working$") as caught:
        await anything(argv=["sh", "-c", "echo working; sleep 300"], timeout=0.3)

    assert caught.value.output["timed_out"]
    assert Fault.of(caught.value).kind == "timeout"


def test_the_tools_own_deadline_comes_after_the_programs(home: Home) -> None:
    assert ShellTool(home=home, timeout=10).timeout > 10


async def test_cancelling_the_call_ends_the_program(anything: ShellTool, tmp_path: Path) -> None:
    running = asyncio.create_task(anything(argv=["sh", "-c", "echo $$ > pid; exec sleep 300"]))
    file = tmp_path / "workspace/pid"
    for _ in range(1000):
        if file.exists() and file.read_text():
            break
        await asyncio.sleep(0.005)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    with pytest.raises(ProcessLookupError):
        os.kill(int(file.read_text()), 0)


async def test_long_output_is_kept_at_both_ends(anything: ShellTool, home: Home) -> None:
    shell = ShellTool(home=home, programs=["seq"], max_output=1000)

    answer = await shell(argv=["seq", "100000"])

    assert answer["truncated"]
    assert answer["stdout"].startswith("1\n2\n")
    assert answer["stdout"].endswith("99999\n100000\n")
    assert "bytes left out" in answer["stdout"]
    assert len(answer["stdout"]) < 1100


async def test_output_that_is_no_text_becomes_text(anything: ShellTool) -> None:
    assert (await anything(argv=["printf", "\\377\\000"]))["stdout"] == "�\0"


async def test_no_secret_of_the_service_is_in_the_programs_environment(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPAR_TOKEN", "canary-7")
    monkeypatch.setenv("CHOSEN", "seen")
    shell = ShellTool(home=home, programs=["sh"], env=["CHOSEN"])

    answer = await shell(argv=["sh", "-c", "env; cat /proc/$PPID/environ; echo $HOME"])

    assert "canary-7" not in answer["stdout"]
    assert "CHOSEN=seen" in answer["stdout"]
    assert answer["stdout"].endswith(f"{home.workspace}\n")


def test_the_schema_says_what_is_allowed(home: Home) -> None:
    schema = ShellTool(home=home, programs=["git", "make"], timeout=5).schema

    assert schema["properties"]["_tool"] == {"const": "shell"}
    assert "git, make" in schema["description"]
    assert schema["properties"]["timeout"]["maximum"] == 5


async def test_an_interpreter_works_as_usual(home: Home) -> None:
    shell = ShellTool(home=home, programs=[sys.executable])

    answer = await shell(argv=[sys.executable, "-c", "import subprocess; subprocess.run(['echo', 'hi'], check=True)"])

    assert answer["stdout"] == "hi\n"


async def test_it_keeps_the_contract_of_a_tool(home: Home) -> None:
    await check_tool(lambda: ShellTool(home=home), params={"argv": ["date"], "timeout": 5})
