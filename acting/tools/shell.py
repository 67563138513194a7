"""Tool `shell`: runs one program with arguments, never a shell string.

The words of `argv` reach the program as they are: nothing expands, splits or joins them. The configuration lists the
programs that may run. They run in the strongest sandbox that works on this machine (see `process/detect`); no call can
change that. The process tree is dead when the call returns (see `process/launcher`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Self

from annotated_types import Ge, Gt, Len

from acting.process.detect import Confinement
from acting.process.launcher import KILL_GRACE, run
from acting.process.program import Program, environment, find_program, hide_memory
from acting.sandbox.command_fingerprint import file_digest, operands, why_not_standing
from acting.tooling.context import ToolContext
from acting.tooling.tool_schema import object_schema, text_of
from spar.clock import Clock, SystemClock
from spar.data.skills import FILE, parse_skill
from spar.errors import ConfigError, PermanentError, SparError
from spar.ports.services import Level, ProgramEnd, objection_to_words
from spar.protocols import Effect, Home, Host
from spar.threads import Threads
from spar.types.values import GRANTABLE

_HARMLESS = ("cat", "date", "df", "free", "head", "hostname", "ls", "tail", "uname", "uptime", "wc")
_NAMES = ("LANG", "LC_ALL", "LC_CTYPE", "TZ")
_LONGEST = 64 * 1024
_MOST_INPUT = 10 << 20
_LAST_WORDS = 2000
_PROCESSES = 512


class CommandError(SparError):
    """Error of a program that ran and failed; `output` is the result that the call would have returned."""

    def __init__(self, message: str, output: dict[str, Any]) -> None:
        super().__init__(message)
        self.output = output


class CommandTimeoutError(CommandError, TimeoutError):
    """Error of a program that was ended after its timeout; `output` holds its output until then."""


class ShellTool:
    """Runs the programs that are listed, each a name on PATH or an absolute path; `*` means any.

    `timeout` is seconds; of each stream `max_output` bytes are kept, its beginning and its end. A program whose exit
    code is not in `ok_exits` has failed. It is given only the variables named in `env`, PATH and HOME.

    `sandbox` is the least level ("auto": any, 0: none). In a sandbox a program writes in the workspace only, reads
    that, the system's programs and what is `readable`, and has no network unless `network`. `memory` bounds each
    process's address space in bytes (0: not). `skills` is a folder of skills beside the configuration: their programs
    may run as well, by their absolute path, with the variables of their skill.
    """

    name = "shell"
    effect: Effect = "once"
    concurrency = 4
    safe_with_untrusted = False
    brings_untrusted = True  # nobody knows what a program has read: a file that a stranger wrote, a page

    def __init__(
        self,
        *,
        home: Home,
        programs: Sequence[str] = _HARMLESS,
        timeout: Annotated[float, Gt(0)] = 60.0,
        max_output: Annotated[int, Ge(2)] = 256 * 1024,
        env: Sequence[str] = _NAMES,
        ok_exits: Annotated[Sequence[int], Len(1)] = (0,),
        sandbox: Level = "auto",
        readable: Sequence[str] = (),
        network: bool = False,
        memory: Annotated[int, Ge(0)] = 0,
        skills: str = "",
    ) -> None:
        self._home, self._programs, self._limit = home, tuple(programs), timeout
        self._max_output, self._env, self._ok_exits = max_output, tuple(env), frozenset(ok_exits)
        self._memory = memory
        self._confinement = Confinement(home, readable, network=network, level=sandbox)
        self._confinement.refuse_own_folders()
        self._skills = SkillPrograms(skills, home)
        self._confinement.readable += (self._skills.folder,) if skills else ()
        self._grantable: Sequence[str] = GRANTABLE
        self._clock: Clock = SystemClock()
        self.timeout = timeout + 3 * KILL_GRACE  # the tool's own timeout ends first: its error has the program's output
        self.schema = object_schema(
            self.name,
            f"Run a program, without a shell. Allowed: {self._known()}.",
            {
                "argv": {
                    "type": "array",
                    "items": {"type": "string"},
                    "minItems": 1,
                    "description": "The program and its arguments, one word an item.",
                },
                "stdin": {"type": "string", "description": "What the program reads."},
                "timeout": {
                    "type": "number",
                    "exclusiveMinimum": 0,
                    "maximum": timeout,
                    "description": f"Seconds after which the program is ended; {timeout:g} by default.",
                },
            },
            "argv",
        )

    def attach(self, host: Host) -> None:
        """Count running programs as work on the agent's clock."""
        self._clock = host.clock

    async def __aenter__(self) -> Self:
        """Find out which sandbox works before the first call, and hide this process's memory from other processes."""
        hide_memory()
        await self._find_sandbox()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Do nothing: a program ends with its call."""

    def snapshot(self) -> dict[str, Any]:
        """Return the sandbox of its programs, for people; `level` is None until it is known."""
        confinement = self._confinement
        sandbox = confinement.capability.snapshot() if confinement.capability else {"level": None}
        return {"sandbox": {**sandbox, "asked": confinement.level, "network": confinement.network}}

    async def __call__(
        self,
        *,
        argv: Sequence[str],
        stdin: str | None = None,
        timeout: float | None = None,
        context: ToolContext | None = None,
    ) -> dict[str, Any]:
        """Run a program in the workspace.

        Returns `exit`, `signal`, `stdout`, `stderr`, `truncated`, `duration` (seconds), `timed_out` and `sandbox`, the
        level it ran at. A `context` that carries what was approved (`binds`) makes it run that very file or nothing.

        Raises: ValueError for parameters that make no sense; PermanentError for a program that is not allowed, is not
        there or cannot be started, and for a sandbox that is not there; CommandError when it failed;
        CommandTimeoutError.
        """
        session = "main" if context is None else context.session
        words, folder, env, path = self._program(argv, session)
        limit = self._limit if timeout is None else timeout
        if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 < limit <= self._limit:
            raise ValueError(f"'timeout' must be above 0 and at most {self._limit:g} seconds, found {timeout!r}")
        input_bytes = None if stdin is None else _input(stdin)
        secrets = await Threads("skills", self._clock).run(self._variables, path) if self._skills.folder else {}
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - quick, and nearly always there
        await self._find_sandbox()
        spec, cpu = self._confinement.spec(folder), int(limit * (os.cpu_count() or 1)) + 1
        program = Program(path, words, folder, {**env, **secrets}, processes=_PROCESSES, cpu=cpu, memory=self._memory,
                          sandbox=spec, digest=_approved(context))  # fmt: skip
        with self._clock.working():
            end = await run(program, stdin=input_bytes, timeout=limit, max_output=self._max_output)
        return self._result(words[0], limit, end, secrets)

    def binds(self, params: Mapping[str, Any], session: str = "main") -> dict[str, Any]:
        """Return the facts beside the parameters that decide what a call does; an approval is bound to them. Blocks.

        `program` (resolved), its `sha256`, `cwd`, the names of the `variables` handed over and their `path`, `operands`
        (each argument that names a file of the workspace, with its SHA-256), and the `sandbox` level.

        Raises: ValueError, PermanentError or OSError for a call that could not run.
        """
        words, folder, env, path = self._program(params.get("argv"), session)
        path = os.path.realpath(path)
        env |= self._variables(path)
        confinement, spec = self._confinement, self._confinement.spec(folder)
        readable = list(confinement.readable)
        return {
            "program": path,
            "sha256": file_digest(path),
            "cwd": folder,
            "variables": sorted(env),
            "path": env["PATH"],
            "operands": operands(words[1:], folder),
            "sandbox": {"level": spec.level if spec else 0, "network": confinement.network, "readable": readable},
        }

    def grantable(self, params: Mapping[str, Any], session: str = "main") -> str:
        """Return why a call must not get a standing permission; "" when it may. Blocks.

        A program that runs other programs, or commands in its arguments, would turn one permission into a permission
        for everything: only the programs in `approval.grantable` may have one.
        """
        words, _, _, path = self._program(params.get("argv"), session)
        return why_not_standing(os.path.realpath(path), words, self._confinement.workspace, self._grantable)

    def allow_grants(self, programs: Sequence[str]) -> None:
        """Set the programs whose calls may get a standing permission."""
        self._grantable = programs

    def _program(self, argv: object, session: str) -> tuple[tuple[str, ...], str, dict[str, str], str]:
        """Return the words of a call of a session, its folder, its environment, and the program's file. Raises:
        ValueError, PermanentError."""
        words, folder = _words(argv), os.path.join(self._confinement.workspace, *self._home.parts_of(session))  # noqa: PTH118
        env = environment(self._env, workspace=folder)
        return words, folder, env, self._find(words[0], env, folder)

    def _variables(self, path: str) -> dict[str, str]:
        """Return the extra environment variables of a skill's program. Raises: PermanentError."""
        program = self._skills.program(path)
        return self._skills.variables(program) if program else {}

    async def _find_sandbox(self) -> None:
        if self._confinement.capability is None:
            with self._clock.working():
                await Threads("sandbox", self._clock).run(self._confinement.find)

    def _find(self, name: str, env: dict[str, str], folder: str) -> str:
        if own := self._skills.program(name):
            return own
        path = self._file(name, env, folder)
        if "*" not in self._programs and name not in self._programs:
            # `/bin/ls` is allowed like `ls` if `ls` on PATH is the same file.
            meant = {self._file(entry, env, folder) for entry in self._programs} if name.startswith("/") else {}
            if path is None or path not in meant:
                raise PermanentError(f"program {name!r} is not allowed; allowed: {self._known()}")
        if path is None:
            raise PermanentError(f"program {name!r} is not there or cannot be executed; PATH is {env['PATH']!r}")
        return path

    def _file(self, name: str, env: dict[str, str], folder: str) -> str | None:
        """Return a program's file: a bare name is searched on PATH, a path with folders begins in the workspace."""
        path = os.path.normpath(os.path.join(folder, name)) if "/" in name else name  # noqa: PTH118
        return find_program(path, env)

    def _known(self) -> str:
        named = [*self._programs, *(["programs of skills"] if self._skills.folder else [])]
        return "any" if "*" in self._programs else ", ".join(named) or "none"

    def _result(self, name: str, limit: float, end: ProgramEnd, secrets: Mapping[str, str]) -> dict[str, Any]:
        out, err = (without(stream.decode("utf-8", "replace"), secrets) for stream in (end.stdout, end.stderr))
        output = {
            "exit": end.exit,
            "signal": end.signal,
            "stdout": out,
            "stderr": err,
            "truncated": end.omitted > 0,
            "duration": end.duration,
            "timed_out": end.timed_out,
            "sandbox": end.sandbox,
        }
        if not end.timed_out and end.exit in self._ok_exits:
            return output
        last_output = (err.strip() or out.strip())[-_LAST_WORDS:]
        tail = f": {last_output}" if last_output else " and said nothing"
        kind = CommandTimeoutError if end.timed_out else CommandError
        raise kind(end.sentence(name, limit) + tail, output)


