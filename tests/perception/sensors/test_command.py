"""Real programs on a schedule: what they say, how they fail, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acting.programs import SandboxedPrograms
from perception.sensors.command import CommandSensor
from spar.clock import SystemClock
from spar.data.scrub import know
from spar.errors import ConfigError, PermanentError, TransientError
from spar.parts.registry import Registry
from spar.ports.services import Programs
from spar.protocols import Home, SensorContext
from spar.testing import check_sensor
from tests.waiting import cancelled

pytestmark = pytest.mark.process

#: Forks a child with a session of its own; both ignore SIGTERM and SIGINT, hold the pipes and say who they are.
MARK = f"97.{os.getpid()}"
STUBBORN = f"""#!/bin/sh
trap '' TERM INT HUP
setsid sh -c 'trap "" TERM INT HUP; while :; do sleep {MARK}; done' &
echo begun
echo about to hang >&2
while :; do sleep {MARK}; done
"""


class Bench:
    """A folder with programs and the sensor that runs one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = Home(str(folder), str(folder / "workspace"), str(folder / "state"))
        self.cursor: Any = None
        (folder / "workspace").mkdir()

    def script(self, name: str, text: str) -> str:
        file = self.folder / name
        file.write_text(text)
        file.chmod(0o755)
        return f"./{name}"

    def sensor(self, *argv: str, **options: Any) -> CommandSensor:
        return CommandSensor(argv, programs=SandboxedPrograms(home=self.home), **options)

    async def opened(self, *argv: str, **options: Any) -> CommandSensor:
        def keep(cursor: Any) -> None:
            self.cursor = cursor

        sensor = self.sensor(*argv, **options)
        clock = SystemClock()
        await sensor.open(SensorContext("cmd", clock, lambda each: True, cursor=self.cursor, checkpoint=keep))
        return sensor


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def alive(word: str) -> list[str]:
    """Return the command lines that hold a word."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(file.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
        except OSError:
            pass  # it ended meanwhile
    return [line for line in found if word in line]


async def test_it_keeps_to_the_contract(bench: Bench) -> None:
    def make() -> CommandSensor:
        return bench.sensor("cat", "news", every=0.01)

    (bench.folder / "workspace" / "news").write_text("")
    provoke: Callable[[], Any] = lambda: (bench.folder / "workspace" / "news").write_text("something\n")  # noqa: E731
    await check_sensor(make, provoke=provoke, limit=30.0, grace=10.0)


async def test_each_line_is_a_perception_that_is_untrusted(bench: Bench) -> None:
    sensor = await bench.opened("printf", "one\\n\\ntwo \\377\\n")
    one, two = await sensor.poll()
    assert (one.text, one.kind, one.source, one.trust) == ("one", "command.output", "cmd", "untrusted")
    assert two.text == "two \\xff"
    assert two.attributes["binary"] is True
    assert one.attributes["exit"] == 0
    assert one.key != two.key


async def test_lines_of_json_become_values_and_others_say_that_they_are_none(bench: Bench) -> None:
    lines = ('{"text": "disk is full", "subject": "disk", "severity": "critical", "value": 0.97}', "7", '"x"', "{no")
    lines += ('{"other": 1}', "[" * 5000, '{"value": NaN}', '"\\ud800"')
    (bench.folder / "workspace" / "said").write_text("\n".join(lines))
    sensor = await bench.opened("cat", "said", output="json")
    full, number, text, broken, other, deep, nan, lone = await sensor.poll()
    assert (full.content, full.subject, full.trust) == ("disk is full", "disk", "untrusted")
    assert full.attributes["value"] == 0.97
    assert full.attributes["severity"] == "critical"
    assert full.attributes["payload"]["subject"] == "disk"
    assert (number.content, number.attributes["value"], text.content) == (7, 7, "x")
    assert (broken.text, broken.attributes["problem"]) == ("{no", "no JSON")
    assert other.content == {"other": 1}
    assert "problem" in deep.attributes
    assert nan.attributes["problem"] == lone.attributes["problem"] == "no JSON"


async def test_the_whole_is_one_perception_and_silence_is_none(bench: Bench) -> None:
    (whole,) = await (await bench.opened("printf", "a\\nb\\n", output="whole")).poll()
    assert whole.text == "a\nb"
    assert await (await bench.opened("true", output="whole")).poll() == []


async def test_only_what_is_new_is_told_also_after_a_restart(bench: Bench) -> None:
    said = bench.folder / "workspace" / "said"
    said.write_text("a\nb\n")
    sensor = await bench.opened("cat", "said", tell="changed")
    assert [each.text for each in await sensor.poll()] == ["a", "b"]
    assert await sensor.poll() == []

    said.write_text("b\nc\n")
    again = await bench.opened("cat", "said", tell="changed")
    assert [each.text for each in await again.poll()] == ["c"]
    said.write_text("a\n")
    assert [each.text for each in await again.poll()] == ["a"]  # it was gone and is back


async def test_what_is_left_out_is_counted_and_said(bench: Bench) -> None:
    *lines, said = await (await bench.opened("seq", "1000", most=3)).poll()
    assert [each.text for each in lines] == ["1", "2", "3"]
    assert (said.kind, said.text) == ("command.left_out", "997 more lines (most = 3) of 'seq' were left out")

    *_, said = await (await bench.opened("seq", "100000", max_output=1024)).poll()
    assert said.text.endswith("bytes (max_output = 1024) of 'seq' were left out")

    (long,) = await (await bench.opened("printf", "%0100d", "0", longest=80)).poll()
    assert long.text == f"{'0' * 80} … 20 more characters left out"
    assert long.attributes["left_out"] == 20


async def test_a_bad_exit_code_is_an_error_with_the_last_line_of_stderr(bench: Bench) -> None:
    script = bench.script(
        "check.sh", "#!/bin/sh\necho fine so far\necho first >&2\necho 'no \033[31msuch disk' >&2\nexit 3\n"
    )
    with pytest.raises(TransientError) as failed:
        await (await bench.opened(script)).poll()
    assert str(failed.value) == "'./check.sh' ended with exit code 3 (ok_codes: 0): no [31msuch disk"

    (told,) = await (await bench.opened(script, ok_codes=[0, 3])).poll()
    assert told.text == "fine so far"
    assert (told.attributes["exit"], told.attributes["stderr"]) == (3, "no [31msuch disk")


async def test_a_program_that_is_not_there_is_an_error_that_says_where_it_was_looked_for(bench: Bench) -> None:
    for name, said in (("no-such-program", "PATH is"), ("./gone.sh", f"looked for {bench.folder}/gone.sh")):
        with pytest.raises(PermanentError, match=f"{name}.*is not there or cannot be executed; {said}"):
            await (await bench.opened(name)).poll()


async def test_a_timeout_ends_a_tree_that_ignores_signals(bench: Bench) -> None:
    sensor = await bench.opened(bench.script("stubborn.sh", STUBBORN), timeout=4.0, sandbox=0)
    with pytest.raises(TransientError, match=r"was ended with all its processes after 4 s: about to hang"):
        await sensor.poll()
    assert alive(MARK) == []


async def test_a_cancelled_run_ends_its_tree(bench: Bench) -> None:
    sensor = await bench.opened(bench.script("stubborn.sh", STUBBORN), timeout=60.0)
    running = asyncio.ensure_future(sensor.poll())
    while len(alive(MARK)) < 2:
        await asyncio.sleep(0.01)
        assert not running.done()
    await cancelled(running)
    assert alive(MARK) == []


async def test_it_is_given_only_the_variables_that_are_named_and_its_secrets_are_not_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHOSEN", "seen")
    monkeypatch.setenv("SPAR_TOKEN", "canary-7")
    (whole,) = await (await bench.opened("env", env=["CHOSEN"], variables={"MORE": "x"}, output="whole")).poll()
    assert "CHOSEN=seen" in whole.text
    assert "MORE=x" in whole.text
    assert "canary-7" not in whole.text

    know("hunter2-canary")  # as one that stands elsewhere is
    sensor = await bench.opened("sh", "-c", 'echo "with $PASSWORD"', variables={"PASSWORD": "hunter2-canary"})
    assert [each.text for each in await sensor.poll()] == ["with ***"]


async def test_it_runs_in_the_sandbox_of_tools(bench: Bench) -> None:
    outside = bench.folder / "outside"
    sensor = await bench.opened("sh", "-c", f"echo x > inside; echo y > {outside} || exit 9", ok_codes=[0, 9])
    (said,) = await (await bench.opened("echo", "x")).poll()
    if not said.attributes["sandbox"]:
        pytest.skip("this machine offers no sandbox")
    await sensor.poll()
    assert (bench.folder / "workspace" / "inside").exists()
    assert not outside.exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"argv": "df -h"}, "argv"),
        ({"argv": []}, "argv"),
        ({"argv": ["df -h"]}, "is one word with spaces; 'argv' is a list like ['df', '-h']"),
        ({"argv": [""]}, "must begin with the program's name"),
        ({"argv": ["a", "\0"]}, "NUL"),
        ({"argv": ["df"], "output": "line"}, "'lines', 'json' or 'whole'"),
        ({"argv": ["df"], "ok_codes": [256]}, "ok_codes"),
        ({"argv": ["df"], "env": ["A=b"]}, "env: 'A=b' is no name of a variable"),
        ({"argv": ["df"], "variables": {"": "x"}}, "variables: '' is no name of a variable"),
        ({"argv": ["df"], "readable": ["state"]}, "must not lie in one another"),
        ({"argv": ["df"], "programs": ["df"]}, "programs"),
    ],
)
def test_wrong_options_say_what_is_wrong(bench: Bench, options: dict[str, Any], said: str) -> None:
    programs = SandboxedPrograms(home=bench.home)
    os.makedirs(bench.home.state, exist_ok=True)  # noqa: PTH103
    with pytest.raises(ConfigError) as refused:
        Registry().build("spar.sensors", ("sensors", 0), "command", options, ports={Programs: lambda: programs})
    assert said in str(refused.value)
