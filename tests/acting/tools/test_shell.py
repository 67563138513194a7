"""Programs from a list, with words for arguments, real ones."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from acting import Executor
from acting.process.detect import offered
from acting.tooling.context import ToolContext
from acting.tools.shell import CommandError, CommandTimeoutError, ShellTool
from spar.errors import ConfigError, PermanentError
from spar.protocols import Home
from spar.testing import check_tool
from spar.types import Call, Fault
from tests.waiting import cancelled

pytestmark = pytest.mark.process


@pytest.fixture
def anything(home: Home) -> ShellTool:
    return ShellTool(home=home, programs=["*"])


def command_lines() -> list[str]:
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(file.read_text(errors="replace"))
        except OSError:
            pass  # it ended meanwhile
    return found


def script(home: Home, name: str, content: str) -> Path:
    Path(home.workspace).mkdir(exist_ok=True)
    file = Path(home.workspace) / name
    file.write_text(content)
    file.chmod(0o755)
    return file


async def test_a_listed_program_runs_in_the_workspace(home: Home) -> None:
    answer = await ShellTool(home=home, programs=["pwd"])(argv=["pwd"])

    assert answer.pop("duration") > 0
    assert answer.pop("sandbox") == offered(shutil.which("bwrap")).level
    assert answer == {
        "exit": 0,
        "signal": None,
        "stdout": f"{home.workspace}\n",
        "stderr": "",
        "truncated": False,
        "timed_out": False,
    }


async def test_only_a_program_of_the_list_that_is_there_runs_and_by_default_those_that_look(home: Home) -> None:
    assert (await ShellTool(home=home)(argv=["uname"]))["stdout"] == "Linux\n"
    looking = ("sh", "rm", "env", "find", "python3", "/bin/sh", "./uname", "../bin/uname", "*")
    for options, names, reason in (
        ({}, looking, r"is not allowed; allowed: cat, date, df, .*, wc"),
        ({"programs": []}, ["true"], "allowed: none"),
        ({"programs": ["*"]}, ["no-such-thing"], r"program 'no-such-thing' is not there .*; PATH is '"),
    ):
        for name in names:
            with pytest.raises(PermanentError, match=reason):
                await ShellTool(home=home, **options)(argv=[name])  # type: ignore[arg-type]


async def test_a_program_may_be_named_by_the_path_of_the_listed_one(home: Home) -> None:
    path = shutil.which("true")
    assert path is not None

    for listed in ("true", path):
        assert (await ShellTool(home=home, programs=[listed])(argv=[path]))["exit"] == 0
    with pytest.raises(PermanentError, match="not allowed"):
        await ShellTool(home=home, programs=[path])(argv=["true"])


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


async def test_a_failing_program_is_a_failed_call_that_says_what_it_said(anything: ShellTool) -> None:
    with pytest.raises(CommandError, match=r"'sh' ended with exit code 3: no luck$") as caught:
        await anything(argv=["sh", "-c", "echo out; echo no luck >&2; exit 3"])

    assert (caught.value.output["exit"], caught.value.output["stdout"]) == (3, "out\n")
    assert Fault.of(caught.value).kind == "error"


async def test_exit_codes_can_be_declared_good_and_a_killed_program_says_by_what(home: Home) -> None:
    shell = ShellTool(home=home, programs=["sh"], ok_exits=[0, 1], sandbox=0)

    assert (await shell(argv=["sh", "-c", "exit 1"]))["exit"] == 1
    for command, reason in (("exit 2", "exit code 2 and said nothing"), ("kill -SEGV $$", "was ended by SIGSEGV")):
        with pytest.raises(CommandError, match=reason):
            await shell(argv=["sh", "-c", command])


async def test_the_timeout_is_a_timeout_and_tells_what_was_said(anything: ShellTool) -> None:
    with pytest.raises(CommandTimeoutError, match=r"ended with all its processes after 0.3 s: working$") as caught:
        await anything(argv=["sh", "-c", "echo working; sleep 300"], timeout=0.3)

    assert caught.value.output["timed_out"]
    assert Fault.of(caught.value).kind == "timeout"


async def test_cancelling_the_call_ends_the_program(anything: ShellTool, tmp_path: Path) -> None:
    name = f"3{time.time_ns()}"  # seconds to sleep by which it is known: in a sandbox its pid is its own
    running = asyncio.create_task(anything(argv=["sh", "-c", f"echo > begun; exec sleep {name}"]))
    for _ in range(4000):
        if (tmp_path / "workspace/begun").exists():
            break
        await asyncio.sleep(0.005)

    await cancelled(running)

    assert [line for line in command_lines() if name in line] == []


async def test_long_output_is_kept_at_both_ends(home: Home) -> None:
    answer = await ShellTool(home=home, programs=["seq"], max_output=1000)(argv=["seq", "100000"])

    assert answer["truncated"]
    assert answer["stdout"].startswith("1\n2\n")
    assert answer["stdout"].endswith("99999\n100000\n")
    assert "bytes left out" in answer["stdout"]
    assert len(answer["stdout"]) < 1100


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


async def test_words_input_and_output_are_those_of_the_program_also_of_scripts_and_interpreters(home: Home) -> None:
    script(home, "job.sh", '#!/bin/sh\necho "job $1"\n')
    python = "import subprocess; subprocess.run(['echo', 'hi'], check=True)"

    for argv, stdin, said in (
        (["cat"], "grüße", "grüße"),
        (["printf", "\\377\\000"], "", "\ufffd\0"),
        (["./job.sh", "a b; id"], "", "job a b; id\n"),
        ([sys.executable, "-c", python], "", "hi\n"),
    ):
        assert (await ShellTool(home=home, programs=[argv[0]])(argv=argv, stdin=stdin))["stdout"] == said


async def test_it_keeps_the_contract_of_a_tool(home: Home) -> None:
    await check_tool(lambda: ShellTool(home=home), params={"argv": ["date"], "timeout": 5})


@pytest.fixture
def without_bwrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `PATH` on which there is `true` and `cat` only."""
    (tmp_path / "bin").mkdir()
    for name in ("true", "cat"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or "")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


