"""Attachments: saved into the workspace within limits, or listed as left out.

Tools write to the workspace too, so no link in it is followed, and nothing is overwritten except an earlier copy of
the same attachment. The sender chooses the names, so only their harmless characters are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from spar.channels.mail.content.incoming import Attachment
from spar.fs.atomic import replace_file
from spar.fs.rooted import RootedDir

#: The folder in the workspace.
FOLDER: Final = "mail"
#: Bytes of one saved attachment, and of all of a mail.
LARGEST, LARGEST_SUM = 5 * 1024 * 1024, 10 * 1024 * 1024
#: Characters of a file's name.
LONGEST_NAME: Final = 100


class Saved(Struct, frozen=True):
    """Outcome for one attachment: its path in the workspace, or the reason for leaving it out."""

    name: str
    size: int
    path: str = ""
    left_out: str = ""

    def line(self) -> str:
        """Return the outcome as a line for people."""
        outcome = f"saved as {self.path}" if self.path else f"left out: {self.left_out}"
        return f"- {self.name} ({size_text(self.size)}), {outcome}"


def save(attachments: Sequence[Attachment], workspace: str, mail: str, most: int) -> list[Saved]:
    """Save the attachments that fit into `mail/<mail>/` of the workspace. It blocks, so call it in a thread.

    Args: mail: the key of the mail, which is safe as a name; most: the number of attachments that are saved.
    """
    outcomes: list[Saved] = []
    names: set[str] = set()
    total = 0
    for number, attachment in enumerate(attachments):
        name, size = harmless(attachment.name, number), len(attachment.content)
        while name in names:
            name = f"{number}-{name}"
        names.add(name)
        if number >= most:
            outcomes.append(Saved(name, size, left_out=f"at most {most} attachments of a mail are saved"))
        elif size > LARGEST:
            outcomes.append(Saved(name, size, left_out=f"larger than {size_text(LARGEST)}"))
        elif total + size > LARGEST_SUM:
            outcomes.append(Saved(name, size, left_out=f"all together more than {size_text(LARGEST_SUM)}"))
        else:
            total += size
            outcomes.append(_saved(attachment, name, workspace, mail))
    return outcomes


def size_text(size: int) -> str:
    """Return a number of bytes for people: `12 kB`, `5.2 MB`."""
    return f"{size} bytes" if size < 1000 else f"{size / 1e3:.0f} kB" if size < 1e6 else f"{size / 1e6:.1f} MB"


def harmless(name: str, number: int) -> str:
    """Return a file name that can neither leave its folder nor be hidden."""
    base = name.replace("\\", "/").rpartition("/")[2]
    safe = "".join(sign if (sign.isalnum() and sign.isprintable()) or sign in "._-" else "_" for sign in base)
    while len(safe.encode()) > LONGEST_NAME * 2 or len(safe) > LONGEST_NAME:
        safe = safe[1:]
    return safe.lstrip(".-") or f"attachment-{number + 1}"


def _saved(attachment: Attachment, name: str, workspace: str, mail: str) -> Saved:
    size = len(attachment.content)
    try:
        with RootedDir(workspace).entry((FOLDER, mail, name), make=True) as (folder, file):
            replace_file(folder, file, attachment.content)
    except OSError as error:
        return Saved(name, size, left_out=f"it cannot be saved: {error.strerror or error}")
    return Saved(name, size, path=f"{FOLDER}/{mail}/{name}")
