"""What a hostile or broken program may try, at every level that this machine offers, each beside a benign twin.

What level 0 cannot prevent, because there it is one program of a user beside another, is said by tests of that name.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from acting.executor import Executor
from acting.process import launcher
from acting.process.detect import offered
from acting.process.launcher import run
from acting.process.program import Program, environment, find_program
from acting.process.supervisor import tasks
from acting.sandbox.spec import EMPTY
from acting.tools.shell import ShellTool
from spar.errors import PermanentError
from spar.ports.services import ProgramEnd
from spar.protocols import Home
from spar.protocols.tools import tool
from spar.types import Call
from tests.effort import hang_guard

pytestmark = pytest.mark.process

OFFER = offered(shutil.which("bwrap"))
OFFERED = [0, *sorted(found.level for found in OFFER.findings if found.counts)]
MISSING = [] if os.environ.get("CI") else [level for level in (1, 2) if level not in OFFERED]
SKIPPED = [pytest.param(level, marks=pytest.mark.skip(reason=f"not offered here: {OFFER.why}")) for level in MISSING]
every_level = pytest.mark.parametrize("level", [*OFFERED, *SKIPPED])
every_sandbox = pytest.mark.parametrize("level", [*OFFERED[1:], *SKIPPED])
ENV = environment(("LANG",), workspace="/tmp")
CANARY = "canary-51c9"
#: Seconds until an end that takes a moment is no end: a hang guard, for what would go on for years.
AT_ALL = 60


def program(level: int, workspace: Path, *argv: str, **limits: int) -> Program:
    path = find_program(argv[0], ENV)
    assert path is not None
    spec = OFFER.spec(str(workspace), level=level)
    return Program(path, argv, str(workspace), {**ENV, "HOME": str(workspace)}, sandbox=spec, **limits)


async def sh(level: int, workspace: Path, script: str, *, timeout: float = 30, **limits: int) -> ProgramEnd:
    return await run(program(level, workspace, "sh", "-c", script, **limits), timeout=timeout)


async def python(level: int, workspace: Path, code: str, *, timeout: float = 30, **limits: int) -> ProgramEnd:
    return await run(program(level, workspace, sys.executable, "-c", code, **limits), timeout=timeout)


def listed(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def processes() -> list[Path]:
    return list(Path("/proc").glob("[0-9]*"))


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def alive(sign: str) -> list[bytes]:
    found = []
    for folder in processes():
        with contextlib.suppress(OSError):
            found.append((folder / "cmdline").read_bytes())
    return [line for line in found if sign.encode() in line]


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Path]:
    """A folder that is not in `/tmp`: that is empty in a sandbox, which would hide what else keeps a program out."""
    for place in (Path.home(), Path.cwd()):
        if os.access(place, os.W_OK) and not any(place.is_relative_to(each) for each in EMPTY):
            with tempfile.TemporaryDirectory(prefix=".spar-test-", dir=place) as name:
                yield Path(name)
            return
    yield tmp_path


@pytest.fixture
def workspace(ground: Path) -> Path:
    (ground / "workspace").mkdir()
    return ground / "workspace"


@pytest.fixture
def outside(ground: Path) -> Path:
    folder = ground / "outside"
    folder.mkdir()
    (folder / "secret").write_text(CANARY)
    (folder / "script").write_text("#!/bin/sh\n")
    return folder


@pytest.fixture
async def gaps() -> AsyncIterator[list[float]]:
    """How long the loop was kept from other work, each time it wanted to do some."""
    found: list[float] = []

    async def beat() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.005)
            found.append(time.perf_counter() - began)

    beating = asyncio.create_task(beat())
    yield found
    beating.cancel()


# --- P17: hung programs. `{sign}` is a number of seconds by which the processes of a test are known.

HUNG = {
    "sleeps": "exec sleep {sign}",
    "ignores every signal": "trap '' TERM INT HUP QUIT USR1 USR2 ALRM PIPE; sleep {sign} & while :; do wait; done",
    "forks": "for i in 1 2 3 4 5; do (sleep {sign} & sleep {sign}) & done; wait",
    "escapes with the pipe in hand": "setsid sh -c 'sleep {sign}' & (setsid setsid sleep {sign} &) ; sleep {sign}",
    "leaves at once, its child holds the pipe": "setsid sleep {sign} & sleep {sign}",
    "stops itself": "sleep {sign} & kill -STOP $$",
    "waits for a pipe that nobody opens": "sleep {sign} & mkfifo fifo; cat fifo",
    "storms": "for i in 1 2 3 4; do (while :; do setsid sleep {sign} & sleep 0.01; done) & done; wait",
    "stops its children": "sleep {sign} & kill -STOP $!; wait",
}


@every_level
@pytest.mark.parametrize("script", HUNG.values(), ids=HUNG)
async def test_a_hung_program_ends_with_all_it_began_and_delays_nobody(
    level: int, script: str, workspace: Path, gaps: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "KILL_GRACE", 10 * AT_ALL)  # what is left to the sweep comes too late
    sign = f"3{time.time_ns()}"

    finished = await sh(level, workspace, script.replace("{sign}", sign), timeout=0.3)

    assert finished.timed_out
    assert 0.3 <= finished.duration < AT_ALL
    assert alive(sign) == []
    assert len(gaps) > 5
    assert max(gaps) < 5


@every_level
async def test_a_slow_program_that_is_not_hung_is_left_in_peace(level: int, workspace: Path) -> None:
    finished = await sh(level, workspace, "sleep 0.3; (sleep 0.2; echo child) & wait; echo over", timeout=20)

    assert (finished.exit, finished.stdout, finished.timed_out) == (0, b"child\nover\n", False)


# --- P18: hung Python tools


async def test_six_hung_calls_of_a_blocking_tool_keep_no_other_tool_waiting() -> None:
    release = threading.Event()

    @tool(timeout=3)
    def hung(number: int) -> int:
        """Blocks its thread."""
        release.wait(30)
        return number

    @tool
    def quick(number: int) -> int:
        """Blocks for no time."""
        return number

    arrived: list[str] = []

    class Watch:
        def publish(self, event: object) -> None:
            call = getattr(event, "call", None)
            if type(event).__name__ == "CallCompleted" and call is not None:
                arrived.append(call.id)

    calls = [Call("hung", {"number": each}, id=f"hung-{each}") for each in range(6)]
    try:
        async with Executor([hung, quick], events=Watch()) as executor:
            result = await executor.run([*calls, Call("quick", {"number": 7}, id="quick")])
    finally:
        release.set()

    assert {each.call.id: each.status for each in result.results}["quick"] == "ok"
    assert arrived[0] == "quick"
    assert sum(each.status == "timeout" for each in result.results) == 6


# --- P19: floods


@every_level
@pytest.mark.parametrize(("flood", "timeout"), [("head -c 50000000 /dev/zero", 10), ("yes", 0.5)])
async def test_a_flood_is_cut_at_both_ends_and_costs_little_memory(
    level: int, flood: str, timeout: float, workspace: Path
) -> None:
    before = resident()

    finished = await sh(level, workspace, f"echo first; {flood}", timeout=timeout)

    grown = resident() - before
    assert finished.stdout.startswith(b"first\n")
    assert b"bytes left out" in finished.stdout
    assert len(finished.stdout) < 300_000
    assert finished.duration < timeout + AT_ALL
    assert grown <= 16 << 20


@every_level
async def test_output_that_is_long_but_fits_is_kept_whole(level: int, workspace: Path) -> None:
    finished = await sh(level, workspace, "head -c 200000 /dev/zero | tr '\\0' x", timeout=20)

    assert finished.stdout == b"x" * 200_000
    assert finished.omitted == 0


# --- P32: programs that take all there is

GREEDY = {
    "processes": ("sh", "-c", "b() { b | b & }; b; sleep 30"),
    "descriptors": (sys.executable, "-c", "import os\nwhile True: os.dup(0)"),
    "threads": (
        sys.executable,
        "-c",
        "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(30,)).start()",
    ),
    "disk": ("sh", "-c", "cat /dev/zero > big"),
    "processor": ("sh", "-c", "while :; do :; done & while :; do :; done"),
    "memory": (sys.executable, "-c", "x = []\nwhile True: x.append(bytearray(10 << 20))"),
}


@every_level
@pytest.mark.parametrize("argv", GREEDY.values(), ids=GREEDY)
async def test_what_a_greedy_program_took_is_back_when_it_has_ended(
    level: int, argv: tuple[str, ...], workspace: Path
) -> None:
    limits = {"processes": 200, "file_bytes": 1 << 20, "memory": 1 << 28, "files": 256}
    before = len(processes())

    with hang_guard():
        finished = await run(program(level, workspace, *argv, **limits), timeout=0.5)
        after = await sh(level, workspace, "echo alive", timeout=30)

    assert finished.exit != 0
    assert after.stdout == b"alive\n"
    assert len(processes()) < before + 50
    assert sum(file.stat().st_size for file in listed(workspace)) <= 1 << 20


@every_level
async def test_a_program_that_forks_without_end_never_fills_the_machine(level: int, workspace: Path) -> None:
    before, most, over = tasks(), 0, threading.Event()

    def look() -> None:
        nonlocal most
        while not over.wait(0.005):
            most = max(most, tasks())

    looking = threading.Thread(target=look)
    looking.start()
    try:
        with hang_guard():
            await run(program(level, workspace, *GREEDY["processes"], processes=200), timeout=3)
    finally:
        over.set()
        looking.join()

    # Unseen it takes every process that the kernel has, 32,768 by default, and nobody else can begin one.
    assert 0 < most - before < 16_000


@every_level
async def test_a_program_that_takes_what_it_needs_gets_it(level: int, workspace: Path) -> None:
    code = (
        "import os, subprocess, threading\n"
        "children = [subprocess.Popen(['cat'], stdin=subprocess.PIPE) for _ in range(20)]\n"
        "opened = [os.open('/dev/null', os.O_RDONLY) for _ in range(100)]\n"
        "open('big', 'wb').write(bytearray(50 << 20))\n"
        "[child.stdin.close() or child.wait() for child in children]\n"
        "print('done')"
    )

    finished = await python(level, workspace, code)

    assert (finished.stdout, finished.stderr) == (b"done\n", b"")


# --- S17: arguments that would be commands somewhere else

WORDS = [
    "--output=/etc/x",
    ";id",
    "`id`",
    "$(id)",
    "|id",
    "a\nb; id",
    "&& id",
    "> /etc/x",
    "*",
    "-rf",
    "ü\u202e",
    "{a,b}",
]


async def test_a_word_is_a_word(tmp_path: Path) -> None:
    shell = ShellTool(home=Home(str(tmp_path), str(tmp_path / "w"), str(tmp_path / "s")), programs=["printf"])

    answer = await shell(argv=["printf", "<%s>", *WORDS])

    assert answer["stdout"] == "".join(f"<{word}>" for word in WORDS)


async def test_what_no_program_can_be_given_is_refused(tmp_path: Path) -> None:
    shell = ShellTool(home=Home(str(tmp_path), str(tmp_path / "w"), str(tmp_path / "s")), programs=["printf"])

    with pytest.raises(ValueError, match="without NUL"):
        await shell(argv=["printf", "a\0b"])
    for program_name in ("printf;id", "printf id", "$(id)", "printf\n", "|id", "/bin/sh"):
        with pytest.raises((PermanentError, ValueError)):
            await shell(argv=[program_name])


# --- S19: secrets of the service

SERVICE = """
import asyncio, os, sys
from acting.process.launcher import Program, run
from acting.process.detect import offered
levels, workspace, code, bwrap = map(int, sys.argv[1].split()), sys.argv[2], sys.argv[3], sys.argv[4] or None
held = os.open(os.environ["HELD"], os.O_RDONLY)
kept = os.environ["SPAR_TOKEN"]
argv = (sys.executable, "-c", code, str(os.getpid()), str(held))
env = {"PATH": "/usr/bin:/bin", "HOME": workspace}
for level in levels:
    program = Program(sys.executable, argv, workspace, env, sandbox=offered(bwrap).spec(workspace, level=level))
    finished = asyncio.run(run(program, timeout=20))
    sys.stdout.buffer.write(finished.stdout + finished.stderr + b"=lev" + b"el=")
