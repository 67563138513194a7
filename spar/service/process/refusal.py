"""The refusal to start, with what the process exits with."""

from __future__ import annotations

from spar.config.lines import explain
from spar.config.load import Loaded
from spar.config.toml_lines import KeyPath
from spar.errors import ConfigError


class CannotStartError(Exception):
    """The service cannot start; `code` is what the process exits with."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def cannot(sentence: str, path: KeyPath, loaded: Loaded, code: int) -> CannotStartError:
    """The refusal to start because of what stands at `path`, with file and line."""
    return CannotStartError(str(explain(ConfigError(sentence, path=path), loaded)), code)
