"""Puts a process where it can do no harm: namespaces, private mounts, Landlock, no capabilities, a filter of calls.

Runs in the supervisor (see `process/supervisor`), not in the service: it knows its order (`spec` writes it) and the C
library. The order of the steps is not free: a process that Landlock holds can neither write its user map nor mount, so
namespaces come first, and a right is given up only after the last step that needs it. Every function raises OSError
when the kernel refuses, and then the program must not be started.

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
_SECURE_BITS = 0b1110_1111  # root means nothing, capabilities are neither kept nor raised, and all of it is locked
_RIGHTS_TO_A_FILE = 0b1100_0000_0000_0111  # execute, write, read, truncate, talk to the device


def _checked(answer: int) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer


def enter_namespaces() -> None:
    """Give the caller users of its own, in which it is who it was, and its next child pids of their own."""
    uid, gid = os.geteuid(), os.getegid()
    _checked(_C.unshare(_NEW_USERS | _NEW_PIDS))
    for name, content in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123 - pathlib would cost each launch milliseconds
            file.write(content)


def furnish(order: dict[str, Any]) -> None:
    """Mount, as the first process of new pids, a `/proc` of these pids, empty `/tmp`s, all else read-only.

    What `order["keep"]` names is seen in the empty folders as before; `order["writable"]` is not made read-only.
    Landlock does not judge who changes the mode, owner or times of a file: only a read-only mount refuses that.
    """
    _checked(_C.unshare(_NEW_MOUNTS | _NEW_NAMES | _NEW_IPC | (0 if order["network"] else _NEW_NET)))
    _mount(None, b"/", None, _RECURSIVE | _PRIVATE)
    _set_read_only(b"/", True)
    _mount(b"proc", b"/proc", b"proc", _NO_SETUID | _NO_DEVICES | _NO_PROGRAMS)
    kept = [(path, os.open(path, os.O_PATH)) for path in order["keep"]]
    for folder in order["empty"]:
        _mount(b"tmpfs", folder, b"tmpfs", _NO_SETUID | _NO_DEVICES, b"mode=1777,size=%d" % order["tmp_bytes"])
    for path, descriptor in kept:
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
    try:  # since Linux 6.14 each pid namespace has a limit of its own, which holds for root too
        with open("/proc/sys/kernel/pid_max", "w") as file:  # noqa: PTH123
            file.write(str(max(order["processes"], 301)))
    except OSError:
        pass


def _mount(source: bytes | None, target: bytes, kind: bytes | None, flags: int, options: bytes | None = None) -> None:
    _checked(_C.mount(source, target, kind, ctypes.c_ulong(flags), options))


def _set_read_only(path: bytes, is_so: bool) -> None:
    """Make the mount that holds a path read-only with all below it, or a mount that was made here writable again."""
    attributes = struct.pack("=4Q", _READ_ONLY if is_so else 0, 0 if is_so else _READ_ONLY, 0, 0)
    deep = _WITH_ALL_BELOW if is_so else 0
    _checked(_C.syscall(_SET_MOUNT, _HERE, path, deep, attributes, ctypes.c_size_t(len(attributes))))


def _make_like(descriptor: int, path: bytes) -> None:
    """An empty file or folder to mount on, with the folders above it."""
    is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
    os.makedirs(path if is_folder else os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
    if not is_folder:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))


def _raise_loopback() -> None:
    """Programs talk to themselves over 127.0.0.1; here they are alone with it."""
    descriptor = _checked(_C.socket(2, 2, 0))
    try:
        request = ctypes.create_string_buffer(struct.pack("16sH22x", b"lo", 0x49))  # up, loopback, running
        _checked(_C.ioctl(descriptor, ctypes.c_ulong(0x8914), request))  # SIOCSIFFLAGS
    finally:
        os.close(descriptor)


def give_up_rights(order: dict[str, Any]) -> None:
    """The last steps before the program takes over, with `no_new_privs` set; nothing here can be taken back."""
    _drop_capabilities()
    _restrict_paths(order["ruleset"], order["rules"])
    # Last, and nothing after it but `execve`: from here on what the filter names is denied to us too.
    filter_ = ctypes.create_string_buffer(order["filter"], len(order["filter"]))
    program = struct.pack("@HP", len(order["filter"]) // 8, ctypes.addressof(filter_))
    _checked(_C.prctl(_SET_SECCOMP, 2, program, 0, 0))


def _drop_capabilities() -> None:
    for number in range(64):
        if _C.prctl(_DROP_FROM_BOUND, number, 0, 0, 0) < 0:
            break  # there are no more, or there is no right to drop them, and then there is none to use them
    _C.prctl(_SET_SECURE_BITS, _SECURE_BITS, 0, 0, 0)
    _checked(_C.capset(struct.pack("=Ii", 0x2008_0522, 0), bytes(24)))


def _restrict_paths(ruleset: bytes, rules: list[tuple[bytes, int]]) -> None:
    handled = struct.unpack_from("=Q", ruleset)[0]
    set_ = _checked(_C.syscall(_CREATE_RULESET, ruleset, ctypes.c_size_t(len(ruleset)), 0))
    for path, rights in rules:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # not every machine has all of it, and what cannot be reached need not be granted
        try:
            mask = handled if stat.S_ISDIR(os.fstat(descriptor).st_mode) else handled & _RIGHTS_TO_A_FILE
            rule = struct.pack("=Qi", rights & mask, descriptor)
            _checked(_C.syscall(_ADD_RULE, set_, 1, rule, 0))
        finally:
            os.close(descriptor)
    _checked(_C.syscall(_RESTRICT_SELF, set_, 0))
    os.close(set_)
