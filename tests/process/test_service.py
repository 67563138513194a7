"""The service as its users and their service managers meet it."""

from __future__ import annotations

import re
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from spar.service import exit_codes as exits
from tests.process.conftest import PATIENCE

pytestmark = pytest.mark.process

SLOW_TOOL = '''
import asyncio, pathlib, time
from spar import tool

@tool(effect="once")
async def dawdle(name: str, seconds: float) -> str:
    """Take long."""
    pathlib.Path(name + ".begun").touch()
    await asyncio.sleep(seconds)
    pathlib.Path(name + ".done").touch()
    return "done"
'''
SLOW_RULE = """
[[rules]]
name = "dawdle"
when = { kind = "message", pattern = "^dawdle (?P<seconds>[0-9.]+)" }
answer = "dawdled"

[[rules.calls]]
tool = "dawdle"
params = { name = "slow", seconds = %s }

[[tools]]
use = "slow_tool:dawdle"
"""
BLOCKING = """
import time, pathlib

def plan_blocks():
    pathlib.Path("blocks").touch()
    while not pathlib.Path("let-go").exists():
        time.sleep(0.02)

async def plan(perceptions):
    plan_blocks()
"""


def with_slow_tool(spar: Any, seconds: float) -> None:
    (spar.folder / "slow_tool.py").write_text(SLOW_TOOL)
    text = spar.config.read_text()
    spar.write(text.replace("[[rules]]\n", SLOW_RULE % seconds + "\n[[rules]]\n", 1))


# -- the work


def test_a_dropped_file_is_noticed_handled_by_its_rule_and_remembered(running: Any) -> None:
    spar = running.spar
    spar.drop("invoice.txt", "please pay 40 euros")

    spar.until((spar.workspace / "filed" / "invoice.txt").exists, "the filed copy")
    cycle = spar.until(lambda: spar("--json", "cycles", "list").json, "a cycle on the tape")[0]
    assert cycle["outcome"] == "acted"
    whole = spar("--json", "cycles", "show", cycle["cycle_id"]).json
    assert whole["perceptions"][0]["kind"] == "file.added"
    assert whole["perceptions"][0]["attributes"]["name"] == "invoice.txt"
    assert [result["call"]["tool"] for result in whole["result"]["results"]] == ["note", "files"]
    assert {result["status"] for result in whole["result"]["results"]} == {"ok"}
    found = spar.until(lambda: spar("--json", "memory", "search", "invoice").json, "the experience")
    assert found[0]["success"] is True
    assert "file invoice.txt" in spar("cycles", "list").out


# -- its files


def test_its_files_are_nobody_elses_to_read_or_serve(running: Any) -> None:
    spar = running.spar
    assert spar("send", "hello").code == 0  # that a second one is refused beside it is in tests/recorded

    def mode(path: Path) -> int:
        return stat.S_IMODE(path.stat().st_mode)

    assert mode(spar.state) == 0o700
    modes = {path.name: mode(path) for path in spar.state.iterdir() if path.name != "spar.lock"}
    assert modes == dict.fromkeys(modes, 0o600)
    assert stat.S_ISSOCK((spar.state / "control.sock").stat().st_mode)
    assert {path.name for path in spar.folder.iterdir()} == {"config.toml", "inbox", "state", "workspace"}


def test_a_state_directory_with_a_very_long_path_works_and_other_processes_cannot_read_its_memory(
    spar: Any, start: Any
) -> None:
    (spar.folder / "look.py").write_text(
        "import ctypes, pathlib\n"
        "PR_GET_DUMPABLE = 3\n"
        "pathlib.Path('dumpable').write_text(str(ctypes.CDLL(None).prctl(PR_GET_DUMPABLE, 0, 0, 0, 0)))\n"
        "async def reflect(result): ...\n"
    )
    spar.edit('[reflect]\nuse = "standard"', '[reflect]\nuse = "look:reflect"')
    deep = "/".join(["d" * 60] * 3)
    spar.edit('state_dir = "state"', f'state_dir = "{deep}"')
    service = start()
    service.said("service started")

    assert spar("--json", "status").json["pid"] == service.process.pid
    assert spar("send", "hello").code == 0
    assert (spar.folder / "dumpable").read_text() == "0"
    assert service.stop() == 0


# -- signals