def _approved(context: ToolContext | None) -> str:
    """Return the hash of the approved program's file, "" without an approval."""
    bound = getattr(context, "binds", None)
    return str(bound.get("sha256", "")) if isinstance(bound, Mapping) else ""


def _words(argv: object) -> tuple[str, ...]:
    if isinstance(argv, str):
        raise ValueError(f"'argv' must be a list of words, not one string; did you mean {argv.split()!r:.200}?")
    if not isinstance(argv, Sequence) or not argv:
        raise ValueError(f"'argv' must be a list of words that begins with the program, found {argv!r:.200}")
    for word in argv:
        if not isinstance(word, str):
            raise ValueError(f"'argv' must hold text without NUL only, found {word!r:.200}")
        try:
            word.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise ValueError(f"'argv' holds a character that no program can be given: {word!r:.200}") from None
    if why := objection_to_words("argv", argv):
        raise ValueError(why)
    if (size := sum(len(word) + 1 for word in argv)) > _LONGEST:
        raise ValueError(f"'argv' has {size} characters, more than {_LONGEST}; give a long text as stdin")
    return tuple(argv)


def _input(stdin: object) -> bytes:
    try:
        return text_of("stdin", stdin, limit=_MOST_INPUT, empty=True).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ValueError(f"'stdin' has a lone surrogate at {error.start}, which is no text") from None


