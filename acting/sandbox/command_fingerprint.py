"""Reads the files of a program's call, and whether a standing grant would permit everything.

Pure reading; `tools/shell` tells it to whoever asks a person (see `approvals/fingerprint`).
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection, Sequence
from pathlib import Path

_LARGEST = 256 << 20  # bytes of an operand that are hashed; about a quarter of a second

# The options by which a program that is harmless otherwise runs others; each also as the beginning of `--option=value`.
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
    """SHA-256 of a file's content, hexadecimal. Raises: OSError."""
    with open(path, "rb") as file:  # noqa: PTH123 - the descriptor that is read is the one that was opened
        return hashlib.file_digest(file, "sha256").hexdigest()


def operands(words: Sequence[str], workspace: str) -> dict[str, str]:
    """Each argument that names a regular file of the workspace, also as `--option=file`, with the file's SHA-256.

    Of a file too large to be hashed it is its size, inode and times, which whoever may write it can forge.
    """
    found = {}
    for word in words:
        for name in {word, word.partition("=")[2] if word.startswith("-") else word}:
            path = Path(os.path.realpath(os.path.join(workspace, name)))  # noqa: PTH118
            try:
                about = path.stat() if name and path.is_relative_to(workspace) else None
            except OSError:
                continue  # there is no such file, and once there is one, the call stands for something else
            if about is None or not stat.S_ISREG(about.st_mode):
                continue
            try:
                if about.st_size <= _LARGEST:
                    found[word] = file_digest(str(path))
                else:
                    found[word] = f"large: {about.st_size} bytes, inode {about.st_ino}, changed {about.st_ctime_ns}"
            except OSError as error:
                found[word] = f"unreadable: {error.strerror}"
    return found


def why_not_standing(path: str, words: Sequence[str], workspace: str, allowed: Collection[str]) -> str:
    """Return why a call must be approved each time; "" when it need not.

    Args: path: the program's real file; allowed: the names of the programs that need not. Most programs run others, or
        what their arguments say, so that one permission would permit everything; no list of those is ever whole.
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
    """Return whether a word is this option: a long one also with a value or cut short, a short one with a value."""
    if option.startswith("--"):
        name = word.partition("=")[0]
        return len(name) > 2 and option.startswith(name)
    return word.startswith(option) and not word.startswith("--")
