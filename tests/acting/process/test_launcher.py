"""Real programs, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from acting.process import launcher
from acting.process.detect import offered
from acting.process.launcher import Capture, launch, run
from acting.process.program import ApprovedFile, Program, environment, find_program
from acting.process.supervisor import family, send
from spar.errors import PermanentError
from tests.waiting import cancelled

pytestmark = pytest.mark.process

ENV = environment(("LANG",), workspace="/tmp")
#: Seconds until an end that takes a moment is no end: a hang guard, for what would go on for minutes.
AT_ALL = 60


def program(*argv: str, cwd: str = "/tmp", **limits: int) -> Program:
    path = find_program(argv[0], ENV)
    assert path is not None
    return Program(path, argv, cwd, ENV, **limits)


def shell(script: str, cwd: str = "/tmp") -> Program:
    return program("sh", "-c", script, cwd=cwd)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def command_lines() -> list[bytes]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(entry.read_bytes())
        except OSError:
            pass
    return found


async def pids_in(folder: Path, count: int) -> list[int]:
    for _ in range(4000):
        found = [file.read_text().strip() for file in folder.glob("*.pid")]  # noqa: ASYNC240
        if len(found) == count and all(found):
            return [int(text) for text in found]
        await asyncio.sleep(0.005)
    raise AssertionError(f"{count} processes should have begun, found {found}")


# Five processes: the program, a child, one in a session of its own, its child, and one that gave itself no parent.
FAMILY = """
echo $$ > 1.pid
sleep 300 & echo $! > 2.pid
setsid sh -c 'echo $$ > 3.pid; sleep 300 & echo $! > 4.pid; wait' &
(setsid sh -c 'echo $$ > 5.pid; exec sleep 300' &)
"""


def zombies() -> list[str]:
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [pid for pid in children if not is_alive(int(pid))]


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture(autouse=True)
async def nothing_is_left_of_ours() -> AsyncIterator[None]:
    before = descriptors()
    yield
    assert zombies() == []
    assert descriptors() <= before


async def test_the_environment_is_what_was_named_and_a_mark_and_the_service_hides_its_memory() -> None:
    finished = await run(program("env"), timeout=10)

    names = {line.partition(b"=")[0] for line in finished.stdout.splitlines()}
    assert names <= {b"LANG", b"PATH", b"HOME", b"SPAR_LAUNCH"}
    assert b"HOME=/tmp" in finished.stdout.splitlines()
    assert ctypes.CDLL(None).prctl(3, 0, 0, 0, 0) == 0  # PR_GET_DUMPABLE


def test_secrets_relative_and_own_folders_do_not_get_into_the_environment() -> None:
    source = {"PATH": "/usr/bin::.:bin:/ws/bin:/bin", "API_KEY": "x", "LANG": "C"}

    assert environment(("LANG", "TZ"), workspace="/ws", source=source) == {
        "LANG": "C",
        "PATH": "/usr/bin:/bin",
        "HOME": "/ws",
    }
    assert environment((), workspace="/ws", source={})["PATH"].startswith("/usr/local/sbin:")


async def test_rights_limits_and_descriptors_are_small_and_a_broken_pipe_ends_a_writer() -> None:
    script = "umask; ulimit -c; ulimit -n; ulimit -f; ls /proc/self/fd | wc -l; grep NoNewPrivs /proc/self/status; pwd"

    finished = await run(shell(f"{script}; yes | head -n 1", cwd="/"), timeout=10)

    assert finished.stdout.split() == [b"0077", b"0", b"1024", b"2097152", b"4", b"NoNewPrivs:", b"1", b"/", b"y"]


def test_a_program_of_a_service_that_was_started_in_the_background_can_be_interrupted() -> None:
    """Shells have what they start with `&` ignore SIGINT and SIGQUIT."""
    code = (
        "import asyncio, signal; from acting.process.launcher import run\n"
        "from tests.acting.process.test_launcher import shell\n"
        "signal.signal(signal.SIGQUIT, signal.SIG_IGN); signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "done = asyncio.run(run(shell('grep SigIgn /proc/self/status'), timeout=10))\n"
        "print(int(done.stdout.split()[1], 16) & 0x7FFFFFFF)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert (done.stdout.strip(), done.stderr) == ("0", "")


async def test_input_that_nobody_reads_is_no_failure() -> None:
    assert (await run(program("true"), stdin=b"x" * 3_000_000, timeout=10)).exit == 0


async def test_at_a_cancellation_the_whole_tree_dies(tmp_path: Path) -> None:
    running = asyncio.create_task(run(shell(FAMILY + "wait; sleep 300", cwd=str(tmp_path)), timeout=60))
    pids = await pids_in(tmp_path, 5)

    await cancelled(running)

    assert [pid for pid in pids if is_alive(pid)] == []


async def test_a_program_that_stops_its_supervisor_dies_too() -> None:
    finished = await run(shell("kill -STOP $PPID; sleep 300"), timeout=0.2)

    assert finished.timed_out
    assert finished.duration < AT_ALL


async def test_what_kills_its_supervisor_is_found_by_its_mark(tmp_path: Path) -> None:
    script = "setsid sh -c 'echo $$ > 1.pid; exec sleep 300' & echo $$ > 2.pid; sleep 0.1; kill -KILL $PPID; sleep 300"

    finished = await run(shell(script, cwd=str(tmp_path)), timeout=60)

    assert (finished.exit, finished.signal, finished.timed_out) == (None, None, False)
    assert [pid for pid in await pids_in(tmp_path, 2) if is_alive(pid)] == []


def test_a_number_that_belongs_to_another_process_by_now_is_not_signalled() -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as child:
        started = family(os.getpid())[child.pid]

        send({child.pid: started - 1}, signal.SIGKILL)  # a process of that number which was there before
        is_alone = child.poll() is None
        send({child.pid: started}, signal.SIGKILL)

    assert is_alone
    assert child.returncode == -signal.SIGKILL


async def test_the_tree_dies_with_the_service(tmp_path: Path) -> None:
    script = FAMILY + "wait; sleep 300"
    code = (
        "import asyncio; from acting.process.launcher import *\n"
        "env = {'PATH': '/usr/bin:/bin'}\n"
        f"p = Program('/bin/sh', ('sh', '-c', {script!r}), {str(tmp_path)!r}, env)\n"
        "asyncio.run(run(p, timeout=60))"
    )
    env = {"PYTHONPATH": os.pathsep.join(sys.path)}
    service = await asyncio.create_subprocess_exec(sys.executable, "-c", code, cwd=tmp_path, env=env)
    pids = await pids_in(tmp_path, 5)

    service.kill()
    await service.wait()
    for _ in range(4000):
        if not any(map(is_alive, pids)):
            break
        await asyncio.sleep(0.005)

    assert [pid for pid in pids if is_alive(pid)] == []


async def test_what_cannot_be_started_says_why(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("hello")
    file.chmod(0o755)
    for broken, reason in (
        (Program("/nowhere/at/all", ("x",), "/tmp"), "no such file"),
        (Program("/etc/passwd", ("x",), "/tmp"), "permission denied"),
        (Program("/bin/true", ("x",), "/nowhere"), "working folder cannot be used: no such file"),
        (Program("/bin/true", ("a\0b",), "/tmp"), "null byte"),
        (Program(str(file), ("x",), "/tmp"), "the file is no program"),
    ):
        with pytest.raises(PermanentError, match=reason):
            await run(broken, timeout=10)


async def test_a_file_that_grows_too_large_stops_its_writer(tmp_path: Path) -> None:
    finished = await run(program("dd", "if=/dev/zero", "of=big", cwd=str(tmp_path), file_bytes=100_000), timeout=10)

    assert finished.signal == signal.SIGXFSZ
    assert (tmp_path / "big").stat().st_size == 100_000


async def test_what_stands_between_imports_nothing_that_each_start_would_wait_for() -> None:
    said = launcher._SUPERVISOR.replace("supervise()", "print(*sys.modules)")
    assert said != launcher._SUPERVISOR
    bare, supervisor = [
        set(
            (
                await run(program(sys.executable, "-I", "-S", "-c", code, launcher._OWN_FOLDER), timeout=30)
            ).stdout.split()
        )
        for code in ("import sys; print(*sys.modules)", said)
    ]

    assert {b"acting.process.supervisor", b"ctypes"} <= supervisor
    assert len(supervisor - bare) < 20
    assert not supervisor & {b"asyncio", b"pathlib", b"re", b"signal", b"subprocess", b"typing"}


def test_a_capture_keeps_all_that_fits_and_counts_the_rest() -> None:
    whole, cut = Capture(10), Capture(10)
    for chunk in (b"0123", b"456", b"789"):
        whole.add(chunk)
    for number in range(1000):
        cut.add(b"%03d" % number)

    assert (whole.read(), whole.omitted) == (b"0123456789", 0)
    assert (cut.read(), cut.omitted) == ("00000\n… 2990 bytes left out …\n98999".encode(), 2990)


@pytest.fixture(params=[0, 1, 2], ids=["level 0", "level 1", "level 2"])
def level(request: pytest.FixtureRequest) -> int:
    capability = offered(shutil.which("bwrap"))
    if request.param and not any(found.counts and found.level == request.param for found in capability.findings):
        pytest.skip(f"this machine does not offer the level: {capability.why}")
    return int(request.param)


def caged(level: int, workspace: Path, *argv: str, **more: Any) -> Program:
    spec = offered(shutil.which("bwrap")).spec(str(workspace), level=level)
    path = find_program(argv[0], ENV) or argv[0]
    return Program(path, argv, str(workspace), ENV, sandbox=spec, **more)


async def test_at_every_level_a_program_gets_words_input_and_variables_and_tells_its_end(
    level: int, tmp_path: Path
) -> None:
    script = 'printf "<%s>" "$@"; cat; echo "$HOME $0"; pwd; echo err >&2; exit 3'

    finished = await run(caged(level, tmp_path, "sh", "-c", script, "name", "a b", "*"), stdin=b"in", timeout=10)

    assert (finished.exit, finished.signal, finished.timed_out) == (3, None, False)
    assert finished.stdout.decode() == f"<a b><*>in/tmp name\n{tmp_path}\n"
    assert finished.stderr == b"err\n"


async def test_at_every_level_nothing_outlives_its_end_or_its_timeout(
    level: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "KILL_GRACE", 10 * AT_ALL)  # what is left to the sweep comes too late
    name = f"3{time.time_ns()}"  # seconds to sleep by which its processes are known
    left = f"sleep {name} & setsid sleep {name} & (setsid sh -c 'sleep {name}' &)"

    ended = await run(caged(level, tmp_path, "sh", "-c", left), timeout=10)
    stopped = await run(caged(level, tmp_path, "sh", "-c", f"{left}; echo begun; wait"), timeout=1.0)

    assert (ended.exit, ended.timed_out) == (0, False)
    assert (stopped.signal, stopped.timed_out, stopped.stdout) == (signal.SIGKILL, True, b"begun\n")
    assert 1.0 <= stopped.duration < AT_ALL
    assert [line for line in command_lines() if name.encode() in line] == []


async def test_at_every_level_a_program_that_cannot_be_started_says_so_and_no_null_byte_commands_bubblewrap(
    level: int, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("hello")

    with pytest.raises(PermanentError, match=r"could not be started|could not set up"):
        await run(caged(level, tmp_path, str(tmp_path / "file")), timeout=10)
    with pytest.raises(PermanentError, match="null byte"):
        await run(replace(caged(level, tmp_path, "true"), env={"A": "b\0--bind\0/\0/"}), timeout=10)


async def test_a_signal_that_ends_a_program_is_told_but_by_bubblewrap_as_an_exit_code(
    level: int, tmp_path: Path
) -> None:
    finished = await run(caged(level, tmp_path, "sh", "-c", "kill -TERM $$"), timeout=10)

    assert (finished.exit, finished.signal) == ((143, None) if level == 2 else (None, signal.SIGTERM))


async def test_the_very_content_that_was_meant_runs_or_nothing(level: int, tmp_path: Path) -> None:
    (tmp_path / "job").write_text("#!/bin/sh\necho as approved $1\n")
    (tmp_path / "job").chmod(0o755)
    shutil.copy("/bin/echo", tmp_path / "copy")
    meant = {name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in ("job", "copy")}

    script = await run(caged(level, tmp_path, str(tmp_path / "job"), "x", digest=meant["job"]), timeout=10)
    native = await run(caged(level, tmp_path, str(tmp_path / "copy"), "x", digest=meant["copy"]), timeout=10)
    system = await run(caged(level, tmp_path, "/bin/echo", "x", digest=meant["copy"]), timeout=10)

    assert (script.stdout, native.stdout, system.stdout) == (b"as approved x\n", b"x\n", b"x\n")
    (tmp_path / "job").write_text("#!/bin/sh\necho something else\n")
    with pytest.raises(PermanentError, match="content has changed"):
        await run(caged(level, tmp_path, str(tmp_path / "job"), digest=meant["job"]), timeout=10)


async def test_an_approved_program_is_read_while_the_event_loop_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "program"
    os.mkfifo(path)  # who opens it waits until somebody writes
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    starting = asyncio.create_task(run(Program(str(path), ("program",), str(workspace), digest="0" * 64), timeout=10))

    writer = -1
    while writer < 0:
        await asyncio.sleep(0.001)
        try:
            writer = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # nobody reads yet
            pass
    os.close(writer)
    with pytest.raises(PermanentError):
        await starting


def test_an_approved_program_is_read_again_only_when_its_file_is_another_one(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_bytes(b"\x7fELF" + b"x" * 1000)
    workspace = tmp_path / "workspace"
    program = Program(str(path), ("program",), str(workspace), digest=hashlib.sha256(path.read_bytes()).hexdigest())

    read = []
    for _ in range(2):
        approved = ApprovedFile(program)
        approved.open()
        read.append(os.lseek(approved.descriptor, 0, os.SEEK_CUR))
        approved.close()
    assert read == [1004, 0]
    path.write_bytes(b"\x7fELF" + b"y" * 1000)
    with pytest.raises(PermanentError, match="content has changed"):
        ApprovedFile(program).open()


def test_what_is_opened_after_it_was_given_up_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_bytes(b"\x7fELF")
    approved = ApprovedFile(
        Program(str(path), ("p",), str(tmp_path / "w"), digest=hashlib.sha256(path.read_bytes()).hexdigest())
    )
    before = len([*Path("/proc/self/fd").iterdir()])

    approved.close()
    approved.open()

    assert (approved.descriptor, len([*Path("/proc/self/fd").iterdir()])) == (-1, before)


async def test_what_is_swapped_after_it_was_read_does_not_run(level: int, tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.write_text("#!/bin/sh\necho good\n")
    job.chmod(0o755)
    digest = hashlib.sha256(job.read_bytes()).hexdigest()

    async with launch(caged(level, tmp_path, str(job), digest=digest)) as process:
        job.write_text("#!/bin/sh\necho evil\n")  # the supervisor is only starting now
        await process.wait()

        assert os.read(process.stdout or -1, 100) == b"good\n"


async def test_a_program_of_our_own_python_finds_its_libraries_at_every_level(level: int, tmp_path: Path) -> None:
    code = "import asyncio, json, msgspec; print(json.dumps([1]))"

    finished = await run(caged(level, tmp_path, sys.executable, "-c", code), timeout=20)

    assert (finished.stdout, finished.stderr) == (b"[1]\n", b"")


async def test_a_program_shows_its_words_to_nobody_before_it_runs(tmp_path: Path) -> None:
    secret = f"canary-{time.time_ns()}"

    async with launch(caged(0, tmp_path, "sh", "-c", "sleep 300", secret)):
        for _ in range(4000):
            shown = [line for line in command_lines() if secret.encode() in line]
            if shown:
                break
            await asyncio.sleep(0.005)

        assert {line.split(b"\0")[0] for line in shown} == {b"sh"}
