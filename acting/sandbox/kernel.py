"""Confinement of a process by the kernel: namespaces, private mounts, Landlock, no capabilities, a filter of calls.

This code runs in the supervisor (see `process/supervisor`), not in the service: it uses only its order (written by
`spec`) and the C library. The sequence of the steps matters: under Landlock a process can neither write its user map
nor mount, so namespaces come first, and a right is given up only after the last step that needs it. Every function
raises OSError when the kernel refuses, and then the program must not be started.

Source: man pages user_namespaces(7), mount_namespaces(7), capabilities(7), seccomp(2), landlock(7).
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct

TYPE_CHECKING = False  # `typing` itself would cost each launch three milliseconds
if TYPE_CHECKING:
    from typing import Any

_C = ctypes.CDLL(None, use_errno=True)
_NEW_MOUNTS, _NEW_NAMES, _NEW_IPC, _NEW_NET = 0x20000, 0x4000000, 0x8000000, 0x40000000
_NEW_USERS, _NEW_PIDS = 0x10000000, 0x20000000
_NO_SETUID, _NO_DEVICES, _NO_PROGRAMS, _BIND, _RECURSIVE, _PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
_SET_MOUNT, _HERE, _WITH_ALL_BELOW, _READ_ONLY = 442, -100, 0x8000, 1
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on every machine
_SET_SECCOMP, _DROP_FROM_BOUND, _SET_SECURE_BITS = 22, 24, 28
_SECURE_BITS = 0b1110_1111  # root has no privileges, capabilities are neither kept nor raised, and all bits are locked
_RIGHTS_TO_A_FILE = 0b1100_0000_0000_0111  # execute, write, read, truncate, talk to the device


def _check(answer: int) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer


def enter_namespaces() -> None:
    """Put the caller into a user namespace with the same user, and its next child into a new pid namespace."""
    uid, gid = os.geteuid(), os.getegid()
    _check(_C.unshare(_NEW_USERS | _NEW_PIDS))
    for name, content in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123 - pathlib would cost each launch milliseconds
            file.write(content)


def furnish(order: dict[str, Any]) -> None:
    """Mount, as the first process of a pid namespace, its own `/proc`, empty folders for `/tmp`, all else read-only.

    The paths in `order["keep"]` stay visible in the empty folders; `order["writable"]` stays writable. Landlock does
    not control changes of the mode, owner or times of a file: only a read-only mount refuses them.
    """
    _check(_C.unshare(_NEW_MOUNTS | _NEW_NAMES | _NEW_IPC | (0 if order["network"] else _NEW_NET)))
    _mount(None, b"/", None, _RECURSIVE | _PRIVATE)
    _set_read_only(b"/", True)
    _mount(b"proc", b"/proc", b"proc", _NO_SETUID | _NO_DEVICES | _NO_PROGRAMS)
    kept_open = [(path, os.open(path, os.O_PATH)) for path in order["keep"]]
    for folder in order["empty"]:
        _mount(b"tmpfs", folder, b"tmpfs", _NO_SETUID | _NO_DEVICES, b"mode=1777,size=%d" % order["tmp_bytes"])
    for path, descriptor in kept_open:
        _make_like(descriptor, path)
        _mount(b"/proc/self/fd/%d" % descriptor, path, None, _BIND | _RECURSIVE)
        os.close(descriptor)
    _mount(order["writable"], order["writable"], None, _BIND | _RECURSIVE)
    try:
        _set_read_only(order["writable"], False)
    except PermissionError:
        pass  # it was read-only before, for everybody
    if not order["network"]:
        _raise_loopback()
    try:  # since Linux 6.14 each pid namespace has its own limit, which binds root too
        with open("/proc/sys/kernel/pid_max", "w") as file:  # noqa: PTH123
            file.write(str(max(order["processes"], 301)))
    except OSError:
        pass


def _mount(source: bytes | None, target: bytes, kind: bytes | None, flags: int, options: bytes | None = None) -> None:
    _check(_C.mount(source, target, kind, ctypes.c_ulong(flags), options))


def _set_read_only(path: bytes, is_so: bool) -> None:
    """Make the mount of a path and all mounts below it read-only, or make a single mount writable again."""
    attributes = struct.pack("=4Q", _READ_ONLY if is_so else 0, 0 if is_so else _READ_ONLY, 0, 0)
    deep = _WITH_ALL_BELOW if is_so else 0
    _check(_C.syscall(_SET_MOUNT, _HERE, path, deep, attributes, ctypes.c_size_t(len(attributes))))


def _make_like(descriptor: int, path: bytes) -> None:
    """Create an empty file or folder as mount point, with its parent folders, of the type of the open descriptor."""
    is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
    os.makedirs(path if is_folder else os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
    if not is_folder:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))


def _raise_loopback() -> None:
    """Bring up 127.0.0.1 in the new network namespace: programs use it to talk to their own processes."""
    descriptor = _check(_C.socket(2, 2, 0))
    try:
        request = ctypes.create_string_buffer(struct.pack("16sH22x", b"lo", 0x49))  # up, loopback, running
        _check(_C.ioctl(descriptor, ctypes.c_ulong(0x8914), request))  # SIOCSIFFLAGS
    finally:
        os.close(descriptor)


def give_up_rights(order: dict[str, Any]) -> None:
    """Drop all rights, just before the program starts, with `no_new_privs` set. Nothing here can be undone."""
    _drop_capabilities()
    _restrict_paths(order["ruleset"], order["rules"])
    # The last step before `execve`: from here on the filter binds this process too.
    filter_ = ctypes.create_string_buffer(order["filter"], len(order["filter"]))
    program = struct.pack("@HP", len(order["filter"]) // 8, ctypes.addressof(filter_))
    _check(_C.prctl(_SET_SECCOMP, 2, program, 0, 0))


def _drop_capabilities() -> None:
    for number in range(64):
        if _C.prctl(_DROP_FROM_BOUND, number, 0, 0, 0) < 0:
            break  # there are no more; or this process may not drop them, and then it cannot use them either
    _C.prctl(_SET_SECURE_BITS, _SECURE_BITS, 0, 0, 0)
    _check(_C.capset(struct.pack("=Ii", 0x2008_0522, 0), bytes(24)))


def _restrict_paths(ruleset: bytes, rules: list[tuple[bytes, int]]) -> None:
    handled = struct.unpack_from("=Q", ruleset)[0]
    set_ = _check(_C.syscall(_CREATE_RULESET, ruleset, ctypes.c_size_t(len(ruleset)), 0))
    for path, rights in rules:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # not every machine has all paths, and a path that does not exist needs no grant
        try:
            mask = handled if stat.S_ISDIR(os.fstat(descriptor).st_mode) else handled & _RIGHTS_TO_A_FILE
            rule = struct.pack("=Qi", rights & mask, descriptor)
            _check(_C.syscall(_ADD_RULE, set_, 1, rule, 0))
        finally:
            os.close(descriptor)
    _check(_C.syscall(_RESTRICT_SELF, set_, 0))
    os.close(set_)
