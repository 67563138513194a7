"""`shell`: runs one program with arguments, never a shell string.

The words of `argv` reach the program as they are: nothing expands, splits or joins them. Which programs may run is
a list in the configuration. The process tree is dead when the call returns, whatever became of it (see `launcher`).
What a permitted program reads is not confined here: that is a sandbox's work.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Annotated, Any

from annotated_types import Ge, Gt, Len

from acting.launcher import KILL_GRACE, Finished, Program, environment, find_program, run
from acting.tools import object_schema, text_of
from spar.clock import Clock, SystemClock
from spar.errors import PermanentError, SparError
from spar.protocols import Effect, Home, Host

_HARMLESS = ("cat", "date", "df", "free", "head", "hostname", "ls", "tail", "uname", "uptime", "wc")
_NAMES = ("LANG", "LC_ALL", "LC_CTYPE", "TZ")
_LONGEST = 64 * 1024
_MOST_INPUT = 10 << 20
_LAST_WORDS = 2000


class CommandError(SparError):
    """The program ran and failed; `output` is what the call would have returned."""

    def __init__(self, message: str, output: dict[str, Any]) -> None:
        super().__init__(message)
        self.output = output


class CommandTimeoutError(CommandError, TimeoutError):
    """The program was ended because it took too long; `output` is what it had said."""


class ShellTool:
    """Runs the programs that are listed, each a name that is looked for on PATH or an absolute path; `*` means any.

    `timeout` is seconds; of each stream at most `max_output` bytes are kept, its beginning and its end. A program
    whose exit code is not in `ok_exits` has failed. It is given only the variables named in `env`, PATH and HOME.
    """

    name = "shell"
    effect: Effect = "once"
    concurrency = 4

    def __init__(
        self,
        *,
        home: Home,
        programs: Sequence[str] = _HARMLESS,
        timeout: Annotated[float, Gt(0)] = 60.0,
        max_output: Annotated[int, Ge(2)] = 256 * 1024,
        env: Sequence[str] = _NAMES,
        ok_exits: Annotated[Sequence[int], Len(1)] = (0,),
    ) -> None:
        self._home, self._programs, self._limit = home, tuple(programs), timeout
        self._max_output, self._env, self._ok_exits = max_output, tuple(env), frozenset(ok_exits)
        self._clock: Clock = SystemClock()
        self.timeout = timeout + 3 * KILL_GRACE  # ours fires first, because it can say what the program said
        self.schema = object_schema(
            self.name,
            f"Run a program, without a shell. Allowed: {self._known()}.",
            {
                "argv": {
                    "type": "array",
                    "items": {"type": "string"},
                    "minItems": 1,
                    "description": "the program and its arguments, one word an item, e.g. ['ls', '-l', 'my file']",
                },
                "stdin": {"type": "string", "description": "what the program reads from its standard input"},
                "timeout": {
                    "type": "number",
                    "exclusiveMinimum": 0,
                    "maximum": timeout,
                    "description": f"seconds after which the program is ended, {timeout:g} by default",
                },
            },
            "argv",
        )

    def attach(self, host: Host) -> None:
        """Let running programs count as work on the agent's clock."""
        self._clock = host.clock

    async def __call__(
        self, *, argv: Sequence[str], stdin: str | None = None, timeout: float | None = None
    ) -> dict[str, Any]:
        """Run it in the workspace.

        Returns `exit`, `signal`, `stdout`, `stderr`, `truncated`, `duration` (seconds) and `timed_out`.

        Raises: ValueError for parameters that make no sense; PermanentError for a program that is not allowed, is not
        there or cannot be started; CommandError when it failed; CommandTimeoutError.
        """
        words = _words(argv)
        limit = self._limit if timeout is None else timeout
        if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 < limit <= self._limit:
            raise ValueError(f"'timeout' must be above 0 and at most {self._limit:g} seconds, found {timeout!r}")
        given = None if stdin is None else _input(stdin)
        env = environment(self._env, workspace=self._home.workspace)
        program = Program(self._find(words[0], env), words, self._home.workspace, env)
        os.makedirs(self._home.workspace, exist_ok=True)  # noqa: PTH103 - quick, and nearly always there
        with self._clock.working():
            finished = await run(program, stdin=given, timeout=limit, max_output=self._max_output)
        return self._judged(words[0], limit, finished)

    def _find(self, name: str, env: dict[str, str]) -> str:
        found = self._file(name, env)
        if "*" not in self._programs and name not in self._programs:
            # `/bin/ls` is as good as `ls` when that is the very file that `ls` means.
            meant = {self._file(entry, env) for entry in self._programs} if name.startswith("/") else {}
            if found is None or found not in meant:
                raise PermanentError(f"program {name!r} is not allowed; allowed: {self._known()}")
        if found is None:
            raise PermanentError(f"program {name!r} is not there or cannot be executed; PATH is {env['PATH']!r}")
        return found

    def _file(self, name: str, env: dict[str, str]) -> str | None:
        """A bare name is looked for on PATH, a path with folders begins in the workspace."""
        return find_program(os.path.join(self._home.workspace, name) if "/" in name else name, env)  # noqa: PTH118

    def _known(self) -> str:
        return "any" if "*" in self._programs else ", ".join(self._programs) or "none"

    def _judged(self, name: str, limit: float, finished: Finished) -> dict[str, Any]:
        out, err = (stream.decode("utf-8", "replace") for stream in (finished.stdout, finished.stderr))
        output = {
            "exit": finished.exit,
            "signal": finished.signal,
            "stdout": out,
            "stderr": err,
            "truncated": finished.omitted > 0,
            "duration": finished.duration,
            "timed_out": finished.timed_out,
        }
        if not finished.timed_out and finished.exit in self._ok_exits:
            return output
        said = (err.strip() or out.strip())[-_LAST_WORDS:]
        tail = f": {said}" if said else " and said nothing"
        if finished.timed_out:
            raise CommandTimeoutError(f"{name!r} was ended with all its processes after {limit:g} s{tail}", output)
        if finished.signal is not None:
            raise CommandError(f"{name!r} was ended by {_signal_name(finished.signal)}{tail}", output)
        if finished.exit is None:
            raise CommandError(f"{name!r} killed its own supervisor{tail}", output)
        raise CommandError(f"{name!r} ended with exit code {finished.exit}{tail}", output)


