"""Programs for other phases: the launcher and the sandbox behind the port of `spar.ports.services`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from acting.process.detect import Confinement
from acting.process.launcher import run
from acting.process.program import Program, environment, find_program
from acting.sandbox.spec import SandboxSpec
from spar.clock import SystemClock
from spar.errors import PermanentError
from spar.ports.services import ProgramEnd, ProgramTerms
from spar.protocols import Home
from spar.threads import Threads

_PROCESSES = 512


class SandboxedPrograms:
    """Runs programs in the workspace, in the strongest sandbox that this machine offers. Implements `Programs`.

    A bare name is searched on PATH, a path with folders is relative to the configuration's folder.
    """

    def __init__(self, *, home: Home) -> None:
        self._home = home
        self._threads = Threads("programs", SystemClock())  # programs live in real time

    def refuse(self, readable: Sequence[str]) -> None:
        """Refuse paths that hold the service's own files. Raises: ConfigError."""
        Confinement(self._home, readable).refuse_own_folders()

    async def run(self, terms: ProgramTerms) -> ProgramEnd:
        """Run a program to its end. Raises: PermanentError or TransientError when it cannot be started."""
        confinement = Confinement(self._home, terms.readable, network=terms.network, level=terms.sandbox)
        workspace = confinement.workspace
        env = {**environment(terms.env, workspace=workspace), **terms.variables}
        path, spec = await self._threads.run(self._prepare, terms.argv[0], env, confinement)
        cpu = int(terms.timeout * (os.cpu_count() or 1)) + 1
        program = Program(path, terms.argv, workspace, env, processes=_PROCESSES, cpu=cpu, sandbox=spec)
        return await run(program, timeout=terms.timeout, max_output=terms.max_output)

    def _prepare(self, name: str, env: dict[str, str], confinement: Confinement) -> tuple[str, SandboxSpec | None]:
        """Return the program's file and its sandbox, None for none. Blocks. Raises: PermanentError."""
        wanted = os.path.normpath(os.path.join(self._home.config, name)) if "/" in name else name  # noqa: PTH118
        path = find_program(wanted, env)
        if path is None:
            looked = f"looked for {wanted}" if "/" in name else f"PATH is {env['PATH']!r}"
            raise PermanentError(f"program {name!r} is not there or cannot be executed; {looked}")
        Path(confinement.workspace).mkdir(parents=True, exist_ok=True)
        return path, confinement.spec()
