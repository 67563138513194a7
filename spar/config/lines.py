"""The configuration file: finding it, reading it, and telling on which line a value stands.

`tomllib` says what a file holds but not where, and an error without its line sends people searching. So the
text is walked once more here, only when somebody asks. This module knows nothing of what the keys mean.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct, field

from spar.errors import ConfigError

KeyPath = tuple[str | int, ...]


def _packaged() -> Path:
    """Return the commented defaults that are shipped: in the wheel in its package, in a checkout at its top."""
    shipped = Path(__file__).parents[1] / "config.toml"
    return shipped if shipped.is_file() else shipped.parents[1] / "config.toml"


#: The copy that is shipped with the package; used when there is no other.
PACKAGED = _packaged()

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_POSITION = re.compile(r" \(at line (\d+), column (\d+)\)$")


class ConfigFile(Struct, frozen=True):
    """A file that was read: `text` as it stands there, `table` what it holds, `folder` where relative paths start."""

    path: Path
    text: str
    table: dict[str, Any]
    folder: Path


class Sources(Struct, frozen=True):
    """Origins of values: a file, and what was given elsewhere: `{("log", "level"): "SPAR_LOG__LEVEL"}`."""

    file: ConfigFile | None = None
    given: Mapping[KeyPath, str] = field(default_factory=dict)

    def where(self, path: KeyPath) -> str:
        """Return the place to look for a mistake: `config.toml:12`, `SPAR_LOG__LEVEL`, `--set log.level`.

        The nearest thing around it when it stands nowhere itself; "" when there is not even a file.
        """
        if label := self._given(path):
            return label
        line = locate(self.file.text, path) if self.file else None
        inside = (
            None if line else next((label for known, label in self.given.items() if known[: len(path)] == path), None)
        )
        if inside or self.file is None:
            return inside or ""
        return f"{self.file.path}:{line}" if line else str(self.file.path)

    def origin(self, path: KeyPath) -> str:
        """Return where the value in effect was set, or "default"."""
        if label := self._given(path):
            return label
        line = line_numbers(self.file.text).get(path) if self.file else None
        return f"{self.file.path}:{line}" if self.file and line else "default"

    def _given(self, path: KeyPath) -> str | None:
        return next((self.given[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self.given), None)


class Configured(Protocol):
    """Port to the loaded settings that `explain` needs."""

    @property
    def sources(self) -> Sources: ...


# -- finding and reading


def find(environ: Mapping[str, str], folder: Path | None = None) -> Path | None:
    """The configuration file to use when none is named.

    `$SPAR_CONFIG` names one, else `config.toml` in the current folder, else
    `$XDG_CONFIG_HOME/spar/config.toml` (`~/.config` by default), else the packaged one; None without that.
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
    """Read a TOML file.

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
    try:
        return ConfigFile(path, text, tomllib.loads(text), folder or path.absolute().parent)
    except RecursionError:
        raise ConfigError(f"{path}: is nested too deeply to be read") from None
    except ValueError as error:
        raise ConfigError(_syntax_sentence(path, text, str(error))) from None


def _syntax_sentence(path: Path, text: str, message: str) -> str:
    if found := _POSITION.search(message):
        message = message[: found.start()]
        place = f"{found[1]}:{found[2]}"
    else:
        message = message.removesuffix(" (at end of document)")
        place = str(text.count("\n") + (not text.endswith("\n")) or 1)
    return f"{path}:{place}: {message[:1].lower()}{message[1:]}{_hint(text, place, message)}"


def _hint(text: str, place: str, message: str) -> str:
    """Return what to write instead where a value cannot be read; "" where that is not known."""
    line, _, column = place.partition(":")
    if message != "Invalid value" or not column:
        return ""
    written = text.split("\n")[int(line) - 1]
    before, value = written[: int(column) - 1].rstrip(), written[int(column) - 1 :].partition("#")[0].strip()
    lead = f"{before} "
    if not before.endswith("=") or "{" in before:  # one of several values
        lead, value = "", min((value.partition(end)[0].strip() for end in ",]}"), key=len)
    elif not value:
        return f"; nothing stands behind the equals sign, write for example: {lead}1"
    if value in ("True", "False"):
        return f"; write it small: {lead}{value.lower()}"
    if value in ("None", "null", "nil"):
        return "; TOML knows no such value: leave it out"
    return f"; text stands in quotes: {lead}{json.dumps(value, ensure_ascii=False)}" if value else ""


# -- saying where


def dotted(path: KeyPath) -> str:
    """`("rules", 2, "when")` as people write it: `rules[2].when`."""
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            name = key if _BARE.fullmatch(key) else f'"{key}"'
            text += f".{name}" if text else name
    return text


class Problem(Struct, frozen=True):
    """One thing that is wrong: where, and the rest of the sentence: ` = value: must be …` or `: unknown key; …`."""

    path: KeyPath
    tail: str


class Refusal(ConfigError):
    """A `ConfigError` that knows all that is wrong, one line each, and can be told where things stand."""

    def __init__(self, problems: Sequence[Problem], sources: Sources | None = None) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(_line(problem, sources) for problem in problems), path=problems[0].path)


def _line(problem: Problem, sources: Sources | None) -> str:
    sentence = f"{dotted(problem.path)}{problem.tail}".removeprefix(": ")
    where = sources.where(problem.path) if sources and problem.path else ""
    return f"{where}: {sentence}" if where else sentence


def explain(error: ConfigError, loaded: Configured) -> ConfigError:
    """Return the error with file and line, for one that a part raised with a `path`."""
    if not error.path and not isinstance(error, Refusal):
        return error
    return Refusal(refusal(error).problems, loaded.sources)


def refusal(error: ConfigError, inside: KeyPath = ()) -> Refusal:
    """Any `ConfigError` as a `Refusal`, its paths below `inside`; a message that names its key is not made to twice."""
    if isinstance(error, Refusal):
        return Refusal([Problem((*inside, *problem.path), problem.tail) for problem in error.problems])
    key, message = dotted(error.path), str(error)
    is_named = bool(key) and message.startswith((f"{key}:", f"{key} ="))
    return Refusal([Problem((*inside, *error.path), message.removeprefix(key) if is_named else f": {message}")])


# -- where things stand


def locate(text: str, path: KeyPath) -> int | None:
    """The line (from 1) of a value, or of the nearest thing around it that is in the text; None if nothing is."""
    lines = line_numbers(text)
    for length in range(len(path), 0, -1):
        if (line := lines.get(path[:length])) is not None:
            return line
    return None


@lru_cache(maxsize=2)
def line_numbers(text: str) -> Mapping[KeyPath, int]:
    """The line of every table, key and array element of a TOML text that `tomllib` accepts."""
    return _Walk(text).lines


class _Walk:
    """One pass over a valid TOML text, which remembers where each path begins."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._line = text.removeprefix("\ufeff"), 0, 1
        self._sizes: dict[KeyPath, int] = {}
        self.lines: dict[KeyPath, int] = {}
        table: KeyPath = ()
        while self._skip_blank():
            if self._text.startswith("[", self._at):
                table = self._header()
            else:
                self._pair(table)

    def _header(self) -> KeyPath:
        line, is_array = self._line, self._text.startswith("[[", self._at)
        self._at += 2 if is_array else 1
        keys = self._keys()
        self._at += 2 if is_array else 1
        # Above the last key, a name that is an array of tables means its latest element.
        path = self._through((), keys[:-1], line)
        path = (*path, keys[-1])
        self.lines.setdefault(path, line)
        if is_array:
            self._sizes[path] = self._sizes.get(path, 0) + 1
            path = (*path, self._sizes[path] - 1)
            self.lines[path] = line
        return path

    def _through(self, path: KeyPath, keys: list[str], line: int) -> KeyPath:
        for key in keys:
            path = (*path, key)
            self.lines.setdefault(path, line)
            if path in self._sizes:
                path = (*path, self._sizes[path] - 1)
        return path

    def _pair(self, table: KeyPath) -> None:
        line = self._line
        keys = self._keys()
        path = (*self._through(table, keys[:-1], line), keys[-1])
        self.lines[path] = line
        self._at += 1  # the equals sign
        self._skip_space()
        self._value(path)

    def _keys(self) -> list[str]:
        keys = []
        while True:
            self._skip_space()
            if self._text[self._at] in "\"'":
                start = self._at
                self._string()
                keys.append(str(tomllib.loads(f"k = {self._text[start : self._at]}")["k"]))
            else:
                bare = _BARE.match(self._text, self._at)
                if bare is None:
                    raise ValueError(f"no key in line {self._line}")
                keys.append(bare[0])
                self._at = bare.end()
            self._skip_space()
            if not self._text.startswith(".", self._at):
                return keys
            self._at += 1

    def _value(self, path: KeyPath) -> None:
        first = self._text[self._at]
        if first in "\"'":
            self._string()
        elif first == "[":
            self._array(path)
        elif first == "{":
            self._inline_table(path)
        else:
            while self._at < len(self._text) and self._text[self._at] not in ",]}#\n":
                self._at += 1

    def _array(self, path: KeyPath) -> None:
        self._at += 1
        index = 0
        while self._skip_blank() and self._text[self._at] != "]":
            element = (*path, index)
            self.lines[element] = self._line
            self._value(element)
            index += 1
            if self._skip_blank() and self._text[self._at] == ",":
                self._at += 1
        self._at += 1

    def _inline_table(self, path: KeyPath) -> None:
        self._at += 1
        while self._skip_blank() and self._text[self._at] != "}":
            self._pair(path)
            if self._skip_blank() and self._text[self._at] == ",":
                self._at += 1
        self._at += 1

    def _string(self) -> None:
        quote = self._text[self._at]
        if self._text.startswith(quote * 3, self._at):
            end = self._end_of_string(self._at + 3, quote * 3)
            # Up to two more quotes may stand before the closing three.
            while self._text.startswith(quote, end):
                end += 1
        else:
            end = self._end_of_string(self._at + 1, quote)
        self._line += self._text.count("\n", self._at, end)
        self._at = end

    def _end_of_string(self, start: int, closing: str) -> int:
        at = start
        while not self._text.startswith(closing, at):
            at += 2 if closing[0] == '"' and self._text[at] == "\\" else 1
        return at + len(closing)

    def _skip_space(self) -> None:
        while self._at < len(self._text) and self._text[self._at] in " \t":
            self._at += 1

    def _skip_blank(self) -> bool:
        """Go on to the next thing that means something; False at the end of the text."""
        while self._at < len(self._text):
            character = self._text[self._at]
            if character == "\n":
                self._line += 1
            elif character == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
                continue
            elif character not in " \t\r":
                return True
            self._at += 1
        return False
