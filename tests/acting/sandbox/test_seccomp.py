"""The filter of system calls, read back by an interpreter of its own."""

from __future__ import annotations

import errno
import struct

import pytest

from acting.sandbox import landlock
from acting.sandbox.seccomp import deny_list

ALLOW, FAIL = 0x7FFF0000, 0x00050000
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def verdict(filter_: bytes, machine: int, number: int, *args: int) -> int:
    """What the kernel would say: an error number, or 0 for a call that is let through."""
    seen = struct.pack("=IIQ6Q", number, machine, 0, *args, *(0,) * (6 - len(args)))
    accumulator = at = 0
    while True:
        code, yes, no, value = struct.unpack_from("=HBBI", filter_, 8 * at)
        at += 1
        if code == 0x20:
            accumulator = struct.unpack_from("=I", seen, value)[0]
        elif code == 0x06:
            return 0 if value == ALLOW else value - FAIL
        else:
            holds = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[code]
            at += yes if holds else no


# call, arguments, its numbers on the two machines, what becomes of it
CASES = [
    ("read", (), (0, 63), 0),
    ("execve", (), (59, 221), 0),
    ("openat", (), (257, 56), 0),
    ("memfd_create", (), (319, 279), 0),
    ("socketpair", (1,), (53, 199), 0),
    ("ptrace", (), (101, 117), errno.EPERM),
    ("mount", (), (165, 40), errno.EPERM),
    ("unshare", (), (272, 97), errno.EPERM),
    ("bpf", (), (321, 280), errno.EPERM),
    ("keyctl", (), (250, 219), errno.EPERM),
    ("userfaultfd", (), (323, 282), errno.EPERM),
    ("open_by_handle_at", (), (304, 265), errno.EPERM),
    ("io_uring_setup", (), (425, 425), errno.ENOSYS),
    ("clone3", (), (435, 435), errno.ENOSYS),
    ("clone as fork does", (0x11,), (56, 220), 0),
    ("clone as threads do", (0x3D0F00,), (56, 220), 0),
    ("clone with new users", (0x10000011,), (56, 220), errno.EPERM),
    ("clone with new pids, high half set", (0x1_2000_0011,), (56, 220), errno.EPERM),
    ("socket inet", (2,), (41, 198), 0),
    ("socket inet6", (10,), (41, 198), 0),
    ("socket netlink", (16,), (41, 198), 0),
    ("socket unix", (1,), (41, 198), errno.EACCES),
    ("socket unix, high half set", (0x1_0000_0001,), (41, 198), errno.EACCES),
    ("socket vsock", (40,), (41, 198), errno.EACCES),
    ("socket packet", (17,), (41, 198), errno.EACCES),
    ("ioctl that asks for a window's size", (0, 0x5413), (16, 29), 0),
    ("ioctl that types for the user", (0, 0x5412), (16, 29), errno.EPERM),
]


@pytest.mark.parametrize(("args", "numbers", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
@pytest.mark.parametrize(("column", "machine"), [(0, "x86_64"), (1, "aarch64")])
def test_what_leads_out_is_denied_and_the_rest_is_let_through(
    column: int, machine: str, args: tuple[int, ...], numbers: tuple[int, int], expected: int
) -> None:
    filter_ = deny_list(machine)
    assert filter_ is not None

    assert verdict(filter_, AUDIT[machine], numbers[column], *args) == expected


def test_other_calling_conventions_are_no_way_around() -> None:
    filter_ = deny_list("x86_64")
    assert filter_ is not None

    assert verdict(filter_, 0x40000003, 3) == errno.EPERM  # i386
    assert verdict(filter_, AUDIT["x86_64"], 0x40000000 | 101) == errno.ENOSYS  # x32


def test_a_machine_that_is_not_known_gets_no_filter() -> None:
    assert deny_list("s390x") is None


def test_each_version_of_landlock_is_asked_for_what_it_knows() -> None:
    asked = {version: landlock.ruleset(version) for version in range(1, 12)}

    assert [len(asked[version]) for version in (1, 3, 4, 5, 6, 7, 11)] == [8, 8, 16, 16, 24, 24, 24]
    assert [landlock.handled(version).bit_length() for version in (1, 2, 3, 4, 5, 9)] == [13, 14, 15, 15, 16, 16]
    assert struct.unpack("=QQQ", asked[7]) == (0xFFFF, 0, 3)


def test_the_right_to_write_makes_no_devices() -> None:
    assert landlock.writing(7) & (1 << 6 | 1 << 11 | 1 << 15) == 0
