"""Finds out which sandbox this machine really gives, by trying to break out of it, and gives out such sandboxes.

    capability = offered(which("bwrap"))            # a tenth of a second, once in the life of the process
    spec = capability.spec(workspace, least=1)      # PermanentError below level 1
    await run(Program(path, argv, workspace, env, sandbox=spec), timeout=10)

Level 0 is what `launcher` gives every program: it bounds what a program uses, and hides nothing from it. Level 1 is
the kernel's own means, all of them: namespaces, read-only mounts, Landlock, a filter of system calls. Level 2 is
bubblewrap: a root file system in which nothing else is there. A level counts only after every hostile probe failed in
it and ordinary work succeeded; what a kernel's version or a container's settings promise is not asked. Whoever asks
for more than there is gets an error, never something weaker.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from acting.process import probes
from acting.process.launcher import run
from acting.process.program import Program
from acting.sandbox import landlock
from acting.sandbox.spec import EMPTY, SandboxSpec
from spar.errors import PermanentError, SparError
from spar.file_lock import holder

_PATIENCE = 10.0


class Finding(Struct, frozen=True):
    """The result of the probes at one level: what was `refused`, what came `through`, why it is not `usable`."""

    level: int
    refused: tuple[str, ...]
    through: tuple[str, ...]
    trouble: str
    seconds: float

    @property
    def counts(self) -> bool:
        return not self.through and not self.trouble


class SandboxCapability(Struct, frozen=True):
    """The strongest `level` that passed, and what was found on the way, the strongest first."""

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
        """A spec of the strongest level, or of `level`; None is level 0.

        Raises: PermanentError when that is below `least`, or `level` is not offered.
        """
        wanted = self.level if level is None else level
        found = next((each for each in self.findings if each.level == wanted and each.counts), None)
        if wanted < least or wanted > self.level or (wanted and found is None):
            raise PermanentError(
                f"sandbox level {max(wanted, least)} is asked for, this machine offers level {self.level}: {self.why}"
            )
        if found is None:
            return None
        return SandboxSpec(wanted, workspace, tuple(readable), network, self.bwrap)

    @property
    def why(self) -> str:
        """Why there is not more, or nothing to say."""
        told = [
            f"level {each.level}: {each.trouble or 'not refused: ' + ', '.join(each.through)}"
            for each in self.findings
            if not each.counts
        ]
        return "; ".join((*self.missing, *told)) or "there is no more"

    def snapshot(self) -> dict[str, Any]:
        """For people and status pages."""
        passed = next((each for each in self.findings if each.level == self.level and each.counts), None)
        return {
            "level": self.level,
            "refused": len(passed.refused) if passed else 0,
            "probes": len(probes.HOSTILE),
            "landlock": landlock.version(),
            "why": self.why,
            "seconds": round(sum(each.seconds for each in self.findings), 3),
        }


@functools.cache
def offered(bwrap: str | None = None, folder: str = "") -> SandboxCapability:
    """Try out every level, in this thread; the answer is kept for as long as the process lives.

    `bwrap` is the file of bubblewrap, if there is one that no tool can have put there; `folder` one that we may write
    in for a moment, best not in `/tmp`, which a sandbox hides anyway. Not for the event loop.
    """
    missing = () if bwrap else ("level 2: bubblewrap (bwrap) is not on PATH",)
    candidates = [SandboxSpec(2, "", bwrap=bwrap)] if bwrap else []
    candidates.append(SandboxSpec(1, ""))
    findings = [examine(spec, folder) for spec in candidates]
    capability = SandboxCapability(
        max((each.level for each in findings if each.counts), default=0), tuple(findings), missing, bwrap or ""
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
    """Run the probes in a spec like this one (its grants are not used; None is level 0), in this thread.

    What they try to reach lies in `folder` or the home; in `/tmp` only when neither can be written.
    """
    began = time.perf_counter()
    level = spec.level if spec else 0
    through: set[str] = set()
    try:
        with tempfile.TemporaryDirectory(prefix=".spar-", dir=_ground(folder), ignore_cleanup_errors=True) as name:
            through, trouble = _attack(spec, Path(name).resolve())
    except (OSError, SparError) as error:
        trouble = str(error)
    refused = () if trouble else tuple(probe for probe in probes.HOSTILE if probe not in through)
    came = tuple(probe for probe in probes.HOSTILE if probe in through)
    return Finding(level, refused, came, trouble, time.perf_counter() - began)


def _ground(folder: str) -> str | None:
    for place in filter(None, (folder, os.path.expanduser("~"))):  # noqa: PTH111 - never raises
        is_hidden = any(Path(place).resolve().is_relative_to(each) for each in EMPTY)
        if not is_hidden and os.access(place, os.W_OK | os.X_OK):
            return place
    return None


def _attack(spec: SandboxSpec | None, folder: Path) -> tuple[set[str], str]:
    """Which probes came through, and what went wrong otherwise."""
    workspace, outside, canary = folder / "workspace", folder / "outside", f"canary-{secrets.token_hex(16)}"
    workspace.mkdir()
    outside.mkdir()
    (outside / "secret").write_text(f"file-{canary}")
    (outside / "secret").chmod(0o600)
    with _victims(outside, canary) as (victim, ports, sockets):
        script = Path(probes.__file__).read_text(encoding="utf-8")
        argv = (
            sys.executable,
            "-I",
            "-S",
            "-c",
            script,
            str(workspace),
            str(outside),
            str(victim.pid),
            *map(str, ports),
            canary,
        )
        own = None if spec is None else replace(spec, workspace=str(workspace), readable=(sys.prefix, sys.base_prefix))
        program = Program(sys.executable, argv, str(workspace), {"PATH": "/usr/bin:/bin"}, sandbox=own)
        with ThreadPoolExecutor(1) as pool:  # a thread in which surely no event loop runs yet
            finished = pool.submit(asyncio.run, run(program, timeout=_PATIENCE)).result()
        said = finished.stdout.decode("utf-8", "replace")
        signs = (
            f"file-{canary}" in said,
            (outside / "written").exists(),
            (outside / "linked").exists(),
            (outside / "secret").stat().st_mode & 0o777 != 0o600,
            f"CANARY=env-{canary}" in said,
            victim.poll() is not None,
            *map(_has_news, sockets),
            holder(workspace / "lock") is not None,  # a process that was left behind holds it,
        )
    through = {probe for probe, sign in zip(probes.HOSTILE, signs, strict=True) if sign}
    if probes.BENIGN in said:
        return through, ""
    heard = finished.stderr.decode("utf-8", "replace").strip().splitlines()
    return through, f"ordinary work failed: {heard[-1][:200] if heard else 'without a word'}"


@contextlib.contextmanager
def _victims(
    outside: Path, canary: str
) -> Iterator[tuple[subprocess.Popen[bytes], tuple[int, int], list[socket.socket]]]:
    """A process with a secret in its environment, and everything that can be connected to."""
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


def _has_news(listener: socket.socket) -> bool:
    try:
        if listener.type == socket.SOCK_DGRAM:
            return bool(listener.recv(1))
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True
