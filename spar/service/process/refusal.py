"""The error of a service that cannot start, with the exit code of the process."""

from __future__ import annotations

from spar.config.lines import explain
from spar.config.tables.settings import Loaded
from spar.errors import ConfigError, KeyPath


class CannotStartError(Exception):
    """Error of a service that cannot start; `code` is the exit code of the process."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def cannot(sentence: str, path: KeyPath, loaded: Loaded, code: int) -> CannotStartError:
    """Return the error for the setting at `path`, with file and line."""
    return CannotStartError(str(explain(ConfigError(sentence, path=path), loaded.sources)), code)
