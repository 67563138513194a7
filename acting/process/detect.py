"""Detection of the sandboxes that work on this machine, by trying to break out of each of them.

    capability = offered(which("bwrap"))            # a tenth of a second, once per process
    spec = capability.spec(workspace, least=1)      # PermanentError below level 1
    await run(Program(path, argv, workspace, env, sandbox=spec), timeout=10)

Level 0 is the treatment of every program by `launcher`: it limits resources and hides nothing. Level 1 uses the kernel:
namespaces, read-only mounts, Landlock, a filter of system calls. Level 2 uses bubblewrap: a root file system that holds
only what the program may see. A level counts only after every hostile probe failed in it and ordinary work succeeded;
versions of the kernel and settings of a container are not consulted. A request for more than the machine offers is an
error; it never gets a weaker sandbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from acting.process import probes
from acting.process.launcher import ISOLATED, run
from acting.process.program import Program, environment, find_program
from acting.sandbox import landlock
from acting.sandbox.spec import EMPTY, SandboxSpec
from spar.errors import ConfigError, PermanentError, SparError
from spar.fs.lock import holder
from spar.ports.services import Level
from spar.protocols import Home

_PATIENCE = 10.0  # seconds for the probes at one level


class Finding(Struct, frozen=True):
    """The result of the probes at one level: the probes that were `refused`, those that came `through`, and the
    `trouble` that kept the level from working at all ("" for none)."""

    level: int
    refused: tuple[str, ...]
    through: tuple[str, ...]
    trouble: str
    seconds: float

    @property
    def counts(self) -> bool:
        return not self.through and not self.trouble


class SandboxCapability(Struct, frozen=True):
    """The strongest `level` that passed, and the findings at all levels, the strongest first."""

    level: int
    findings: tuple[Finding, ...]
    missing: tuple[str, ...] = ()
    bwrap: str = ""

    def spec(
        self,
        workspace: str,
        *,
        least: int = 0,
        readable: Sequence[str] = (),
        network: bool = False,
        level: int | None = None,
    ) -> SandboxSpec | None:
        """Return a spec of the strongest level, or of `level`; None for level 0.

        Raises: PermanentError when that level is below `least`, or the machine does not offer it.
        """
        wanted = self.level if level is None else level
        passed = next((finding for finding in self.findings if finding.level == wanted and finding.counts), None)
        if wanted < least or wanted > self.level or (wanted and passed is None):
            raise PermanentError(
                f"sandbox level {max(wanted, least)} is asked for, this machine offers level {self.level}: {self.why}"
            )
        if passed is None:
            return None
        return SandboxSpec(wanted, workspace, tuple(readable), network, self.bwrap)

    @property
    def why(self) -> str:
        """Return why the machine offers no higher level."""
        failures = [
            f"level {finding.level}: {finding.trouble or 'not refused: ' + ', '.join(finding.through)}"
            for finding in self.findings
            if not finding.counts
        ]
        return "; ".join((*self.missing, *failures)) or "there is no more"

    def snapshot(self) -> dict[str, Any]:
        """Return the state for people and status pages."""
        passed = next((finding for finding in self.findings if finding.level == self.level and finding.counts), None)
        return {
            "level": self.level,
            "refused": len(passed.refused) if passed else 0,
            "probes": len(probes.HOSTILE),
            "landlock": landlock.version(),
            "why": self.why,
            "seconds": round(sum(finding.seconds for finding in self.findings), 3),
        }


class Confinement:
    """The folders and the sandbox of the programs of one part. `capability` is what this machine offers, None until it
    was looked for.

    Args: readable: what they may read besides the workspace, relative to the configuration's folder; level: the least
        level of their sandbox.
    """

    def __init__(
        self, home: Home, readable: Iterable[str] = (), *, network: bool = False, level: Level = "auto"
    ) -> None:
        self._home, self.network, self.level = home, network, level
        self.workspace = os.path.realpath(home.workspace)
        self.readable = tuple(os.path.realpath(os.path.join(home.config, path)) for path in readable)  # noqa: PTH118
        self.capability: SandboxCapability | None = None

    def refuse_own_folders(self) -> None:
        """Refuse folders that let programs reach the service's own files. Raises: ConfigError."""
        own = {"state": self._home.state, "configuration": self._home.config, "Python": sys.prefix}
        for what, folder in own.items():
            if Path(folder).resolve().is_relative_to(self.workspace):
                raise ConfigError(f"the workspace {self.workspace!r} must not hold the service's {what} {folder!r}")
        for path in self.readable:
            self._home.keep_apart(path, "readable")

    def find(self) -> SandboxCapability:
        """Return what this machine offers. Blocks at first. A bubblewrap in the workspace does not count: a tool could
        have put it there."""
        if self.capability is None:
            bwrap = find_program("bwrap", environment((), workspace=self.workspace))
            is_ours = bwrap is not None and Path(os.path.realpath(bwrap)).is_relative_to(self.workspace)
            self.capability = offered(None if is_ours else bwrap, self._home.state)
        return self.capability

    def spec(self, folder: str = "") -> SandboxSpec | None:
        """Return the sandbox of a program that works in this folder (by default the workspace); None for none. Blocks
        before `find`. Raises: PermanentError when this machine offers less."""
        if self.level == 0:
            return None
        least = 0 if self.level == "auto" else self.level
        return self.find().spec(folder or self.workspace, least=least, readable=self.readable, network=self.network)


def offered(bwrap: str | None = None, folder: str = "") -> SandboxCapability:
    """Try every level, in this thread, and remember the result for the life of the process.

    This blocks: do not call it in the event loop. Args: bwrap: the file of bubblewrap, if there is one that no tool can
    have put there; folder: a folder to write in for a moment, best not in `/tmp`, which a sandbox hides anyway.
    """
    capability = _CAPABILITIES.get(bwrap)
    if capability is None:
        capability = _CAPABILITIES[bwrap] = _tried(bwrap, folder)
    return capability


