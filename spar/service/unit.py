"""The unit with which systemd runs the service: as the user who owns its folder, watched, and confined; pure.

What is said of confinement leaves namespaces, /proc and /sys alone: the sandbox of programs is built of them, and no
new /proc can be mounted where a part of the old one is hidden. The terms are those of systemd.service(5) and
systemd.exec(5).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from msgspec import Struct

from spar.service import exit_codes as exits

#: The first line of what `spar service install` writes; a file without it is somebody else's and left alone.
WRITTEN_BY: Final = "# Written by `spar service install`; `systemctl edit` keeps changes of yours apart from it."
#: Seconds that systemd waits for a stop beyond `service.drain`, and for a start: opening a module is bounded by 60.
GRACE, START = 15, 180
#: Seconds without progress after which systemd ends the process and starts it anew.
WATCHDOG = 120
#: Ends after which another start would end in the same way.
_HOPELESS = (exits.USAGE, exits.DAMAGED, exits.CANNOT_CREATE, exits.NO_PERMISSION, exits.CONFIG)

#: Confinement that a service manager of any user can grant.
_OF_ANYBODY = (
    "NoNewPrivileges=yes",
    "LockPersonality=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "SystemCallArchitectures=native",
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
)
#: Confinement that only that of the system can grant.
_OF_SYSTEM = (
    "CapabilityBoundingSet=",
    "AmbientCapabilities=",
    "ProtectSystem=strict",
    "ProtectHome=read-only",
    "PrivateTmp=yes",
    "PrivateDevices=yes",
    "ProtectClock=yes",
    "ProtectHostname=yes",
    "ProtectKernelModules=yes",
    "RemoveIPC=yes",
)


class UnitTerms(Struct, frozen=True):
    """Terms of a unit: the Python of the installation, the configuration's file and folder (absolute), the user
    (None: a service of the user's own manager), folders that the service writes to, `service.drain` in seconds, and
    credentials: `NAME:FILE`, or `NAME` alone for one in /etc/credstore."""

    python: Path
    config: Path
    folder: Path
    user: str | None
    writes: tuple[Path, ...]
    drain: float
    credentials: tuple[str, ...] = ()


def unit(terms: UnitTerms) -> str:
    """Return the text of the unit. Raises: ValueError for a path that a unit cannot name."""
    is_system = terms.user is not None
    command = " ".join(map(_quoted, [str(terms.python), "-m", "spar", "-c", str(terms.config)]))
    writes = " ".join(f"-{_quoted(str(path))}" for path in terms.writes)
    sections = {
        "Unit": (
            f"Description=spar, a continuous agent in {_plain(str(terms.folder))}",
            *(("After=network-online.target", "Wants=network-online.target") if is_system else ()),
            "StartLimitIntervalSec=300",
            "StartLimitBurst=5",
        ),
        "Service": (
            "Type=notify",
            "NotifyAccess=main",
            f"ExecStart={command} run",
            f"ExecReload={command} reload",  # says what is wrong with the configuration; a system may have no `kill`
            f"WorkingDirectory={_plain(str(terms.folder))}",
            *((f"User={terms.user}",) if is_system else ()),
            f"WatchdogSec={WATCHDOG}",
            "Restart=always",
            "RestartSec=2",
            f"RestartPreventExitStatus={' '.join(map(str, _HOPELESS))}",
            f"TimeoutStartSec={START}",
            f"TimeoutStopSec={terms.drain + GRACE:g}",
            "KillMode=mixed",
            "UMask=0077",
            *(f"LoadCredential={_plain(each)}" for each in terms.credentials),
            *_OF_ANYBODY,
            *((*_OF_SYSTEM, f"ReadWritePaths={writes}") if is_system else ()),
        ),
        "Install": (f"WantedBy={'multi-user' if is_system else 'default'}.target",),
    }
    lines = [WRITTEN_BY]
    for name, entries in sections.items():
        lines += ["", f"[{name}]", *entries]
    return "\n".join(lines) + "\n"


def _plain(path: str) -> str:
    """Return a path where a unit takes it without quotes. Raises: ValueError."""
    if any(not each.isprintable() for each in path):
        raise ValueError(f"{path!r}: a unit cannot name a path with control characters")
    if path.endswith("\\"):  # the next line, which may be that of the user, would be a part of this one
        raise ValueError(f"{path!r}: a unit cannot name a path with a backslash at its end")
    return path.replace("%", "%%")


def _quoted(word: str) -> str:
    """Return a word of a command or a list as a unit takes it. Raises: ValueError."""
    escaped = _plain(word).replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{escaped}"' if set(escaped) & set(" '\";\\") else escaped
