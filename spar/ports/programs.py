"""The port to programs: runs one in the sandbox that this machine offers, with its whole process tree bounded in time.

Who starts programs is a part by itself (an entry point of the group `spar.programs`). A part that needs one has a
constructor parameter that is annotated `Programs`: it is given, and is no option.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct, field


class ProgramTerms(Struct, frozen=True):
    """Terms of a program: its words, its seconds, bytes kept of each stream, the names of variables of the service that
    it is given and further ones with their values, what it may read beside the workspace, whether it has a network, and
    the least level of its sandbox; `is_confined` False asks for none."""

    argv: tuple[str, ...]
    timeout: float = 20.0
    max_output: int = 1 << 20
    env: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    readable: tuple[str, ...] = ()
    network: bool = False
    least_level: int = 0
    is_confined: bool = True


class ProgramEnd(Struct, frozen=True):
    """The end of a program; `omitted` counts bytes left out of its streams, `sandbox` is the level it ran at.

    `exit` or `signal` is set, or neither when it could not be told. With `timed_out` it was ended, with all it started.
    """

    exit: int | None
    signal: int | None
    stdout: bytes
    stderr: bytes
    omitted: int
    timed_out: bool
    sandbox: int


@runtime_checkable
class Programs(Protocol):
    """Runs programs."""

    def refuse(self, readable: Sequence[str], /) -> None:
        """Refuse to have programs read what the service lives by. Raises: ConfigError."""
        ...

    async def run(self, terms: ProgramTerms, /) -> ProgramEnd:
        """Run a program to its end, in the workspace. Cancelled, its whole tree is gone when this returns.

        Raises: PermanentError or TransientError when it cannot be started.
        """
        ...
