"""Commands in the process of the tests, with the arguments, folder, variables and standard streams of one of their own.

What a command prints and how it ends needs no process. Signals, terminals, what outlives it and what it costs do.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from pathlib import Path

from spar.cli.main import main


def run_here(
    arguments: Sequence[str], folder: Path, stdin: bytes = b"", environ: Mapping[str, str] | None = None
) -> tuple[int, bytes, bytes]:
    """Run `spar` with these arguments; return its exit code and what it printed.

    Args: environ: its variables; default: those of this process.
    """
    out, err = _Stream("surrogateescape"), _Stream("backslashreplace")
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="surrogateescape") as given,
        _variables(environ), chdir(folder), _modules(),
    ):  # fmt: skip
        given.buffer.write(stdin)
        given.seek(0)
        before = sys.stdin, sys.stdout, sys.stderr
        sys.stdin, sys.stdout, sys.stderr = given, out, err
        try:
            main(list(arguments))
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        finally:
            sys.stdin, sys.stdout, sys.stderr = before
    return code, out.written(), err.written()


class _Stream(io.TextIOWrapper):
    """Text that is written to a standard stream, as the interpreter opens it."""

    def __init__(self, errors: str) -> None:
        super().__init__(io.BytesIO(), "utf-8", errors, "\n")

    def written(self) -> bytes:
        self.flush()
        return self.buffer.getvalue()  # type: ignore[attr-defined, no-any-return]


@contextmanager
def _variables(environ: Mapping[str, str] | None) -> Iterator[None]:
    if environ is None:
        yield
        return
    before = dict(os.environ)
    try:
        os.environ.clear()
        os.environ.update(environ)
        time.tzset()
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        time.tzset()


@contextmanager
def _modules() -> Iterator[None]:
    """Let modules of this folder and of PYTHONPATH be imported, as in a process that begins here, and forget those of
    this folder."""
    here, path, before = str(Path.cwd()), sys.path, set(sys.modules)
    importlib.invalidate_caches()
    sys.path = [here, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *path]
    try:
        yield
    finally:
        sys.path = path
        for name in sys.modules.keys() - before:
            if (getattr(sys.modules[name], "__file__", None) or "").startswith(f"{here}{os.sep}"):
                del sys.modules[name]
