"""Services that other parts lend to a part: a model that turns texts into vectors, and programs in the sandbox.

Vectors are near each other if their texts mean nearly the same. A caller that stores vectors stores the `fingerprint`
with them, because vectors of two models cannot be compared. `embed` blocks for milliseconds a text, so call it in a
thread; it downloads nothing.

A separate part (an entry point of the group `spar.programs`) starts programs, and limits the time of the whole process
tree of each. A part that needs it has a constructor parameter annotated `Programs`: the service fills it in, and it is
not an option.
"""

from __future__ import annotations

import signal
from array import array
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct, field


class Embedder(Protocol):
    """Model that embeds texts; safe from any thread."""

    @property
    def dimension(self) -> int:
        """Return the number of elements of a vector."""

    @property
    def fingerprint(self) -> str:
        """Return the digest of the model: vectors of another model are not comparable."""

    def embed(self, texts: Sequence[str], /) -> Sequence[array[float]]:
        """Return a vector of unit length for each text, as 32-bit floats.

        Raises: SparError when the model cannot be loaded.
        """


#: The least level of a program's sandbox; "auto": any, 0: none.
Level = Literal["auto", 0, 1, 2]


class ProgramTerms(Struct, frozen=True):
    """Terms of a program.

    `argv` are its words, `timeout` its seconds, `max_output` the most bytes of each stream. `env` names variables of
    the service that it gets, `variables` are further ones with their values. `readable` are paths that it may read
    besides the workspace, `network` gives it a network, `sandbox` is the least level of its sandbox.
    """

    argv: tuple[str, ...]
    timeout: float = 20.0
    max_output: int = 1 << 20
    env: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    readable: tuple[str, ...] = ()
    network: bool = False
    sandbox: Level = "auto"


def objection_to_words(option: str, words: Sequence[str]) -> str:
    """Return why no program can be started with these words of an option, "" if one can."""
    if not words[0].strip():
        return f"{option!r} must begin with the program's name, found an empty one"
    if any("\0" in word for word in words):
        return f"{option!r} must hold text without NUL only, found {words!r:.200}"
    if len(words) == 1 and " " in words[0] and not words[0].startswith("/"):
        return f"{words[0]!r:.200} is one word with spaces; {option!r} is a list like {words[0].split()!r:.200}"
    return ""


class ProgramEnd(Struct, frozen=True):
    """Result of a program. `stdout` and `stderr` hold the beginning and the end; `omitted` counts the bytes left out of
    both. `sandbox` is the level of its sandbox, `duration` is in seconds.

    `exit` or `signal` is set, or neither when the supervisor did not report it. With `timed_out` it was ended with all
    processes that it started.
    """

    exit: int | None
    signal: int | None
    stdout: bytes
    stderr: bytes
    omitted: int
    timed_out: bool
    sandbox: int
    duration: float

    def sentence(self, name: str, timeout: float) -> str:
        """Return how the program of this name ended."""
        if self.timed_out:
            return f"{name!r} was ended with all its processes after {timeout:g} s"
        if self.signal is not None:
            return f"{name!r} was ended by {_signal_name(self.signal)}"
        if self.exit is None:
            return f"{name!r} killed its own supervisor"
        is_from_bwrap = self.sandbox == 2 and self.exit > 128
        hint = f" (bubblewrap says so of {_signal_name(self.exit - 128)} too)" if is_from_bwrap else ""
        return f"{name!r} ended with exit code {self.exit}{hint}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Programs(Protocol):
    """Runner of programs."""

    def refuse(self, readable: Sequence[str], /) -> None:
        """Refuse paths that the service itself depends on and that programs must not read. Raises: ConfigError."""

    async def run(self, terms: ProgramTerms, /) -> ProgramEnd:
        """Run a program to its end, in the workspace. After a cancellation, its whole process tree is gone when this
        returns.

        Raises: PermanentError or TransientError when it cannot be started.
        """
