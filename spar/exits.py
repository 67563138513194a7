"""How a process ends: the codes of sysexits.h, in the sense in which systemd units use them."""

from __future__ import annotations

OK = 0
FAILED = 1
USAGE = 64
DAMAGED = 65
UNAVAILABLE = 69
GAVE_UP = 70
CANNOT_CREATE = 73
UNFINISHED = 75
NO_PERMISSION = 77
CONFIG = 78
TIMED_OUT = 124