def test_a_signal_drains_and_exits_with_zero_and_standard_output_stays_empty(spar: Any, start: Any) -> None:
    with_slow_tool(spar, 0.7)
    service = start().ready()
    spar("send", "--no-wait", "dawdle 0.7")
    spar.until((spar.folder / "slow.begun").exists, "the slow call begun")

    service.signal(signal.SIGINT)

    assert service.wait() == 0
    assert (spar.folder / "slow.done").exists()
    assert spar("--json", "cycles", "list").json[0]["outcome"] == "acted"
    assert service.said("state changed", new="stopped")
    assert not (spar.state / "control.sock").exists()
    assert service.process.stdout.read() == b""


def test_a_second_signal_cancels_at_once_and_the_cut_is_on_the_tape(spar: Any, start: Any) -> None:
    with_slow_tool(spar, 600)
    service = start().ready()
    spar("send", "--no-wait", "dawdle 600")
    spar.until((spar.folder / "slow.begun").exists, "the slow call begun")
    service.signal(signal.SIGTERM)
    service.said("state changed", new="stopping")
    time.sleep(0.3)
    assert service.process.poll() is None

    service.signal(signal.SIGTERM)

    assert service.wait() == 75
    assert not (spar.folder / "slow.done").exists()
    assert spar("--json", "cycles", "list").json[0]["outcome"] == "interrupted"


def test_a_service_that_died_paused_comes_back_paused_until_somebody_resumes_it(spar: Any, start: Any) -> None:
    """With `--resume` it goes on at once: test_teaching.py."""
    first = start().ready()
    assert spar("pause").code == 0
    first.kill()

    second = start()
    second.said("still paused")
    spar.until(lambda: second.agent["state"] == "paused", "the service paused")
    assert spar("resume").code == 0
    spar.until(lambda: second.agent["state"] == "running", "the service running")
    assert spar("pause").out == "main: running → paused\n"
    assert spar("pause").out == "main: paused → paused\n"
    assert spar("stop").code == 0, "it returns when the service has gone"
    assert second.wait() == 0


def test_a_stop_by_command_ends_with_zero_though_work_waits_and_the_next_start_goes_on_with_it(
    spar: Any, start: Any
) -> None:
    with_slow_tool(spar, 600)
    service = start("--set", "service.drain=0.5").ready()
    run_id = spar("--json", "send", "--no-wait", "dawdle 600").json["run_id"]
    spar.until((spar.folder / "slow.begun").exists, "the slow call begun")

    assert spar("stop").code == 0

    assert service.wait() == 0, "systemd starts the service again after any other code"
    again = start("--set", "service.drain=0.5").ready()
    again.said("call in doubt")
    run = again.api(f"/v1/runs/{run_id}/wait?timeout=60").json()
    assert [entry["error"]["kind"] for entry in run["errors"]] in (["in_doubt"], []), run
    assert (run["status"] == "ok") == bool(run["errors"]), "an answer says what is in doubt; else the run goes on"


def test_a_signal_during_the_start_ends_it_as_well(spar: Any, start: Any) -> None:
    (spar.folder / "late.py").write_text(
        "import asyncio, pathlib\n"
        "class Late:\n"
        "    async def __aenter__(self):\n"
        "        pathlib.Path('opening').touch()\n"
        "        await asyncio.sleep(600)\n"
        "    async def __aexit__(self, *exc): ...\n"
        "    async def reflect(self, result): ...\n"
    )
    spar.edit('[reflect]\nuse = "standard"', '[reflect]\nuse = "late:Late"')
    service = start()
    spar.until((spar.folder / "opening").exists, "the start under way")

    service.signal(signal.SIGTERM)

    assert service.wait() == 0
    assert "Traceback" not in service.err


def test_hang_up_reloads_what_changed_and_a_broken_file_keeps_the_old_configuration_and_says_so(
    spar: Any, start: Any
) -> None:
    spar.edit('level = "info"', 'level = "warning"')
    service = start().ready()
    assert not service.log
    pid, seq = service.status["pid"], service.agent["stats"]["total_cycles"]
    spar.edit("I am well and watching.", "Never better.")
    spar.edit('level = "warning"', 'level = "info"')

    service.signal(signal.SIGHUP)

    assert "rules" in service.said("configuration reloaded")["changed"]
    assert spar("send", "how are you?").out.startswith("Never better.")
    assert service.status["pid"] == pid
    assert service.agent["stats"]["total_cycles"] > seq

    good = spar.config.read_text()
    spar.write(good.replace('tool = "note"', 'tool = "nonsense"', 1))

    service.signal(signal.SIGHUP)

    reason = service.said("configuration not reloaded")["reason"]
    assert "nonsense" in reason
    assert "config.toml:" in reason
    assert spar("send", "how are you?").out.startswith("Never better.")
    refused = spar("reload")
    assert refused.code == 78, refused
    assert "nonsense" in refused.err
    spar.write(good.replace("Never better.", "Mended."))
    assert spar("reload").code == 0
    assert spar("send", "how are you?").out.startswith("Mended.")

    spar.write("[log]\nlevle = 1\n")  # a mistake keeps nobody from stopping the service
    assert spar("config", "check").code == 78
    assert spar("status").code == 0
    assert spar("stop").code == 0


