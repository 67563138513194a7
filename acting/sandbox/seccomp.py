"""Compiler of the filter of system calls for programs in a sandbox: a short list of calls that are denied.

An allow list breaks programs with each new version of the C library. This is a deny list: calls that lead out of a
namespace, reach into other processes, or open large parts of the kernel. The filter is classic BPF, written by hand,
because the supervisor that installs it starts without site-packages and libseccomp is not on every machine. A denied
call fails with an error that programs know; nothing is killed. Machines other than x86-64 and arm64 get no filter.

Source: linux/seccomp.h, linux/filter.h; Docker's default profile for what ordinary programs can do without.
"""

from __future__ import annotations

import errno
import struct

_LOAD, _EQUAL, _AT_LEAST, _ANY_OF, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _FAIL = 0x7FFF_0000, 0x0005_0000
_NUMBER, _MACHINE, _FIRST, _SECOND = 0, 4, 16, 24  # offsets in struct seccomp_data; the low half of each argument
_FOREIGN_NUMBERS = 0x4000_0000  # x32: the same calls under other numbers
_MACHINES = {"x86_64": (0, 0xC000_003E), "aarch64": (1, 0xC000_00B7)}

_INET, _INET6, _NETLINK = 2, 10, 16
_NAMESPACES = 0x7E02_0000  # every CLONE_NEW… flag: mount, cgroup, uts, ipc, user, pid, net
_TYPE_FOR_A_TERMINAL = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX

# name: numbers on (x86_64, aarch64)
_DENIED: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "syslog": (103, 116),
    "iopl": (172, None),
    "ioperm": (173, None),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "vhangup": (153, 58),
}
# Programs use another call when these fail with "not implemented".
_MISSING: dict[str, tuple[int, int]] = {
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "clone3": (435, 435),  # its flags lie in memory, where no filter can look; `clone` takes its place
}
_CLONE, _SOCKET, _IOCTL = (56, 220), (41, 198), (16, 29)


def deny_list(machine: str) -> bytes | None:
    """Return the filter as an array of `struct sock_filter`; None for an unknown machine.

    Internet sockets are allowed: the program has a network namespace, or a grant of the network. Sockets of other
    families, above all unix ones, are denied: a filter cannot see the address of `connect`, and a network namespace
    does not cover vsock. `socketpair` is allowed.
    """
    if machine not in _MACHINES:
        return None
    column, audit = _MACHINES[machine]
    lines = [
        (_LOAD, 0, 0, _MACHINE),
        (_EQUAL, 1, 0, audit),
        _fail(errno.EPERM),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        lines += [(_AT_LEAST, 0, 1, _FOREIGN_NUMBERS), _fail(errno.ENOSYS)]
    for calls, error in ((_DENIED, errno.EPERM), (_MISSING, errno.ENOSYS)):
        for numbers in calls.values():
            if (number := numbers[column]) is not None:
                lines += [(_EQUAL, 0, 1, number), _fail(error)]
    for number, block in (
        (_CLONE[column], [(_LOAD, 0, 0, _FIRST), (_ANY_OF, 0, 1, _NAMESPACES), _fail(errno.EPERM)]),
        (_SOCKET[column], [(_LOAD, 0, 0, _FIRST), *_only((_INET, _INET6, _NETLINK)), _fail(errno.EACCES)]),
        (_IOCTL[column], [(_LOAD, 0, 0, _SECOND), *_none_of(_TYPE_FOR_A_TERMINAL)]),
    ):
        lines += [(_EQUAL, 0, len(block) + 1, number), *block, (_RETURN, 0, 0, _ALLOW)]
    lines.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


_Line = tuple[int, int, int, int]


def _fail(error: int) -> _Line:
    return (_RETURN, 0, 0, _FAIL | error)


def _only(values: tuple[int, ...]) -> list[_Line]:
    return [line for value in values for line in ((_EQUAL, 0, 1, value), (_RETURN, 0, 0, _ALLOW))]


def _none_of(values: tuple[int, ...]) -> list[_Line]:
    return [line for value in values for line in ((_EQUAL, 0, 1, value), _fail(errno.EPERM))]
