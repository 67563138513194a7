"""Text of the systemd unit that runs the service as the owner of its folder, with a watchdog and confinement.

The module is pure. The confinement does not restrict namespaces, /proc and /sys: the sandbox of tools' programs uses
them, and no new /proc can be mounted where a part of the old one is hidden. The settings are explained in
systemd.service(5) and systemd.exec(5).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from msgspec import Struct

from spar.service import exit_codes as exits

#: The first line of a unit that `spar service install` writes; a file without it belongs to somebody else and is kept.
WRITTEN_BY: Final = "# Written by `spar service install`; `systemctl edit` keeps changes of yours apart from it."
#: Seconds that systemd waits for a stop beyond `service.drain`, and for a start; opening one module takes at most 60.
GRACE, START = 15, 180
#: Seconds without a beat of the watchdog after which systemd kills the process and starts it again.
WATCHDOG = 120
#: Exit codes after which another start would fail in the same way.
_HOPELESS = (exits.USAGE, exits.DAMAGED, exits.CANNOT_CREATE, exits.NO_PERMISSION, exits.CONFIG)

#: Confinement that also the service manager of an ordinary user can apply.
_CONFINEMENT_OF_USERS = (
    "NoNewPrivileges=yes",
    "LockPersonality=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "SystemCallArchitectures=native",
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
)
#: Confinement that only the service manager of the system can apply.
_CONFINEMENT_OF_SYSTEM = (
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
    """Values that the text of a unit contains.

    Attributes:
        python: The interpreter of the installation.
        config: The configuration file, absolute.
        folder: The folder of the configuration, absolute.
        user: The user of a system service; None: a service of the user's own manager.
        writes: Folders that the service writes to.
        drain: `service.drain`, in seconds.
        stands_by: Whether a start may wait without end for its turn.
        credentials: `NAME:FILE`, or `NAME` alone for a file in /etc/credstore.
    """

    python: Path
    config: Path
    folder: Path
    user: str | None
    writes: tuple[Path, ...]
    drain: float
    credentials: tuple[str, ...] = ()
    stands_by: bool = False


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
            f"ExecReload={command} reload",  # prints what is wrong with the configuration; a system may have no `kill`
            f"WorkingDirectory={_plain(str(terms.folder))}",
            *((f"User={terms.user}",) if is_system else ()),
            f"WatchdogSec={WATCHDOG}",
            "Restart=on-failure",  # exit 0 is none: a stop by `spar stop` lasts
            "RestartForceExitStatus=SIGHUP",  # a request to reload, before there was a handler
            "RestartSec=2",
            f"RestartPreventExitStatus={' '.join(map(str, _HOPELESS))}",
            f"TimeoutStartSec={'infinity' if terms.stands_by else START}",
            f"TimeoutStopSec={terms.drain + GRACE:g}",
            "KillMode=mixed",
            "UMask=0077",
            *(f"LoadCredential={_plain(credential)}" for credential in terms.credentials),
            *_CONFINEMENT_OF_USERS,
            *((*_CONFINEMENT_OF_SYSTEM, f"ReadWritePaths={writes}") if is_system else ()),
        ),
        "Install": (f"WantedBy={'multi-user' if is_system else 'default'}.target",),
    }
    lines = [WRITTEN_BY]
    for name, entries in sections.items():
        lines += ["", f"[{name}]", *entries]
    return "\n".join(lines) + "\n"


def _plain(path: str) -> str:
    """Return a path escaped for a place of the unit that takes no quotes. Raises: ValueError."""
    if any(not character.isprintable() for character in path):
        raise ValueError(f"{path!r}: a unit cannot name a path with control characters")
    if path.endswith("\\"):  # it would join the next line, for example `User=`, to this one
        raise ValueError(f"{path!r}: a unit cannot name a path with a backslash at its end")
    return path.replace("%", "%%")


def _quoted(word: str) -> str:
    """Return a word of a command or a list, escaped and quoted for a unit. Raises: ValueError."""
    escaped = _plain(word).replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{escaped}"' if set(escaped) & set(" '\";\\") else escaped
