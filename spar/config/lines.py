"""Configuration file: finding it, reading it, and finding the line of a value.

`tomllib` returns the content of a file without positions, and an error without its line makes people search. So the
text is read a second time (`spar.config.toml_lines`), only when a line is needed. This module does not know what the
keys mean.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from spar.errors import ConfigError, KeyPath


def _packaged_path() -> Path:
    """Return the shipped commented defaults: in the wheel in its package, in a checkout at its top."""
    shipped = Path(__file__).parents[1] / "config.toml"
    return shipped if shipped.is_file() else shipped.parents[1] / "config.toml"


#: The shipped copy; used when there is no other file.
PACKAGED = _packaged_path()


#: Beginning of a key of more parts than any table is deep, for which `tomllib` would need quadratic time.
_LONG_KEY = re.compile(r"""(?<![^\s\[{,])(?:(?:"[^"\n]*"|'[^'\n]*'|[\w-]+)\.){100}""", re.ASCII)


class ConfigFile(Struct, frozen=True):
    """File that was read: `text` is its content, `table` the parsed content, `folder` where relative paths start."""

    path: Path
    text: str
    table: dict[str, Any]
    folder: Path


class Sources(Struct, frozen=True):
    """Origins of values: a file, and labels of values from elsewhere: `{("log", "level"): "SPAR_LOG__LEVEL"}`."""

    file: ConfigFile | None = None
    given: Mapping[KeyPath, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Return the folder where relative paths start: that of the file, or the current one."""
        return self.file.folder if self.file else Path.cwd()

    def where(self, path: KeyPath) -> str:
        """Return the place to look for a mistake: `config.toml:12`, `SPAR_LOG__LEVEL`, `--set log.level`.

        It is the place of the nearest table around a value without a place of its own; "" without a file.
        """
        inside = (label for known, label in self.given.items() if path and known[: len(path)] == path)
        if (label := self._given(path) or next(inside, "")) or self.file is None:
            return label
        from spar.config.toml_lines import locate

        line = locate(self.file.text, path)
        return f"{self.file.path}:{line}" if line else str(self.file.path)

    def origin(self, path: KeyPath) -> str:
        """Return where the present value was set, or "default"."""
        if label := self._given(path):
            return label
        from spar.config.toml_lines import line_numbers

        line = line_numbers(self.file.text).get(path) if self.file else None
        return f"{self.file.path}:{line}" if self.file and line else "default"

    def _given(self, path: KeyPath) -> str | None:
        return next((self.given[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self.given), None)


# -- finding and reading


def find(environ: Mapping[str, str], folder: Path | None = None) -> Path | None:
    """Return the configuration file to use when none is named.

    It is the one that `$SPAR_CONFIG` names, or else `config.toml` in the current folder, or else
    `$XDG_CONFIG_HOME/spar/config.toml` (`~/.config` by default), or else the packaged one; None without any.
    """
    if named := environ.get("SPAR_CONFIG"):
        return Path(named)
    home = environ.get("XDG_CONFIG_HOME") or (f"{environ['HOME']}/.config" if environ.get("HOME") else "")
    candidates = [
        (folder or Path()) / "config.toml",
        *([Path(home) / "spar" / "config.toml"] if home else []),
        PACKAGED,
    ]
    return next((path for path in candidates if path.is_file()), None)


def read(path: Path, *, folder: Path | None = None) -> ConfigFile:
    """Return a TOML file as read.

    Args: folder: where relative paths start, by default the file's own folder.
    Raises: ConfigError that names the file and, for its contents, line and column.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: there is no such file ({path.absolute()}); name another one, "
            f"or write the commented defaults there with: spar init {path}"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: byte {raw[error.start]:#04x} is not UTF-8") from None
    if long_key := _LONG_KEY.search(text):
        line = text.count("\n", 0, long_key.start()) + 1
        raise ConfigError(f"{path}:{line}: a key has more than 100 parts; tables of config.toml have a few levels")
    try:
        return ConfigFile(path, text, tomllib.loads(text), folder or path.absolute().parent)
    except RecursionError:
        raise ConfigError(f"{path}: is nested too deeply to be read") from None
    except ValueError as error:
        from spar.config.toml_lines import syntax_error

        raise ConfigError(f"{path}:{syntax_error(text, str(error), dotted)}") from None


# -- places of problems


def dotted(path: KeyPath) -> str:
    """Return a path as people write it: `("rules", 2, "when")` becomes `rules[2].when`."""
    from spar.config.toml_lines import BARE

    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            name = key if BARE.fullmatch(key) else json.dumps(key, ensure_ascii=False)
            text += f".{name}" if text else name
    return text


class Problem(Struct, frozen=True):
    """Problem in the configuration: its path, and the end of its sentence: ` = value: must be …` or `: unknown
    key; …`."""

    path: KeyPath
    tail: str


class Refusal(ConfigError):
    """Error with all problems of a configuration, one line each, to which the places in the file can be added."""

    def __init__(self, problems: Sequence[Problem], sources: Sources | None = None) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(_line(problem, sources) for problem in problems), path=problems[0].path)


def refused(path: KeyPath, sentence: str) -> Refusal:
    """Return the error of one problem."""
    return Refusal([Problem(path, f": {sentence}")])


def sentence_of(error: BaseException) -> str:
    """Return the type and the text of an error."""
    try:
        text = str(error)
    except Exception:  # a broken __str__ must not hide the type of the error
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _line(problem: Problem, sources: Sources | None) -> str:
    sentence = f"{dotted(problem.path)}{problem.tail}".removeprefix(": ")
    where = sources.where(problem.path) if sources and problem.path else ""
    return f"{where}: {sentence}" if where else sentence


def explain(error: ConfigError, sources: Sources) -> ConfigError:
    """Return the error with file and line added, if a part raised it with a `path`."""
    if not error.path and not isinstance(error, Refusal):
        return error
    return Refusal(refusal(error).problems, sources)


def refusal(error: ConfigError, inside: KeyPath = ()) -> Refusal:
    """Return any `ConfigError` as a `Refusal` with its paths below `inside`; a key already named in its message is not
    repeated."""
    if isinstance(error, Refusal):
        return Refusal([Problem((*inside, *problem.path), problem.tail) for problem in error.problems])
    key, message = dotted(error.path), str(error)
    is_named = bool(key) and message.startswith((f"{key}:", f"{key} ="))
    return Refusal([Problem((*inside, *error.path), message.removeprefix(key) if is_named else f": {message}")])
