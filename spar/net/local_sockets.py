"""The control sockets of the services of this machine, from the kernel's list of Unix sockets."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from spar.net.control_socket import SOCKET_NAME

#: The kernel's list, and the flag of sockets that listen (net/unix/af_unix.c).
_SOCKETS: Final = Path("/proc/net/unix")
_LISTENS: Final = 0x10000


def own_sockets() -> list[Path]:
    """Return the control sockets on which processes of this user listen, as far as the kernel tells their paths.

    It does not tell the path of a socket that was made by way of a descriptor, since its path is long.
    """
    try:
        lines = _SOCKETS.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:  # another kernel
        return []
    rows = (words for line in lines if len(words := line.split(maxsplit=7)) == 8)
    paths = {Path(words[7]) for words in rows if words[7].endswith(f"/{SOCKET_NAME}") and int(words[3], 16) & _LISTENS}
    return sorted(path for path in paths if path.is_absolute() and _is_own(path))


def _is_own(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISSOCK(status.st_mode) and status.st_uid == os.geteuid()