#: What the machine offers with this file of bubblewrap, whatever the folder that it was tried in.
_CAPABILITIES: dict[str | None, SandboxCapability] = {}


def _tried(bwrap: str | None, folder: str) -> SandboxCapability:
    missing = () if bwrap else ("level 2: bubblewrap (bwrap) is not on PATH",)
    candidates = [SandboxSpec(2, "", bwrap=bwrap)] if bwrap else []
    candidates.append(SandboxSpec(1, ""))
    findings = [examine(spec, folder) for spec in candidates]
    capability = SandboxCapability(
        max((finding.level for finding in findings if finding.counts), default=0), tuple(findings), missing, bwrap or ""
    )
    logger = logging.getLogger("spar.sandbox")
    if capability.level:
        logger.info(
            "programs of tools run at sandbox level %d: %d probes refused", capability.level, len(probes.HOSTILE)
        )
    else:
        logger.warning("programs of tools run without a sandbox (level 0): %s", capability.why)
    return capability


def examine(spec: SandboxSpec | None, folder: str = "") -> Finding:
    """Run the probes in a sandbox of this level, in this thread. The grants of the spec are not used; None is level 0.

    The files that they try to reach lie in `folder` or the home folder; in `/tmp` only when neither can be written.
    """
    began = time.perf_counter()
    level = spec.level if spec else 0
    through: set[str] = set()
    try:
        with tempfile.TemporaryDirectory(
            prefix=".spar-", dir=_writable_folder(folder), ignore_cleanup_errors=True
        ) as name:
            through, trouble = _run_probes(spec, Path(name).resolve())
    except (OSError, SparError) as error:
        trouble = str(error)
    refused = () if trouble else tuple(probe for probe in probes.HOSTILE if probe not in through)
    came = tuple(probe for probe in probes.HOSTILE if probe in through)
    return Finding(level, refused, came, trouble, time.perf_counter() - began)


def _writable_folder(folder: str) -> str | None:
    for place in filter(None, (folder, os.path.expanduser("~"))):  # noqa: PTH111 - never raises
        is_hidden = any(Path(place).resolve().is_relative_to(hidden) for hidden in EMPTY)
        if not is_hidden and os.access(place, os.W_OK | os.X_OK):
            return place
    return None


def _run_probes(spec: SandboxSpec | None, folder: Path) -> tuple[set[str], str]:
    """Run the probes. Return those that came through, and why ordinary work failed ("" when it succeeded)."""
    workspace, outside, canary = folder / "workspace", folder / "outside", f"canary-{secrets.token_hex(16)}"
    workspace.mkdir()
    outside.mkdir()
    (outside / "secret").write_text(f"file-{canary}")
    (outside / "secret").chmod(0o600)
    with _targets(outside, canary) as (victim, ports, sockets):
        script = Path(probes.__file__).read_text(encoding="utf-8")
        argv = (*ISOLATED, script, *map(str, (workspace, outside, victim.pid, *ports, canary)))
        sandbox = (
            None if spec is None else replace(spec, workspace=str(workspace), readable=(sys.prefix, sys.base_prefix))
        )
        program = Program(sys.executable, argv, str(workspace), {"PATH": "/usr/bin:/bin"}, sandbox=sandbox)
        with ThreadPoolExecutor(1) as pool:  # a new thread, because an event loop may run in this one
            finished = pool.submit(asyncio.run, run(program, timeout=_PATIENCE)).result()
        output = finished.stdout.decode("utf-8", "replace")
        signs = (
            f"file-{canary}" in output,
            (outside / "written").exists(),
            (outside / "linked").exists(),
            (outside / "secret").stat().st_mode & 0o777 != 0o600,
            f"CANARY=env-{canary}" in output,
            victim.poll() is not None,
            *map(_was_contacted, sockets),
            holder(workspace / "lock") is not None,  # held by a process that was left behind
        )
    through = {probe for probe, sign in zip(probes.HOSTILE, signs, strict=True) if sign}
    if probes.BENIGN in output:
        return through, ""
    errors = finished.stderr.decode("utf-8", "replace").strip().splitlines()
    return through, f"ordinary work failed: {errors[-1][:200] if errors else 'without a word'}"


@contextlib.contextmanager
def _targets(
    outside: Path, canary: str
) -> Iterator[tuple[subprocess.Popen[bytes], tuple[int, int], list[socket.socket]]]:
    """Start the targets of the probes: a process with a secret in its environment, and listening sockets."""
    with contextlib.ExitStack() as stack:
        kinds = (
            (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            (socket.AF_UNIX, socket.SOCK_STREAM, str(outside / "socket")),
            (socket.AF_UNIX, socket.SOCK_STREAM, f"\0{canary}"),
        )
        sockets = []
        for family, kind, address in kinds:
            listener = stack.enter_context(socket.socket(family, kind))
            listener.bind(address)
            listener.setblocking(False)
            if kind == socket.SOCK_STREAM:
                listener.listen()
            sockets.append(listener)
        victim = subprocess.Popen(
            ["sleep", "60"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": "/usr/bin:/bin", "CANARY": f"env-{canary}"},
        )
        stack.callback(victim.wait)
        stack.callback(victim.kill)
        yield victim, (sockets[0].getsockname()[1], sockets[1].getsockname()[1]), sockets


def _was_contacted(listener: socket.socket) -> bool:
    try:
        if listener.type == socket.SOCK_DGRAM:
            return bool(listener.recv(1))
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True
