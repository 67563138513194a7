"""Secrets of parts that stand elsewhere: `{ file = "…" }`, `{ env = "NAME" }`, `{ credential = "NAME" }` in place of a
text.

In the options of a part such a table may replace any secret: under `api_key`, `password`, `secret`, `authorization` and
all other names that `is_secret_name` knows. It is read when the part is made, never before: a command that makes no
part (`spar status`) needs no permission to read a secret. From then on `spar.data.scrub` knows the secret and hides it
everywhere.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct

from spar.config.lines import Problem, Refusal
from spar.data.scrub import is_secret_name, know
from spar.errors import KeyPath

Origin = Literal["file", "env", "credential"]
ORIGINS: Final[tuple[Origin, ...]] = ("file", "env", "credential")
#: Variable with the folder of a unit's credentials in systemd: systemd.exec(5), LoadCredential=.
DIRECTORY: Final = "CREDENTIALS_DIRECTORY"
#: Most bytes of a secret: a larger file is not a secret.
LARGEST: Final = 65_536


class SecretReference(Struct, frozen=True):
    """Reference to a secret that stands elsewhere: the path of the setting, the kind of origin, and the name there."""

    path: KeyPath
    origin: Origin
    name: str

    def file(self, folder: Path, environ: Mapping[str, str] = os.environ) -> Path | None:
        """Return the file of the secret; None for a variable, or if there are no credentials."""
        if self.origin == "file":
            return folder / Path(self.name).expanduser()
        folder_of_credentials = environ.get(DIRECTORY, "") if self.origin == "credential" else ""
        return Path(folder_of_credentials, self.name) if folder_of_credentials else None

    def read(self, folder: Path, environ: Mapping[str, str] = os.environ) -> str:
        """Return the secret without the line break at its end. Raises: ValueError with a sentence."""
        if self.origin == "env":
            text = environ.get(self.name, "")
            if not text:
                raise ValueError(f"the environment variable {self.name!r} is not set, or empty")
            return text
        path = self.file(folder, environ)
        if path is None:
            raise ValueError(
                f"there is no credential {self.name!r}: ${DIRECTORY} is not set; systemd sets it for a unit with "
                f"LoadCredential={self.name}:FILE, which `spar service install --credential` writes"
            )
        return _text_of(path)

    def digest(self, folder: Path) -> str:
        """Return a digest of the secret, to notice a change; that of an empty text if it cannot be read."""
        try:
            text = self.read(folder)
        except ValueError:
            text = ""
        return hashlib.blake2b(text.encode("utf-8", "surrogateescape")).hexdigest()


def references(options: Mapping[str, Any], path: KeyPath) -> list[SecretReference]:
    """Return the references to secrets in options. Raises: ConfigError for one that is written wrong."""
    secrets = _secrets(options, path)
    return [_read(table[key], here) for table, key, here in secrets if isinstance(table[key], Mapping)]


def with_secrets(options: Mapping[str, Any], path: KeyPath, folder: Path) -> dict[str, Any]:
    """Return options with the secrets in place of the references, and hide the secrets everywhere from now on.

    Raises: ConfigError with one line for each secret that cannot be read.
    """
    filled, wrong = deepcopy(dict(options)), []
    for table, key, here in _secrets(filled, path):
        try:
            if isinstance(table[key], Mapping):
                table[key] = _read(table[key], here).read(folder)
            if isinstance(table[key], str):
                know(table[key])
        except ValueError as error:
            wrong.append(Problem(here, f": {error}"))
    if wrong:
        raise Refusal(wrong)
    return filled


def _secrets(value: Any, path: KeyPath) -> Iterator[tuple[Any, str, KeyPath]]:
    """Yield the table, the key and the path of each value under the name of a secret."""
    if isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _secrets(item, (*path, index))
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            is_reference = isinstance(inner, Mapping) and not set(inner).isdisjoint(ORIGINS)
            if is_secret_name(key) and (is_reference or not isinstance(inner, (Mapping, list, tuple))):
                yield value, key, (*path, key)
            else:
                yield from _secrets(inner, (*path, key))


def _read(table: Mapping[str, Any], path: KeyPath) -> SecretReference:
    """Return the reference in a table. Raises: ConfigError."""
    origin, name = next(iter(table.items()))
    if len(table) != 1 or origin not in ORIGINS or not isinstance(name, str) or not name or "\0" in name:
        keys = ", ".join(map(str, table))
        sentence = 'must be text, { file = "…" }, { env = "NAME" } or { credential = "NAME" }'
        raise Refusal([Problem(path, f": {sentence}; found a table with {keys:.100}")])
    if origin == "credential" and ("/" in name or name in (".", "..")):
        raise Refusal([Problem((*path, origin), f" = {name!r:.80}: is the name of a credential, not a path")])
    return SecretReference(path, origin, name)


def _text_of(path: Path) -> str:
    """Return the content of a file. Raises: ValueError with a sentence."""
    try:
        # Do not wait for ever at a pipe whose other end nobody opens.
        number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(number, "rb") as file:
            if not stat.S_ISREG(os.fstat(number).st_mode):
                raise ValueError(f"{path} is no regular file")
            raw = file.read(LARGEST + 1)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    if len(raw) > LARGEST:
        raise ValueError(f"{path} has more than {LARGEST} bytes: it is no secret")
    try:
        text = raw.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8") from None
    if not text:
        raise ValueError(f"{path} is empty")
    return text
