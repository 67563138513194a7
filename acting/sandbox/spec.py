"""Description of a sandbox: what a program may touch, and the orders for the kernel module and for bubblewrap.

A `SandboxSpec` is a value: a level and its grants. At level 1 the kernel confines the program, by an order for
`kernel`; at level 2 bubblewrap does, by its command line. Both give the same: the workspace to write; the system's
programs and libraries and a few files of `/etc` to read; an empty `/tmp`; own processes and network; and the filter of
system calls. This module starts, opens and changes nothing.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from acting.sandbox import landlock
from acting.sandbox.seccomp import deny_list

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
"""The folders of programs and libraries, to read and to execute."""
FILES = (
    *(f"/etc/{name}" for name in ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "locale.alias")),
    *(f"/etc/{name}" for name in ("passwd", "group", "nsswitch.conf", "localtime", "timezone", "os-release")),
    *(f"/etc/{name}" for name in ("hosts", "host.conf", "resolv.conf", "gai.conf", "services", "protocols")),
    *(f"/etc/{name}" for name in ("ssl/certs", "ssl/openssl.cnf", "ca-certificates", "pki/tls/certs")),
    *(f"/etc/{name}" for name in ("pki/ca-trust/extracted", "mime.types", "magic", "terminfo", "fonts")),
    "/sys/devices/system/cpu",
)
"""The files that programs look up; no `shadow`, no keys, no settings of services."""
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
EMPTY = ("/tmp", "/var/tmp", "/dev/shm")
"""The folders that everybody may write, and that are empty in a sandbox."""
_TMP_BYTES = 256 << 20


class SandboxSpec(Struct, frozen=True):
    """The level at which a program runs, 1 or 2, and its grants.

    The program may write in `workspace` and read the paths in `readable`; without `network` it has no network. `bwrap`
    is the file of bubblewrap, for level 2. `detect.SandboxCapability.spec` makes these values.
    """

    level: int
    workspace: str
    readable: tuple[str, ...] = ()
    network: bool = False
    bwrap: str = ""

    def reads(self, program: str) -> tuple[str, ...]:
        """Return the paths to read beside the system: the grants, the program's file, and the service's Python if it is
        used."""
        named, real = Path(program), os.path.realpath(program)
        ours = {
            prefix for prefix in (sys.prefix, sys.base_prefix) if Path(real).is_relative_to(os.path.realpath(prefix))
        }
        ours |= {prefix for prefix in (sys.prefix, sys.base_prefix) if named.is_relative_to(prefix)}
        wanted = {*self.readable, program, real, *(ours and (sys.prefix, sys.base_prefix))}
        return tuple(
            sorted(
                path
                for path in wanted
                if not any(Path(path).is_relative_to(part) for part in (*SYSTEM, *(wanted - {path})))
            )
        )


def confinement(spec: SandboxSpec, program: str, *, processes: int) -> dict[str, Any] | None:
    """Return the order for `kernel`; None when this machine has no Landlock, or there is no filter for it."""
    version, reads, filter_ = landlock.version(), spec.reads(program), call_filter()
    if not version or filter_ is None:
        return None
    folders = [path for path in EMPTY if Path(path).is_dir() and not Path(path).is_symlink()]
    rights = {
        **dict.fromkeys((*SYSTEM, *FILES, "/proc"), landlock.READ),
        **dict.fromkeys(reads, landlock.READ),
        **dict.fromkeys(_DEVICES, landlock.READ_FILE | landlock.WRITE),
        **dict.fromkeys((spec.workspace, *folders), landlock.READ | landlock.writing(version)),
    }
    inside_empty = {
        path
        for path in (*reads, spec.workspace)
        if any(Path(path).is_relative_to(folder_above) for folder_above in folders)
    }
    topmost = [
        path
        for path in inside_empty
        if not any(Path(path).is_relative_to(folder_above) for folder_above in inside_empty - {path})
    ]
    return {
        "network": spec.network,
        "processes": processes,
        "empty": [os.fsencode(path) for path in folders],
        "keep": [os.fsencode(path) for path in sorted(topmost) if os.access(path, os.F_OK)],
        "writable": os.fsencode(spec.workspace),
        "tmp_bytes": _TMP_BYTES,
        "ruleset": landlock.ruleset(version),
        "rules": [(os.fsencode(path), right) for path, right in rights.items()],
        "filter": filter_,
    }


def call_filter() -> bytes | None:
    """Return the filter of system calls for this machine."""
    return deny_list(platform.machine())


def bwrap_words(
    spec: SandboxSpec, program: str, *, cwd: str, env: Mapping[str, str], filter_at: int | None, report_at: int
) -> list[str]:
    """Return the arguments of bubblewrap before the program.

    They give its view of the file system, new namespaces of all kinds, and the descriptors of the filter and the
    report.
    """
    words = ["--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"]
    words += ["--share-net"] if spec.network else []
    words += ["--cap-drop", "ALL", "--clearenv"]
    for name, value in env.items():
        words += ["--setenv", name, value]
    for path in SYSTEM:
        if Path(path).is_symlink():
            words += ["--symlink", str(Path(path).readlink()), path]
        else:
            words += ["--ro-bind-try", path, path]
    for path in FILES:
        words += ["--ro-bind-try", path, path]
    words += ["--proc", "/proc", "--dev", "/dev"]
    for path in ("/tmp", "/var/tmp"):
        words += ["--size", str(_TMP_BYTES), "--tmpfs", path]
    for path, kind in sorted([*((path, "--ro-bind-try") for path in spec.reads(program)), (spec.workspace, "--bind")]):
        words += [kind, path, path]
    # Root may write the kernel's settings in `/proc/sys` even without capabilities, and bubblewrap leaves them
    # writable.
    words += ["--remount-ro", "/proc", "--remount-ro", "/", "--chdir", cwd, "--json-status-fd", str(report_at)]
    return [*words, *(("--seccomp", str(filter_at)) if filter_at is not None else ())]
