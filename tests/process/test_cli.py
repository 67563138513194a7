"""The command line: what each command prints, how it ends, and what it survives."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from spar.operations.runs import FOLLOWERS
from tests.ports import SocketConnection
from tests.process.conftest import PATIENCE, in_one_process
from tests.recorded.commands import leaves

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "config.toml"


# -- help


def test_every_command_explains_itself_with_an_example() -> None:
    from click.testing import CliRunner

    from spar.cli.main import cli

    for command in leaves():
        shown = CliRunner().invoke(cli, [*command, "--help"], prog_name="spar")

        assert shown.exit_code == 0, command
        assert f"spar {' '.join(command)}" in shown.output.partition("Example")[2], command


def test_help_names_every_command_and_imports_nothing_heavy_and_no_command_brings_the_library_for_yaml(
    spar: Any,
) -> None:
    heavy = ["pydantic", "httpx", "starlette", "uvicorn", "apsw", "prometheus_client", "psutil", "loguru",
             "spar.agent.agent"]  # fmt: skip
    program = (
        "import sys, io, contextlib\n"
        "from spar.cli.main import cli\n"
        "with contextlib.redirect_stdout(io.StringIO()) as shown:\n"
        "    cli.main(['--help'], prog_name='spar', standalone_mode=False)\n"
        f"print([name for name in {heavy!r} if name in sys.modules])\n"
        "print(all(f'  {name} ' in shown.getvalue() for name in cli.list_commands(None)))\n"
        "[cli.get_command(None, name) for name in cli.list_commands(None)]\n"
        "print('yaml' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=spar.environ, cwd=spar.folder
    )

    assert done.stdout.splitlines() == ["[]", "True", "False"], done.stderr


def test_it_tells_its_version(spar: Any) -> None:
    from spar import __version__

    assert spar("--version").out == f"spar {__version__}\n"


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (["status", "--json"], ["--json", "status"]),
        (["run", "-c", "x.toml", "--set", "a=1"], ["-c", "x.toml", "--set", "a=1", "run"]),
        (["run", "--set=a=1", "--config=x"], ["--set=a=1", "--config=x", "run"]),
        (["send", "--", "--json"], ["send", "--", "--json"]),
        (["run", "--set"], ["--set", "run"]),
        ([], []),
    ],
)
def test_the_options_of_spar_itself_may_stand_behind_the_command(given: list[str], read: list[str]) -> None:
    from spar.cli.main import hoisted

    assert hoisted(given) == read


def test_json_may_be_asked_for_behind_the_command(spar: Any) -> None:
    assert spar("config", "check", "--json", "--set", "agent.name=other").json["agent"] == "other"


# -- without a service


@pytest.mark.parametrize("command", [
    [], ["frobnicate"], ["run", "--frobnicate"], ["send"], ["step", "dream"], ["step", "sense", "[]"],
    ["step", "plan", "{"], ["step", "plan", "@missing.json"], ["step", "plan", '{"no": "list"}'],
    ["cycles", "list", "--limit", "0"],
    ["--set", "nothing", "status"],
], ids=" ".join)  # fmt: skip
def test_what_is_typed_wrong_exits_with_64(spar: Any, command: list[str]) -> None:
    answer = spar.here(*command)

    assert answer.code == 64, answer
    assert "Traceback" not in answer.err
    assert answer.err


def test_a_misspelt_command_is_guessed(spar: Any) -> None:
    assert "did you mean 'status'" in spar("statsu").err


def test_init_writes_the_commented_defaults_once_and_overwrites_nothing(spar: Any) -> None:
    written = spar("init", "new.toml")
    spar.config.write_text("# mine\n")
    again = spar("init")

    assert (written.code, again.code) == (0, 73)
    assert (spar.folder / "new.toml").read_bytes() == CONFIG.read_bytes()
    assert spar.config.read_text() == "# mine\n"
    assert "is there already and stays as it is" in again.err
    assert "spar -c new.toml config check" in written.out
    assert spar("init", "nowhere/new.toml").code == 73


def test_showing_the_configuration_into_itself_is_an_error_that_says_what_to_do(spar: Any) -> None:
    with spar.config.open("wb") as own:
        done = subprocess.run([sys.executable, "-m", "spar", "config", "show"], stdout=own, stderr=subprocess.PIPE,
                              env=spar.environ, cwd=spar.folder, text=True)  # fmt: skip

    assert done.returncode == 78
    assert "spar init" in done.stderr


def test_the_defaults_are_found_from_any_folder_and_the_service_lives_where_it_is_started(
    spar: Any, tmp_path: Path
) -> None:
    spar.config.unlink()

    answer = spar("--json", "config", "check", environ={"HOME": str(tmp_path)}).json

    assert (answer["sensors"], answer["tools"]) == (4, 5)
    shown = spar("step", "sense", environ={"HOME": str(tmp_path)})
    assert shown.code == 0, shown
    assert spar.state.is_dir()


def test_a_part_beside_the_configuration_is_found(spar: Any, tmp_path: Path) -> None:
    spar.write('[[tools]]\nuse = "mytools:restart"\n')
    (spar.folder / "mytools.py").write_text("async def restart(unit: str) -> str:\n    return unit\n")
    elsewhere = {"PYTHONPATH": str(ROOT)}

    found = spar("config", "check", environ=elsewhere)
    spar.write('[[tools]]\nuse = "yourtools:restart"\n')
    missing = spar("config", "check")

    assert found.code == 0, found
    assert missing.code == 78
    assert "config.toml:2: tools[0].use: there is no module 'yourtools'" in missing.err
    assert str(spar.folder) in missing.err


def test_the_configuration_can_be_checked_shown_and_described(spar: Any) -> None:
    assert re.fullmatch(r"config\.toml: all right \(\d+ sensors, \d+ rules, \d+ tools\)\n", spar("config", "check").out)
    assert spar("--json", "config", "check").json["ok"] is True
    shown = spar("config", "show").out
    (spar.folder / "again.toml").write_text(shown)
    assert spar("-c", "again.toml", "config", "check").code == 0
    assert "# config.toml:" in spar("config", "show", "--origins").out
    assert spar("--json", "config", "show").json["agent"]["name"] == "main"
    assert spar("config", "schema").json["title"] == "Settings"


def test_a_configuration_of_an_earlier_build_is_used_after_its_names_were_fixed(spar: Any) -> None:
    earlier = (Path(__file__).parents[1] / "config" / "earlier" / "first_build.toml").read_text()
    spar.write(earlier)
    refused = spar("config", "check")
    assert refused.code == 78
    assert "config.toml:156: acting.max_output: was renamed: write acting.largest_result" in refused.err
    spar.config.chmod(0o640)
    fixed = spar("config", "check", "--fix")
    assert fixed.code == 0, fixed
    assert fixed.err == "config.toml:156: acting.max_output is acting.largest_result now\n"
    assert spar.config.read_text() == earlier.replace("max_output", "largest_result", 1)
    assert spar.config.stat().st_mode & 0o777 == 0o640
    assert spar("config", "check", "--fix").err == ""
    spar.write("[acting]\nmax_output = 4096\nlargest_result = 4096\n")
    both = spar("config", "check", "--fix")
    assert "config.toml:2: acting.max_output: cannot be renamed: largest_result is set beside it" in both.err


def test_plugins_turned_off_leaves_only_the_parts_in_the_box(spar: Any) -> None:
    plugin = spar.folder / "stranger-1.0.dist-info"
    plugin.mkdir()
    (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (plugin / "entry_points.txt").write_text("[spar.reflectors]\nodd = odd:reflect\n")
    (spar.folder / "odd.py").write_text("async def reflect(result): ...\n")
    spar.edit('[reflect]\nuse = "standard"', '[reflect]\nuse = "odd"')

    assert spar("config", "check").code == 0
    refused = spar("config", "check", environ={"SPAR_PLUGINS": "off"})
    assert refused.code == 78
    assert "turned off" in refused.err
    assert "odd" not in spar("config", "parts", environ={"SPAR_PLUGINS": "off"}).out


# -- with a service


def test_odd_characters_arrive_and_come_back_harmless(running: Any) -> None:
    spar = running.spar
    assert "odd bytes" in spar("send", "-", stdin=b"odd bytes \xff\xfe\n").out
    assert "snow \\u2603" in spar("send", "snow ☃", environ={"PYTHONIOENCODING": "ascii"}).out
    for text in ("\x1b]0;title\x07", "ünï ☃ 💥", "{braces} {0} %s", "a\nb", "x" * 100_000, b"\xff\xfe raw"):
        answer = spar("send", text)

        assert answer.code == 0, answer
        assert answer.out.startswith("I heard you")
        assert "\x1b" not in answer.out
    assert "\x1b" not in spar("status").out + spar("cycles", "list").out
    assert spar("--json", "cycles", "list").json


def test_odd_sessions_and_run_ids_are_only_names(running: Any) -> None:
    assert running.spar("send", "--session", "a/b c?#\x1b[1m", "hello").code == 0
    for odd in ("../../etc", "a/b", "?x=1", "%2e%2e", "☃"):
        answer = running.spar("runs", "wait", odd)
        assert answer.code == 1, answer
        assert "no run" in answer.err


def test_no_more_may_follow_runs_than_there_are_connections_for(running: Any) -> None:
    running.spar("pause")
    path = f"/v1/runs/{running.spar('send', '--no-wait', 'wait').out.strip()}/events"
    with ExitStack() as held:
        for _ in range(FOLLOWERS):
            channel = held.enter_context(SocketConnection(running.spar.state / "control.sock", PATIENCE))
            channel.request("GET", path)
            assert held.enter_context(channel.getresponse()).status == 200
        refused = running.api(path)

        assert (refused.status_code, "clients follow runs already" in refused.json()["detail"]) == (503, True)
        assert running.agent["state"] == "paused", "everything else is still answered"
    running.spar("resume")


def test_empty_messages_are_refused(running: Any) -> None:
    for text in ("", "  ", "\n"):
        answer = running.spar("send", text)
        assert answer.code == 64
        assert "not empty" in answer.err


def test_steps_go_through_a_cycle_of_a_paused_service(running: Any) -> None:
    spar = running.spar
    refused = spar("step", "sense")
    assert refused.code == 1
    assert "cannot step_sense an agent that is running" in refused.err
    spar("pause")
    spar.drop("s.txt", "step by step")

    perceived = spar.until(lambda: spar("--json", "step", "sense").json, "the file noticed")

    assert perceived[0]["attributes"]["name"] == "s.txt"
    assert spar("--json", "step", "plan").json["goal"] == "file s.txt"
    assert not (spar.workspace / "filed").exists()
    assert spar("--json", "step", "act").json["status"] == "ok"
    assert (spar.workspace / "filed" / "s.txt").exists()
    assert spar("--json", "step", "reflect").json["score"] == 1.0
    spar.until(lambda: spar("--json", "cycles", "list").json, "the steps on the tape")

    (spar.folder / "given.json").write_text(json.dumps([{"content": "note: given", "kind": "message"}]))

    action = spar("--json", "step", "plan", "@given.json").json

    assert action["calls"][0]["params"]["text"] == "given"
    action["calls"][0]["params"]["text"] = "edited"
    assert spar("--json", "step", "act", json.dumps(action)).json["status"] == "ok"
    assert any("edited" in path.read_text() for path in spar.workspace.rglob("*") if path.is_file())

    run = spar("send", "--no-wait", "hello").out.strip()
    late = spar("runs", "wait", "--timeout", "0.1", run)
    assert late.code == 124
    assert f"spar runs wait {run}" in late.err
    spar("resume")
    assert spar("runs", "wait", run).code == 0


# -- alone


def test_steps_alone_go_on_from_one_process_to_the_next_and_are_remembered(spar: Any) -> None:
    given = json.dumps([{"content": "note: remember the milk", "kind": "message"}])

    assert spar("--json", "step", "plan", given).json["output"] == "Noted: remember the milk"
    assert spar("--json", "step", "act").json["status"] == "ok"
    assert spar("--json", "step", "reflect").json["score"] == 1.0

    assert any("milk" in path.read_text() for path in spar.workspace.rglob("*") if path.is_file())
    heads, found = spar("memory", "search", "milk").out.splitlines()
    assert heads.split()[:2] == ["fit", "at"]
    assert "remember the milk" in found
    assert found.endswith("its words fit: place 1 of 1; words in common: milk")


def test_a_step_alone_with_nothing_before_it_says_so(spar: Any) -> None:
    answer = spar("step", "act")

    assert answer.code == 1
    assert "nothing to act on" in answer.err
    (spar.state / "last-step.json").write_text("{broken")
    assert "begin anew with: spar step sense" in spar("step", "act").err
    assert spar("--json", "step", "sense").json == []
    assert spar("cycles", "list").out == "no cycles yet\n"


def test_the_shell_runs_what_is_piped_in_and_a_script_that_fails_exits_with_1(spar: Any) -> None:
    script = (
        b"from spar import Perception\nfor i in range(2):\n    print(i, await agent.step_sense())\nprint(agent.state)\n"
        b"await agent.start()\nr = await agent.submit('how are you?')\nprint((await agent.wait(r.run_id)).output)\n"
    )
    failing = (b"1/0\n", b"def f(:\n", b"await agent.pause()\n")
    answer, *failed = in_one_process([(spar, ["shell"], each) for each in (script, *failing)])

    assert answer.code == 0, answer
    assert answer.out.startswith("0 []\n1 []\ncreated\nI am well"), answer
    assert spar("--json", "cycles", "list").json[0]["outcome"] == "acted"
    for each, answer in zip(failing, failed, strict=True):
        assert (answer.code, "Error" in answer.err) == (1, True), (each, answer)


# -- pipes


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_an_output_that_cannot_be_written_is_one_sentence(spar: Any) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "spar", "config", "parts"],
            cwd=spar.folder,
            env=spar.environ,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=PATIENCE,
        )

    assert done.returncode == 1
    assert done.stderr.decode() == "Error: standard output cannot be written: No space left on device\n"
