"""New part of a mail: its text without quotes and without the signature; pure, one pass over the lines."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

#: Beginnings of the lines that programs put above a complete earlier mail.
_CUTS: Final = ("original message", "ursprüngliche nachricht", "message d'origine", "mensaje original",
                "forwarded message", "weitergeleitete nachricht")  # fmt: skip
#: Words of the line that names the author of the quote below it.
_WROTE: Final = ("wrote", "schrieb", "écrit", "escribió", "ha scritto", "schreef", "napisał")
#: Beginnings of such a line that is broken in two.
_BROKEN: Final = ("on ", "am ", "le ")
_HEAD: Final = ("from:", "von:", "de :", "de:", "sent:", "gesendet:", "envoyé", "date:", "datum:", "to:", "an:", "à :",
                "cc:", "subject:", "betreff:", "objet")  # fmt: skip
_RULE: Final = "_____"


class NewText(Struct, frozen=True):
    """New text of a mail, and the number of lines that were quotes."""

    text: str
    quoted: int


def new_text(text: str) -> NewText:
    """Return the new text of a mail."""
    lines = text.split("\n")
    new_lines: list[str] = []
    quoted, is_signature = 0, False
    for index, line in enumerate(lines):
        if _is_cut(lines, index):
            quoted += sum(bool(later.strip()) for later in lines[index:])
            break
        if _is_quote(line):
            is_signature = False
            quoted += 1 + _drop_attribution(new_lines)
        elif is_signature or line in ("-- ", "--"):
            is_signature = True
        else:
            new_lines.append(line.rstrip())
    return NewText("\n".join(_without_rows_of_blanks(new_lines)).strip(), quoted)


def _is_quote(line: str) -> bool:
    return line.lstrip().startswith(">")


def _is_cut(lines: list[str], index: int) -> bool:
    """Return whether an earlier mail begins at this line and reaches to the end."""
    line = lines[index].strip().lower()
    if line.startswith("--") and line.strip("- ").startswith(_CUTS):
        return True
    if line.startswith(_RULE) and not line.strip("_"):
        return _is_head(lines, index + 1)
    return index > 0 and not lines[index - 1].strip() and _is_head(lines, index)


def _is_head(lines: list[str], index: int) -> bool:
    """Return whether three lines in a row look like the head of a mail that begins with From."""
    head = [line.strip(" *").lower() for line in lines[index : index + 3]]
    return len(head) == 3 and head[0].startswith(("from:", "von:", "de :")) and all(
        line.startswith(_HEAD) for line in head
    )  # fmt: skip


def _drop_attribution(new_lines: list[str]) -> int:
    """Remove the line that names the author of the following quote, which programs may break in two; return the number
    of removed lines."""
    while new_lines and not new_lines[-1]:
        new_lines.pop()
    if not new_lines or not _says_who_wrote(new_lines[-1]):
        new_lines.append("")
        return 0
    new_lines.pop()
    is_broken = new_lines[-1:] != [] and new_lines[-1].lower().startswith(_BROKEN) and not any(new_lines[-2:-1])
    if is_broken:
        new_lines.pop()
    return 1 + is_broken


def _says_who_wrote(line: str) -> bool:
    return line.endswith(":") and any(word in line.lower() for word in _WROTE)


def _without_rows_of_blanks(lines: list[str]) -> list[str]:
    return [line for index, line in enumerate(lines) if line or (index > 0 and lines[index - 1])]
