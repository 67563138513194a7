"""Places where a test lets the process die, to prove that nothing is lost.

`crashpoint("act.recorded")` names a place in the code. It does nothing unless the process was started to die there.
Where a microsecond counts, it is not even called (`if armed: crashpoint(…)`):

    SPAR_CRASH=act.recorded:2     die at the second time at this place, at once, as by `kill -9`
    SPAR_CRASH_LOG=path           append the label to this file each time, to list all places that are reached

Faults that do not end the process (a full disk, a hung call) are not part of this module.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping

from spar.errors import ConfigError

#: Exit code of a process killed by signal 9, as a shell reports it.
KILLED = 137

#: Functions that get each label that is reached; empty unless the process was started to die.
armed: list[Callable[[str], None]] = []


def crashpoint(label: str) -> None:
    """Die here, if this process was started to. From any thread."""
    for on_label in armed:
        on_label(label)


def arm(environ: Mapping[str, str]) -> None:
    """Apply these variables from now on; without them crash points do nothing.

    Raises: ConfigError for an invalid value; OSError when the log cannot be written.
    """
    where, log = environ.get("SPAR_CRASH", ""), environ.get("SPAR_CRASH_LOG", "")
    label, _, number = where.rpartition(":")
    if where and not (label and number.isdecimal() and int(number)):
        raise ConfigError(f"SPAR_CRASH is {where!r}, expected label:n with n counted from 1")
    armed.clear()
    if not (where or log):
        return
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600) if log else -1
    armed.append(_Armed(label, int(number or 0), file))


class _Armed:
    def __init__(self, label: str, number: int, file: int) -> None:
        self._label, self._number, self._file = label, number, file
        self._hits: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, label: str) -> None:
        with self._lock:  # two threads must not both count as the n-th, and each line is written whole
            self._hits[label] += 1
            if self._file >= 0:
                os.write(self._file, f"{label}\n".encode())
            if label == self._label and self._hits[label] == self._number:
                os._exit(KILLED)


try:
    arm(os.environ)
except ConfigError:
    pass  # a variable of another program that imports spar; `spar run` refuses it
