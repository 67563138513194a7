"""Constants of Landlock: the rights of its rules and which of them this kernel knows.

With Landlock a process gives up rights to files (since Linux 5.13), TCP (6.7), other processes' signals and abstract
sockets (6.12), without being root. This module only computes; `kernel` applies the rules. Landlock acts on paths, not
on inodes: a hard link in the workspace to a file elsewhere counts as a file in the workspace. It does not control
changes of mode, owner, times and attributes: alone, it would let a program make a home folder readable for everybody.

Source: Documentation/userspace-api/landlock.rst, linux/landlock.h.
"""

from __future__ import annotations

import ctypes
import struct

READ = 0b1101  # execute, read files, read folders
READ_FILE = 0b101
WRITE = 0b1_1111_1111_1111 & ~(1 << 6 | 1 << 11)  # the thirteen rights of version 1, but for device files
_REFER, _TRUNCATE, _IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15  # since versions 2, 3 and 5
_SCOPES = 0b11  # abstract unix sockets, signals; since version 6


def version() -> int:
    """Return Landlock's version here; 0 when the kernel or a container's filter does not offer it."""
    answer = int(ctypes.CDLL(None, use_errno=True).syscall(444, None, 0, 1))
    return max(0, answer)


def handled(version: int) -> int:
    """Return all rights to files that this version can refuse."""
    rights = 0b1_1111_1111_1111
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEVICE)):
        rights |= right if version >= since else 0
    return rights


def writing(version: int) -> int:
    """Return the rights in a writable folder: those of `handled` without making devices and sending them commands."""
    return handled(version) & (WRITE | _REFER | _TRUNCATE)


def ruleset(version: int) -> bytes:
    """Return a `struct landlock_ruleset_attr` with all that this version knows but TCP, which namespaces control."""
    fields = (handled(version), 0, _SCOPES)[: 3 if version >= 6 else 2 if version >= 4 else 1]
    return struct.pack(f"={len(fields)}Q", *fields)
