"""Programs for other phases: the launcher and the sandbox behind the port of `spar.ports.services`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from acting.process.detect import SandboxCapability, offered
from acting.process.launcher import run
from acting.process.program import Program, environment, find_program, refuse_own_folders
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
        self._workspace = os.path.realpath(home.workspace)
        self._threads = Threads("programs", SystemClock())  # programs live in real time

    def refuse(self, readable: Sequence[str]) -> None:
        """Refuse paths that hold the service's own files. Raises: ConfigError."""
        refuse_own_folders(self._home, self._workspace, self._resolved(readable))

    async def run(self, terms: ProgramTerms) -> ProgramEnd:
        """Run a program to its end. Raises: PermanentError or TransientError when it cannot be started."""
        env = {**environment(terms.env, workspace=self._workspace), **terms.variables}
        path, spec = await self._threads.run(self._prepare, terms, env)
        cpu = int(terms.timeout * (os.cpu_count() or 1)) + 1
        program = Program(path, terms.argv, self._workspace, env, processes=_PROCESSES, cpu=cpu, sandbox=spec)
        end = await run(program, timeout=terms.timeout, max_output=terms.max_output)
        level = spec.level if spec else 0
        return ProgramEnd(end.exit, end.signal, end.stdout, end.stderr, end.omitted, end.timed_out, level)

    def _prepare(self, terms: ProgramTerms, env: dict[str, str]) -> tuple[str, SandboxSpec | None]:
        """Return the program's file and its sandbox, None for none. Blocks. Raises: PermanentError."""
        name = terms.argv[0]
        wanted = os.path.normpath(os.path.join(self._home.config, name)) if "/" in name else name  # noqa: PTH118
        path = find_program(wanted, env)
        if path is None:
            looked = f"looked for {wanted}" if "/" in name else f"PATH is {env['PATH']!r}"
            raise PermanentError(f"program {name!r} is not there or cannot be executed; {looked}")
        Path(self._workspace).mkdir(parents=True, exist_ok=True)
        if not terms.is_confined:
            return path, None
        readable = self._resolved(terms.readable)
        spec = self._offered().spec(
            self._workspace, least=terms.least_level, readable=readable, network=terms.network
        )  # fmt: skip
        return path, spec

    def _offered(self) -> SandboxCapability:
        bwrap = find_program("bwrap", environment((), workspace=self._workspace))
        is_ours = bwrap is not None and Path(os.path.realpath(bwrap)).is_relative_to(self._workspace)
        return offered(None if is_ours else bwrap, self._home.state)

    def _resolved(self, readable: Sequence[str]) -> tuple[str, ...]:
        return tuple(os.path.realpath(os.path.join(self._home.config, path)) for path in readable)  # noqa: PTH118
