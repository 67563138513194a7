"""The unit under a real systemd: `make systemd` installs it, kills it, reloads it, takes it away, and says what it saw.

Needs root, systemd, and a kernel that lets root make namespaces, an overlay and cgroups; that is why the gate leaves it
out. systemd is the first process of namespaces of its own, over the files of this machine, none of which it changes:
its root is an overlay that goes with it. It has no network but a loopback.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup/unified") if Path("/sys/fs/cgroup/unified").exists() else Path("/sys/fs/cgroup")
BOOT = """
mount -t overlay overlay -o lowerdir=/,upperdir=$1/up,workdir=$1/work $1/root
cd $1/root
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs dev
for each in null zero full random urandom tty; do : >dev/$each; mount --bind /dev/$each dev/$each; done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
mount -t tmpfs tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ip link set lo up
printf '[Unit]\\nWants=systemd-journald.service\\n' >etc/systemd/system/spar-test.target
rm -f etc/machine-id
echo 0123456789abcdef0123456789abcdef >etc/machine-id
mount --make-rshared .
exec env -i container=spar PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot . /lib/systemd/systemd --unit=spar-test.target \
    --show-status=no
"""
CONFIG = """
[[sensors]]
use = "messages"
options = { trust = "trusted" }

[[sensors]]
use = "webhook"
name = "alerts"
options = { format = "alertmanager", token = { credential = "alerts-token" } }

[[rules]]
name = "answer"
when = { kind = "message" }
answer = "I heard you: {content:.200}"
"""
SPAR = f"{sys.executable} -m spar -c /srv/spar/config.toml"
INSTALL = f"{SPAR} service install --credential alerts-token:/etc/spar.token"
POST = "curl -s -o /dev/null -w '%{http_code}' -H 'Content-Type: application/json' -d '{\"alerts\":[]}' " \
    "http://127.0.0.1:8420/hooks/alerts -H 'Authorization: Bearer "  # fmt: skip
#: Each step: what it shows, the command, and a text that stands in what it says.
STORY = (
    ("a credential that is nowhere is told", f"{SPAR} service install", "journalctl -u spar"),
    ("… with its name, in the journal", "journalctl -u spar -o cat --no-pager", "alerts-token"),
    ("it is installed with the credential", INSTALL, "spar started"),
    ("systemd says that it runs", f"{SPAR} service status", "spar: active (running)"),
    ("it runs as the owner of its folder", "systemctl show spar -p User -p StatusText", "User=spar"),
    ("it answers", f"{SPAR} send hello", "I heard you: hello"),
    ("a caller with another word than the credential is refused", f"{POST}wrong'", "401"),
    ("a caller with the credential is heard", f"{POST}a-secret-of-mine'", "20"),
    ("it is killed", "systemctl kill -s KILL spar && sleep 6", ""),
    ("systemd has started it again", "for each in $(seq 60); do systemctl is-active -q spar && break; sleep 0.5; done; "
     f"{SPAR} service status", "active (running)"),
    ("it remembers", f"{SPAR} cycles list", "hello"),
    ("a change takes effect", f"sed -i 's/I heard/I have heard/' /srv/spar/config.toml; systemctl reload spar; "
     f"{SPAR} send hello", "I have heard you"),
    ("a wrong line is refused, and it goes on", "sed -i 's/answer =/anser =/' /srv/spar/config.toml; "
     f"systemctl reload spar || echo refused; {SPAR} send again; sed -i 's/anser =/answer =/' /srv/spar/config.toml",
     "I have heard you: again"),
    ("a stop of its own lasts", f"{SPAR} stop && sleep 6; {SPAR} service status", "inactive (dead), ended with 0"),
    ("… until it is started", f"systemctl start spar; {SPAR} send back", "I have heard you: back"),
    ("it stops in good order", f"systemctl stop spar; {SPAR} service status", "ended with 0"),
    ("it is taken away", f"systemctl start spar; {SPAR} service uninstall", "taken away"),
    ("what it keeps stays", "ls /srv/spar/state", "memory.db"),
)  # fmt: skip


@contextmanager
def booted() -> Iterator[int]:
    """Boot systemd; give the number of its process. Raises: CalledProcessError, OSError where this machine cannot."""
    folder, group = Path(tempfile.mkdtemp(dir="/var/tmp")), GROUPS / f"spar-test-{os.getpid()}"
    for name in ("up", "work", "root"):
        (folder / name).mkdir()
    group.mkdir()
    spaces = ["--pid", "--mount", "--ipc", "--uts", "--cgroup", "--net", "--propagation", "private"]
    enter = f'echo $$ >{group}/cgroup.procs; exec unshare --fork --kill-child {" ".join(spaces)} sh -euc "$0" sh "$1"'
    first = subprocess.Popen(["sh", "-euc", enter, BOOT, str(folder)])
    pid = 0
    try:
        for _ in range(300):
            found = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()
            pid = int(found[0]) if found else 0
            said = inside(pid, "systemctl is-system-running") if pid else ""
            if "running" in said or "degraded" in said:
                break
            if first.poll() is not None:
                raise OSError("systemd cannot be booted here: it needs root, namespaces, an overlay and cgroups")
            time.sleep(0.1)
        yield pid
    finally:
        if pid:
            os.kill(pid, signal.SIGKILL)  # the first of its namespace: all in it end
        first.wait(30)
        for each in (*sorted(group.rglob("*/"), reverse=True), group):  # what is below a group stands before it
            each.rmdir()
        shutil.rmtree(folder)


def inside(pid: int, command: str) -> str:
    """Run a command among the processes of the system; return what it says."""
    enter = ["nsenter", "-t", str(pid), "-m", "-p", "-i", "-u", "-C", "-n", "-r", "-w", "sh", "-c", command]
    done = subprocess.run(enter, capture_output=True, text=True, timeout=120)
    return done.stdout + done.stderr


def main() -> int:
    failed = 0
    with booted() as pid:
        inside(pid, "useradd --system --home-dir /srv/spar --create-home spar; chmod o+x /root")
        inside(pid, "printf a-secret-of-mine >/etc/spar.token; chmod 600 /etc/spar.token")
        inside(pid, f"cat >/srv/spar/config.toml <<'E'\n{CONFIG}E\nchown -R spar: /srv/spar")
        for shows, command, expected in STORY:
            said = inside(pid, f"cd /srv/spar; {command}")
            is_well = expected in said
            failed += not is_well
            sys.stdout.write(f"{'ok    ' if is_well else 'FAILED'} {shows}" + ("\n" if is_well else f":\n{said}"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