def test_a_service_whose_memory_another_one_took_over_gives_up_and_the_next_one_tells_so(spar: Any, start: Any) -> None:
    first = start().ready()
    memory = spar.state / "memory.db"
    memory.with_name("memory.db.lock").unlink()  # somebody tidies up, and starts another one on the same memory
    second = start(environ={"SPAR_SERVICE__STATE_DIR": "other", "SPAR_MEMORY__URL": f"sqlite:///{memory}"})
    assert first.wait() == exits.GAVE_UP, first.err
    assert "taken over" in (spar.state / "gave_up").read_text()
    second.kill()
    third = start().ready()
    assert re.search(r'spar_agent_gave_up_timestamp_seconds\{agent="main"\} [1-9]', third.get("/metrics").text)


# -- what it must not be stopped by


def dumps(service: Any) -> list[dict[str, Any]]:
    return [line for line in service.log if line["msg"] == "state dump"]


def cannot_block_status_probes_and_dumps(spar: Any, service: Any) -> None:
    address = service.address
    status = spar("status")  # the module blocks until it is let go, below
    assert service.get("/livez").status_code == 200
    assert status.code == 0, status
    assert "phase" not in status.err
    spar.until(lambda: service.get("/readyz").status_code == 503, "not ready while blocked")
    assert "blocked" in service.get("/readyz").json()["alerts"]
    assert "blocking.py" in service.said("event loop blocked")["stack"]

    service.signal(signal.SIGUSR1)

    spar.until(lambda: dumps(service)[1:], "the second dump")
    assert dumps(service)[1]["blocked_seconds"] > 0
    spar.until(lambda: "plan_blocks" in service.err, "the stack of what blocks")
    (spar.folder / "let-go").touch()
    spar.until(lambda: service.get("/readyz").status_code == 200, "ready again")
    assert address == service.address


def test_closed_standard_streams_stop_nothing(spar: Any) -> None:
    process = subprocess.Popen(
        ["sh", "-c", 'exec "$@" 0<&- 1>&- 2>&-', "sh", sys.executable, "-m", "spar", "run"],
        cwd=spar.folder,
        env=spar.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        spar.until(lambda: spar("status").code == 0, "the service running")
        assert spar("send", "hello").code == 0
        process.terminate()
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
    assert (spar.state / "spar.lock").read_text().strip().isdigit()


# -- the service manager


def test_a_blocking_module_blocks_neither_status_probes_nor_dumps_and_systemd_is_not_told_that_it_is_alive(
    spar: Any, start: Any, tmp_path: Path
) -> None:
    (spar.folder / "blocking.py").write_text(BLOCKING)
    spar.edit('[plan]\nuse = "rules"', '[plan]\nuse = "blocking:plan"')
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE)
        heard: list[str] = []
        service = start(environ={"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"})

        def listen(word: str) -> None:
            while not any(word in line for line in heard):
                heard.extend(manager.recv(4096).decode().splitlines())

        listen("READY=1")
        assert service.status["pid"] == service.process.pid
        for _ in range(3):
            heard.clear()
            listen("WATCHDOG=1")
        service.signal(signal.SIGUSR1)
        assert service.said("state dump", state="running")["blocked_seconds"] == 0
        service.said("task stack", part="main/main")

        spar.drop("any.txt", "text")
        spar.until((spar.folder / "blocks").exists, "the module blocking")
        manager.settimeout(1.0)
        for _ in range(1000):  # what was sent before it blocked
            try:
                manager.recv(4096)
            except TimeoutError:
                break
        else:
            pytest.fail("it was fed all the time")
        cannot_block_status_probes_and_dumps(spar, service)
        manager.settimeout(PATIENCE)
        heard.clear()
        listen("WATCHDOG=1")
        service.signal(signal.SIGTERM)
        listen("STOPPING=1")
        assert service.wait() == 0
    assert len(dumps(service)) == 3, "what its tasks do follows once the loop can tell"
