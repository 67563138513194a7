"""Facts about a program's command: the files that it names, and whether a standing grant would permit everything.

This module only reads. `tools/shell` uses it for questions to people (see `approvals/fingerprint`).
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection, Sequence
from pathlib import Path

_LARGEST = 256 << 20  # bytes of an operand that are hashed; about a quarter of a second

# The options by which an otherwise harmless program runs other programs, also in the form `--option=value`.
_LEADING_OUT = {
    "git": (
        *("-c", "--config-env", "--exec-path", "--git-dir", "--work-tree", "-C", "--template", "--upload-pack", "-u"),
        *("--receive-pack", "--exec", "-x", "--ext-diff", "--textconv", "--open-files-in-pager", "-O"),
    ),
    "sort": ("--compress-program",),
    "split": ("--filter",),
    "curl": ("-K", "--config"),
    "wget": ("--use-askpass", "-e", "--execute", "--config"),
}


def file_digest(path: str) -> str:
    """Return the SHA-256 of a file's content in hexadecimal. Raises: OSError."""
    with open(path, "rb") as file:  # noqa: PTH123
        return hashlib.file_digest(file, "sha256").hexdigest()


def operands(words: Sequence[str], workspace: str) -> dict[str, str]:
    """Return each argument that names a regular file in the workspace (also `--option=file`), with the file's SHA-256.

    For a file too large to be hashed: its size, inode and times, which a process that may write the file can forge.
    """
    digests = {}
    for word in words:
        for name in {word, word.partition("=")[2] if word.startswith("-") else word}:
            path = Path(os.path.realpath(os.path.join(workspace, name)))  # noqa: PTH118
            try:
                about = path.stat() if name and path.is_relative_to(workspace) else None
            except OSError:
                continue  # there is no such file; when there is one later, the fingerprint of the call differs
            if about is None or not stat.S_ISREG(about.st_mode):
                continue
            try:
                if about.st_size <= _LARGEST:
                    digests[word] = file_digest(str(path))
                else:
                    digests[word] = f"large: {about.st_size} bytes, inode {about.st_ino}, changed {about.st_ctime_ns}"
            except OSError as error:
                digests[word] = f"unreadable: {error.strerror}"
    return digests


def why_not_standing(path: str, words: Sequence[str], workspace: str, allowed: Collection[str]) -> str:
    """Return why a call must be approved each time; "" when a standing grant is possible.

    Args: path: the program's real file; allowed: the names of the programs that may have a standing grant. Most
        programs run others, or commands in their arguments, so that one permission would permit everything; no list of
        such programs can be complete, so this is a list of the others.
    """
    if Path(path).is_relative_to(workspace):
        return f"{words[0]!r} lies in the workspace, where its content may change"
    name = Path(path).name
    if name not in allowed:
        known = ", ".join(sorted(allowed)) or "none"
        return f"{name!r} is not among the programs that may be granted (approval.grantable): {known}"
    for option in _LEADING_OUT.get(name, ()):
        if any(_is_given(option, word) for word in words[1:]):
            return f"{name!r} with {option!r} runs other programs"
    return ""


def _is_given(option: str, word: str) -> bool:
    """Return whether a word is this option; a long one also abbreviated or with a value, a short one with a value."""
    if option.startswith("--"):
        name = word.partition("=")[0]
        return len(name) > 2 and option.startswith(name)
    return word.startswith(option) and not word.startswith("--")