"""

# Looks at every process, from inside, for what the service holds.
SPY = """
import os, sys
service, held = sys.argv[1:]
print(os.environ)
for pid in {service, str(os.getppid()), "self", *filter(str.isdigit, os.listdir("/proc"))}:
    for name in ("environ", "cmdline"):
        try:
            print(pid, name, open(f"/proc/{pid}/{name}", errors="replace").read(10000))
        except OSError:
            pass
for pid in (service, str(os.getppid())):
    try:
        print(pid, open(f"/proc/{pid}/fd/{held}").read(100))
    except OSError:
        pass
    try:
        with open(f"/proc/{pid}/mem", "rb") as memory:
            for line in open(f"/proc/{pid}/maps"):
                if "[stack]" in line or "[heap]" in line:
                    begin, end = (int(part, 16) for part in line.split()[0].split("-"))
                    memory.seek(begin)
                    found = memory.read(end - begin)
                    at = found.find(b"env-" + b"canary")
                    if at >= 0:
                        print(pid, "memory", found[at:at + 20])
    except (OSError, ValueError):
        pass
for number in range(3, 256):
    try:
        print("inherit" + "ed", os.pread(number, 1000, 0))
    except OSError:
        pass
"""


@pytest.fixture
async def spied(workspace: Path, tmp_path: Path) -> dict[int, str]:
    """What a program sees at each level of a service that has secrets in its environment, its memory and a file."""
    (tmp_path / "held").write_text("fd-canary")
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(sys.path), "SPAR_TOKEN": "env-canary"}
    service = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVICE, " ".join(map(str, OFFERED)), str(workspace), SPY, OFFER.bwrap),
        env={**env, "HELD": str(tmp_path / "held")},
        stdout=subprocess.PIPE,
        cwd=tmp_path,
    )
    said, _ = await service.communicate()
    return dict(zip(OFFERED, said.decode("utf-8", "replace").split("=level="), strict=False))


async def test_in_a_sandbox_no_secret_of_the_service_is_seen_and_without_one_by_root_alone(
    spied: dict[int, str],
) -> None:
    for level in OFFERED[1:]:
        assert "environ" in spied[level]  # it did look
        assert "env-canary" not in spied[level]
        assert "fd-canary" not in spied[level]
    assert "inherited" not in spied[0]
    assert ("env-canary" in spied[0]) == (os.geteuid() == 0)


@every_sandbox
async def test_in_a_sandbox_files_of_the_user_and_the_service_are_not_seen_nor_changed(
    level: int, workspace: Path, ground: Path
) -> None:
    for name in (".ssh/id_ed25519", "state/memory.db", "config.toml", ".bashrc", "venv/pyvenv.cfg"):
        (ground / name).parent.mkdir(exist_ok=True)
        (ground / name).write_text(CANARY)
    script = "for f in .ssh/id_ed25519 state/memory.db config.toml .bashrc venv/pyvenv.cfg; do"
    script += (
        " cat ../$f; echo x >> ../$f; mv ../$f ../$f.old; rm -f ../$f; chmod 777 ../$f; touch -d 2001-01-01 ../$f;"
    )
    script += " ln ../$f link; cat link; done; cat ~/.ssh/*; echo twin > mine; cat mine"

    finished = await sh(level, workspace, script)

    assert finished.stdout == b"twin\n"
    for name in (".ssh/id_ed25519", "state/memory.db", "config.toml", ".bashrc", "venv/pyvenv.cfg"):
        assert (ground / name).read_text() == CANARY
        assert (ground / name).stat().st_mtime > 1_600_000_000
        assert (ground / name).stat().st_mode & 0o777 == 0o644


async def test_level_0_cannot_prevent_that_a_program_reads_and_writes_what_its_user_may(
    workspace: Path, outside: Path
) -> None:
    finished = await sh(0, workspace, "cat ../outside/secret; echo changed > ../outside/script")

    assert finished.stdout.decode() == CANARY
    assert (outside / "script").read_text() == "changed\n"


@every_sandbox
async def test_in_a_sandbox_no_network_is_reached_but_ones_own_loopback(level: int, workspace: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        code = (
            "import socket\n"
            f"for address in ('169.254.169.254', 80), ('127.0.0.1', {listener.getsockname()[1]}), ('1.1.1.1', 53):\n"
            "    try: print('reached', socket.create_connection(address, timeout=2))\n"
            "    except OSError as error: print('refused')\n"
            "own = socket.create_server(('127.0.0.1', 0))\n"
            "socket.create_connection(own.getsockname(), timeout=2); print('twin')"
        )
        finished = await python(level, workspace, code)

        assert finished.stdout == b"refused\n" * 3 + b"twin\n"
        with pytest.raises(BlockingIOError):
            listener.accept()


@every_sandbox
async def test_with_network_granted_the_loopback_is_the_hosts(level: int, workspace: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        code = f"import socket; socket.create_connection({address!r}, timeout=5); print('reached')"
        path = sys.executable
        spec = OFFER.spec(str(workspace), network=True, level=level)
        finished = await run(Program(path, (path, "-c", code), str(workspace), ENV, sandbox=spec), timeout=20)

    assert (finished.stdout, finished.stderr) == (b"reached\n", b"")


# --- the ways out that sandboxes are known for. {out} is the folder outside, {canary} what lies there.

SYSTEM_CALL = "import ctypes, os; c = ctypes.CDLL(None, use_errno=True); "
ESCAPES = {
    "nested user namespace": "unshare -Urm cat {out}/secret; unshare -Ur true && echo {canary}",
    "nested mount namespace": "unshare -m true && echo {canary}",
    "root of this process": "cat /proc/self/root{out}/secret",
    "root of any process": "cat /proc/[0-9]*/root{out}/secret; cat /proc/[0-9]*/cwd/../outside/secret",
    "hard link": "ln {out}/secret link && cat link; ln -P /proc/self/root{out}/secret link2 && cat link2",
    "symbolic link": "ln -s {out}/secret link; cat link; echo x > link; cp link copy; cat copy",
    "rename": "mv {out}/secret here; cat here; mv {out} there; cat there/secret",
    "bind mount": "mkdir m; mount --bind {out} m; cat m/secret; mount --rbind / m; cat m{out}/secret",
    "proc mounted again": "mkdir p; mount -t proc proc p && echo {canary}",
    "change of root": "chroot / true && echo {canary}",
    "preloaded library": "LD_PRELOAD={out}/secret cat {out}/secret; LD_LIBRARY_PATH=. cat {out}/secret",
    "hooks of a repository": "mkdir -p .git/hooks; echo 'cat {out}/secret' > .git/hooks/x; sh .git/hooks/x",
    "hooks of another": "echo x > {out}/script; chmod 777 {out}/script; rm {out}/script",
    "start file of a shell": "echo 'cat {out}/secret' > .bashrc; bash -ic true; ENV=.bashrc sh -ic true",
    "mode of a file outside": "chmod 000 {out}/secret; chmod 777 {out}; touch {out}/secret {out}/new",
    "descriptors by path": "cat /dev/fd/../../..{out}/secret; cat /proc/self/fd/0/..{out}/secret",
    "settings of the kernel": "f=/proc/sys/kernel/core_pattern; v=$(cat $f); echo $v > $f && echo {canary}",
    "host name": "hostname broken && hostname | grep broken && echo {canary}",
    "device": "mknod disk b 8 0 && echo {canary}; cat /dev/mem /dev/kmem /dev/vda /dev/sda | head -c 1 && false",
    "remount": "mount -o remount,rw / && echo {canary}; mount -o remount,rw /usr && echo {canary}",
    "setuid": "cp /bin/sh root; chmod u+s root; ./root -p -c 'cat {out}/secret'; su -c 'cat {out}/secret' < /dev/null",
}
CALLS = {  # expressions of Python that are not negative when the call was let through
    "ptrace": "c.ptrace(16, os.getppid(), 0, 0)",
    "memory of another process": "c.process_vm_readv(os.getppid(), 0, 0, 0, 0, 0)",
    "io_uring": "c.syscall(425, 8, ctypes.create_string_buffer(120))",
    "userfaultfd": "c.syscall(323 if os.uname().machine == 'x86_64' else 282, 1)",
    "bpf": "c.syscall(321 if os.uname().machine == 'x86_64' else 280, 0, 0, 0)",
    "keys": "c.syscall(250 if os.uname().machine == 'x86_64' else 219, 0, -3, 0)",
    "join of namespaces": "c.setns(os.open('/proc/1/ns/mnt', os.O_RDONLY), 0)",
    "new users by clone": "c.unshare(0x10000000)",
    "mount": "c.mount(b'none', b'/tmp', b'tmpfs', 0, 0)",
    "unix socket": "c.socket(1, 1, 0)",
    "packet socket": "c.socket(17, 3, 0)",
    "vsock": "c.socket(40, 1, 0)",
    "handle of a file": "c.open_by_handle_at(-100, ctypes.create_string_buffer(136), 0)",
    "clock": "c.clock_settime(0, ctypes.create_string_buffer(16))",
}


@every_sandbox
async def test_no_known_way_leads_out(level: int, workspace: Path, outside: Path) -> None:
    ways = {name: way.replace("{out}", str(outside)).replace("{canary}", CANARY) for name, way in ESCAPES.items()}
    each = [f"mkdir '{name}'; (cd '{name}'; {way}; echo twin > file; cat file)" for name, way in ways.items()]

    finished = await sh(level, workspace, "\n".join(f"{one}; echo = >&2; echo =" for one in each), timeout=60)

    for name, out, err in zip(ways, finished.stdout.split(b"=\n"), finished.stderr.split(b"=\n"), strict=False):
        assert CANARY.encode() not in out + err.replace(ways[name].encode(), b""), name
        assert out.endswith(b"twin\n"), name
    assert finished.stdout.count(b"=\n") == len(ways)
    assert (outside / "secret").read_text() == CANARY
    assert (outside / "script").read_text() == "#!/bin/sh\n"
    assert {file.name for file in listed(outside)} == {"secret", "script"}
    assert (outside / "secret").stat().st_mode & 0o777 == 0o644


@every_sandbox
async def test_no_call_of_the_kernel_that_leads_out_is_let_through(level: int, workspace: Path) -> None:
    each = [f"try: found = {call}\nexcept OSError: found = -1\nif found >= 0: print({name!r})\n"
            for name, call in CALLS.items()]  # fmt: skip

    finished = await python(level, workspace, "".join([f"{SYSTEM_CALL}\n", *each, "print('over')"]))

    assert (finished.stdout, finished.stderr) == (b"over\n", b"")


@every_sandbox
async def test_no_descriptor_is_passed_in_over_a_socket_of_the_workspace(
    level: int, workspace: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("door")
        listener.listen()
        listener.setblocking(False)
        code = (
            "import socket\n"
            "left, right = socket.socketpair(); left.send(b'x'); print(right.recv(1))\n"
            "s = socket.socket(socket.AF_UNIX); s.connect('door'); print('out')"
        )

        finished = await python(level, workspace, code)

        assert finished.stdout == b"b'x'\n"
        assert b"PermissionError" in finished.stderr
        with pytest.raises(BlockingIOError):
            listener.accept()