#: Most bytes of a `SKILL.md`.
_LARGEST: Final = 200_000
#: Shorter values are no secrets, and occur in any text.
_SHORTEST_SECRET: Final = 4


class SkillPrograms:
    """The programs in a folder of skills, and the environment variables that only they get.

    The folder belongs to the operator: it must not be where tools may write, or a tool could put a program there that
    reveals its variables. A program belongs to a skill only by the folder of its real path, with links resolved.
    Args: named: the folder, relative to the configuration's ("" for none).

    Raises: ConfigError for a folder that does not exist, or that tools may write to.
    """

    def __init__(self, named: str, home: Home) -> None:
        self.folder = os.path.realpath(os.path.join(home.config, named)) if named else ""  # noqa: PTH118
        if not named:
            return
        folder, workspace = Path(self.folder), Path(home.workspace).resolve()
        if not folder.is_dir():
            raise ConfigError(f"no folder {named!r}; looked for {self.folder}", path=("skills",))
        if folder.is_relative_to(workspace) or workspace.is_relative_to(folder):
            raise ConfigError(
                f"the skills in {named!r} lie where tools may write, and their programs are given values of the "
                "environment: put them beside the configuration",
                path=("skills",),
            )
        home.keep_apart(named, "skills")

    def program(self, path: str) -> str:
        """Return the real path of a skill's program; "" for any other file."""
        if not self.folder or not path.startswith("/"):
            return ""
        real = os.path.realpath(path)
        is_own = Path(real).is_relative_to(self.folder) and len(Path(real).relative_to(self.folder).parts) > 1
        return real if is_own and os.access(real, os.X_OK) and Path(real).is_file() else ""

    def variables(self, program: str) -> dict[str, str]:
        """Return the environment variables of a program's skill, by the real path from `program`. Blocks shortly.

        Raises: PermanentError for a skill that cannot be read, or whose variables are not set.
        """
        name = Path(program).relative_to(self.folder).parts[0]
        try:
            with Path(self.folder, name, FILE).open("rb") as file:
                text = file.read(_LARGEST).decode("utf-8-sig")
            wanted = parse_skill(text.replace("\r\n", "\n"), name).environment
        except (OSError, ValueError) as error:
            raise PermanentError(f"the skill {name!r} is not available: {error}") from error
        if missing := [name_wanted for name_wanted in wanted if not os.environ.get(name_wanted)]:
            raise PermanentError(
                f"the skill {name!r} is not available: its environment is missing: {', '.join(missing)}"
            )
        return {name_wanted: os.environ[name_wanted] for name_wanted in wanted}


def without(text: str, variables: Mapping[str, str]) -> str:
    """Return a text with each variable's value replaced by the variable's name."""
    for name, value in sorted(variables.items(), key=lambda pair: -len(pair[1])):
        if len(value) >= _SHORTEST_SECRET:
            text = text.replace(value, f"[{name}]")
    return text