@pytest.mark.usefixtures("without_bwrap")
async def test_below_the_level_that_is_asked_for_the_tool_is_off_and_says_why(home: Home) -> None:
    shell = ShellTool(home=home, programs=["true"], sandbox=2)

    with pytest.raises(PermanentError) as caught:
        await shell(argv=["true"])

    assert str(caught.value).startswith("sandbox level 2 is asked for, this machine offers level ")
    assert "bubblewrap (bwrap) is not on PATH" in str(caught.value)
    assert (await ShellTool(home=home, programs=["true"])(argv=["true"]))["sandbox"] < 2


async def test_nothing_in_the_workspace_is_found_by_a_bare_name(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    script(home, "uname", "#!/bin/sh\necho fake\n")
    script(home, "bwrap", "#!/bin/sh\n")
    monkeypatch.setenv("PATH", f"{home.workspace}:.::/usr/bin:/bin")
    assert (await ShellTool(home=home, sandbox=0)(argv=["uname"]))["stdout"] == "Linux\n"

    monkeypatch.setenv("PATH", f"{home.workspace}:/nowhere")
    with pytest.raises(PermanentError, match="level 2 is asked for"):
        await ShellTool(home=home, programs=["/bin/true"], sandbox=2)(argv=["/bin/true"])


async def test_no_sandbox_is_used_when_none_is_asked_for(home: Home, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("seen")

    answer = await ShellTool(home=home, sandbox=0)(argv=["cat", "../outside"])

    assert (answer["sandbox"], answer["stdout"]) == (0, "seen")


async def test_the_schema_says_what_is_allowed_and_a_call_cannot_name_its_level(home: Home) -> None:
    shell = ShellTool(home=home, programs=["git", "make"], timeout=5)

    assert shell.schema["properties"]["_tool"] == {"const": "shell"}
    assert "git, make" in shell.schema["description"]
    assert shell.schema["properties"]["timeout"]["maximum"] == 5 < shell.timeout
    assert not {"sandbox", "readable", "network", "level", "context"} & shell.schema["properties"].keys()
    with pytest.raises(TypeError):
        await shell(argv=["git"], sandbox=0)  # type: ignore[call-arg]


async def test_the_level_is_known_once_the_tool_is_open(home: Home) -> None:
    shell = ShellTool(home=home)
    before = shell.snapshot()

    async with shell:
        after = shell.snapshot()

    assert before == {"sandbox": {"level": None, "asked": "auto", "network": False}}
    assert after["sandbox"]["level"] == offered(shutil.which("bwrap")).level
    assert after["sandbox"]["asked"] == "auto"


async def test_in_a_sandbox_only_the_workspace_and_what_is_readable_is_seen(home: Home, tmp_path: Path) -> None:
    for name in ("inbox", "private"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "letter").write_text(f"{name} letter")
    shell = ShellTool(home=home, programs=["*"], readable=["inbox"])
    if not offered(shutil.which("bwrap")).level:
        pytest.skip(f"this machine offers no sandbox: {offered(shutil.which('bwrap')).why}")

    assert (await shell(argv=["cat", "../inbox/letter"]))["stdout"] == "inbox letter"
    for words in (
        ["cat", "../private/letter"],
        ["cp", "/dev/null", "../inbox/letter"],
        ["ls", str(tmp_path / "state")],
    ):
        with pytest.raises(CommandError):
            await shell(argv=words)
    assert (tmp_path / "inbox/letter").read_text() == "inbox letter"


@pytest.mark.parametrize(
    ("workspace", "config", "state", "readable", "key"),
    [
        ("/a/w", "/a/w", "/a/state", [], ()),
        ("/a/w", "/a", "/a/w/state", [], ()),
        ("/a/w", "/a", "/a/state", ["state/db"], ("readable",)),
        ("/a/w", "/a", "/a/state", [".."], ("readable",)),
        ("/a/w", "/a", "/a/state", ["."], ("readable",)),
        ("/", "/a", "/a/state", [], ()),
    ],
)
def test_what_the_service_lives_by_is_never_granted(
    workspace: str, config: str, state: str, readable: list[str], key: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError, match="must not") as caught:
        ShellTool(home=Home(config, workspace, state), readable=readable)

    assert caught.value.path == key


async def test_memory_can_be_bounded(home: Home) -> None:
    shell = ShellTool(home=home, programs=[sys.executable], memory=512 << 20)

    assert (await shell(argv=[sys.executable, "-c", "bytearray(50 << 20)"]))["exit"] == 0
    with pytest.raises(CommandError, match="MemoryError"):
        await shell(argv=[sys.executable, "-c", "bytearray(1 << 30)"])


def test_what_binds_a_call_is_everything_that_decides_what_it_does(home: Home, tmp_path: Path) -> None:
    script(home, "job.sh", "#!/bin/sh\n")
    script(home, "data", "1")
    shell = ShellTool(home=home, programs=["*"])
    params = {"argv": ["./job.sh", "data", "--in=data", "missing", "/etc/passwd"]}

    first = shell.binds(params)
    script(home, "data", "2")
    second = shell.binds(params)
    script(home, "job.sh", "#!/bin/sh\nid\n")
    third = shell.binds(params)

    assert first["program"] == f"{home.workspace}/job.sh"
    assert first["cwd"] == home.workspace
    assert first["operands"].keys() == {"data", "--in=data"}
    assert {"HOME", "PATH"} <= set(first["variables"])
    assert first["sandbox"]["level"] == offered(shutil.which("bwrap")).level
    assert (first["sha256"], first["operands"]) != (second["sha256"], second["operands"])
    assert second["operands"] == third["operands"]
    assert second["sha256"] != third["sha256"]


def test_another_program_of_the_name_or_another_path_binds_differently(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = ShellTool(home=home, programs=["uname"])
    before = shell.binds({"argv": ["uname"]})
    (tmp_path / "bin").mkdir()
    shutil.copy("/bin/true", tmp_path / "bin/uname")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")

    after = shell.binds({"argv": ["uname"]})

    assert {key for key in before if before[key] != after[key]} == {"program", "sha256", "path"}


def test_a_call_that_could_not_run_binds_nothing(home: Home) -> None:
    for params in ({"argv": ["rm", "x"]}, {"argv": []}, {}, {"argv": ["cat\0"]}):
        with pytest.raises((ValueError, PermanentError)):
            ShellTool(home=home).binds(params)


async def test_only_the_program_that_was_approved_runs(home: Home) -> None:
    class Approved(ToolContext, frozen=True):
        binds: Any = None

    script(home, "job.sh", "#!/bin/sh\necho good\n")
    shell = ShellTool(home=home, programs=["./job.sh"])
    params = {"argv": ["./job.sh"]}
    context = Approved(Call("shell", params), binds=shell.binds(params))

    assert (await shell(argv=["./job.sh"], context=context))["stdout"] == "good\n"
    script(home, "job.sh", "#!/bin/sh\necho evil\n")
    with pytest.raises(PermanentError, match="its content has changed"):
        await shell(argv=["./job.sh"], context=context)


@pytest.mark.parametrize(
    "argv",
    [
        ["sh", "-c", "id"],
        ["/bin/sh"],
        ["python3", "x.py"],
        ["perl", "-e", "1"],
        ["env", "ls"],
        ["xargs", "ls"],
        ["find", ".", "-name", "x"],
        ["tmux"],
        ["m4", "x"],
        ["gnuplot", "x"],
        ["ssh-agent", "id"],
        ["fakeroot", "id"],
        ["dbus-run-session", "id"],
        ["sed", "p"],
        ["awk", "1"],
        ["tar", "cf", "x", "."],
        ["make"],
        ["git", "-c", "core.pager=!id", "status"],
        ["git", "fetch", "--upload-pack=id"],
        ["git", "fetch", "--upload-p=id"],
        ["git", "--exec-path=.", "status"],
        ["sort", "--compress-prog=id", "x"],
        ["./job.sh"],
    ],
    ids=" ".join,
)
def test_what_runs_other_programs_is_never_permitted_once_for_all(home: Home, argv: list[str], tmp_path: Path) -> None:
    script(home, "job.sh", "#!/bin/sh\n")
    if "/" not in argv[0] and shutil.which(argv[0]) is None:  # not on this machine: its name is what is judged
        program = tmp_path / argv[0]
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        argv = [str(program), *argv[1:]]

    assert ShellTool(home=home, programs=["*"]).grantable({"argv": argv}) != ""


def test_what_runs_only_itself_may_be_permitted_once_for_all_under_its_own_name(home: Home, tmp_path: Path) -> None:
    (tmp_path / "cat").symlink_to("/bin/sh")
    shell = ShellTool(home=home, programs=["*"])

    for argv in (["ls", "-l"], ["cat", "x"], ["date"], ["sort", "x"], ["uname", "-c"]):
        assert shell.grantable({"argv": argv}) == ""
    assert "is not among the programs that may be granted" in shell.grantable({"argv": [str(tmp_path / "cat")]})


async def test_the_programs_that_may_be_permitted_once_for_all_are_the_configurations(home: Home) -> None:
    shell = ShellTool(home=home, programs=["*"])
    Executor([shell], settings={"approval": {"grantable": ["uname", "git"]}})

    assert shell.grantable({"argv": ["uname"]}) == ""
    assert "(approval.grantable): git, uname" in shell.grantable({"argv": ["date"]})
    if shutil.which("git") is not None:
        assert shell.grantable({"argv": ["git", "status"]}) == ""
        assert "runs other programs" in shell.grantable({"argv": ["git", "-c", "core.pager=!id", "status"]})
    with pytest.raises(ConfigError, match=r"approval\.grantable is 'git', expected a list of names of programs"):
        Executor([shell], settings={"approval": {"grantable": "git"}})
