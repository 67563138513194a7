"""The new part of a mail: its text without what it quotes and without the signature; pure, one pass over the lines."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

#: Lines that a program puts above the whole of an earlier mail.
_CUTS: Final = ("original message", "ursprüngliche nachricht", "message d'origine", "mensaje original",
                "forwarded message", "weitergeleitete nachricht")  # fmt: skip
#: Words of the line that says who wrote what is quoted below it.
_WROTE: Final = ("wrote", "schrieb", "écrit", "escribió", "ha scritto", "schreef", "napisał")
_HEAD: Final = ("from:", "von:", "de :", "de:", "sent:", "gesendet:", "envoyé", "date:", "datum:", "to:", "an:", "à :",
                "cc:", "subject:", "betreff:", "objet")  # fmt: skip
_RULE: Final = "_____"


class NewText(Struct, frozen=True):
    """The new text of a mail, and how many lines of quoted text and of a signature were left out."""

    text: str
    quoted: int = 0
    signature: int = 0


def new_text(text: str) -> NewText:
    """Return what the sender has written, without what is quoted."""
    lines = text.split("\n")
    kept: list[str] = []
    quoted = signature = 0
    index = 0
    while index < len(lines):
        line = lines[index]
        if _is_cut(lines, index):
            quoted += sum(bool(each.strip()) for each in lines[index:])
            break
        if line in ("-- ", "--"):
            end = next((at for at in range(index, len(lines)) if _is_quote(lines[at])), len(lines))
            signature += end - index
            index = end
            continue
        if _is_quote(line):
            quoted += 1 + _drop_attribution(kept)
            index += 1
            continue
        kept.append(line.rstrip())
        index += 1
    return NewText("\n".join(_without_rows_of_blanks(kept)).strip(), quoted, signature)


def _is_quote(line: str) -> bool:
    return line.lstrip().startswith(">")


def _is_cut(lines: list[str], index: int) -> bool:
    """Return whether all from this line on is an earlier mail."""
    line = lines[index].strip().lower()
    if line.startswith("--") and line.strip("- ").startswith(_CUTS):
        return True
    if line.startswith(_RULE) and not line.strip("_"):
        return _is_head(lines, index + 1)
    return index > 0 and not lines[index - 1].strip() and _is_head(lines, index)


def _is_head(lines: list[str], index: int) -> bool:
    """Return whether three lines in a row look like the head of a mail, the first of them saying from whom."""
    head = [line.strip(" *").lower() for line in lines[index : index + 3]]
    return len(head) == 3 and head[0].startswith(("from:", "von:", "de :")) and all(
        line.startswith(_HEAD) for line in head
    )  # fmt: skip


def _drop_attribution(kept: list[str]) -> int:
    """Take the line away that says who wrote what is quoted now, which programs break in two; return how many."""
    while kept and not kept[-1]:
        kept.pop()
    if not kept or not _says_who_wrote(kept[-1]):
        if kept:
            kept.append("")
        return 0
    kept.pop()
    if kept and kept[-1] and (len(kept) == 1 or not kept[-2]) and kept[-1].lower().startswith(("on ", "am ", "le ")):
        kept.pop()
        return 2
    return 1


def _says_who_wrote(line: str) -> bool:
    return line.endswith(":") and any(word in line.lower() for word in _WROTE)


def _without_rows_of_blanks(lines: list[str]) -> list[str]:
    return [line for index, line in enumerate(lines) if line or (index > 0 and lines[index - 1])]