def _words(argv: object) -> tuple[str, ...]:
    if isinstance(argv, str):
        raise ValueError(f"'argv' must be a list of words, not one string; did you mean {argv.split()!r:.200}?")
    if not isinstance(argv, Sequence) or not argv:
        raise ValueError(f"'argv' must be a list of words that begins with the program, found {argv!r:.200}")
    for word in argv:
        if not isinstance(word, str) or "\0" in word:
            raise ValueError(f"'argv' must hold text without NUL only, found {word!r:.200}")
        try:
            word.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise ValueError(f"'argv' holds a character that no program can be given: {word!r:.200}") from None
    if not argv[0].strip():
        raise ValueError("'argv' must begin with the program's name, found an empty one")
    if (size := sum(len(word) + 1 for word in argv)) > _LONGEST:
        raise ValueError(f"'argv' has {size} characters, more than {_LONGEST}; give a long text as stdin")
    if len(argv) == 1 and " " in argv[0] and not argv[0].startswith("/"):
        raise ValueError(f"{argv[0]!r:.200} is one word with spaces; 'argv' is a list like {argv[0].split()!r:.200}")
    return tuple(argv)


def _input(stdin: object) -> bytes:
    try:
        return text_of("stdin", stdin, limit=_MOST_INPUT, empty=True).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ValueError(f"'stdin' has a lone surrogate at {error.start}, which is no text") from None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
