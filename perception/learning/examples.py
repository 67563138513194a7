"""Examples of labels, from the configuration, from files beside it and from people, with their bounds.

A file is JSON lines, `{"text": …, "intent": …}` or `{"text": …, "kind": …}`; the file of one label may also be plain
text, with one example a line. A file in the workspace is refused, because tools may write untrusted text there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from perception.learning.features import LONGEST
from spar.decoding import decode
from spar.errors import ConfigError
from spar.protocols import Home

MOST: Final = 50_000  # examples of intents, or of kinds
LARGEST: Final = 32 * 1024 * 1024  # bytes of a file
LONGEST_LABEL: Final = 100

What = Literal["intent", "kind"]
Share = Annotated[float, Meta(gt=0, le=1)]


class Example(Struct, frozen=True):
    """Text with a label; `what` is the sort of the label."""

    what: What
    text: str
    label: str


class LabelSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings `[perception.intents.NAME]` and `[perception.kinds.NAME]`: texts with this label, here and in a file."""

    examples: tuple[str, ...] = ()
    file: str = ""


class LearningSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings `[perception.learning]`: `files` of examples of any labels; `keep` is the share of texts like the
    examples that is answered, while the others count as out of scope."""

    enabled: bool = True
    files: tuple[str, ...] = ()
    keep: Share = 0.9


class _Row(Struct, forbid_unknown_fields=True):
    text: str
    intent: str = ""
    kind: str = ""


def bounded(what: What, text: str, label: str) -> Example:
    """Return an example within the bounds. Raises: ValueError for an empty or too long text or label."""
    text, label = text.strip(), label.strip()
    if not text or not label:
        raise ValueError(f"an example needs a text and the {what} that it has; found {text!r:.60} and {label!r:.60}")
    if len(text) > LONGEST:
        raise ValueError(f"the text of an example has at most {LONGEST} characters, found {len(text)}: {text!r:.60}")
    if len(label) > LONGEST_LABEL or not label.isprintable():
        raise ValueError(f"{label!r:.120} is no name of {what}: at most {LONGEST_LABEL} printable characters")
    return Example(what, text, label)


def written(
    tables: Mapping[What, Mapping[str, LabelSettings]], files: Sequence[str], home: Home | None
) -> list[Example]:
    """Return the examples of the configuration and of its files, in order.

    Raises: ConfigError with the path of the setting, the file and the line that cannot be used.
    """
    examples: list[Example] = []
    for what, labels in tables.items():
        for label, settings in labels.items():
            path = ("perception", f"{what}s", label)
            try:
                examples += [bounded(what, text, label) for text in settings.examples]
            except ValueError as error:
                raise ConfigError(str(error), path=(*path, "examples")) from None
            if settings.file:
                examples += _read(settings.file, home, (*path, "file"), (what, label))
    for index, name in enumerate(files):
        examples += _read(name, home, ("perception", "learning", "files", index), None)
    if len(examples) > MOST:
        raise ConfigError(f"at most {MOST} examples are learnt from, found {len(examples)}", path=("perception",))
    return examples


def _read(
    name: str, home: Home | None, path: tuple[str | int, ...], default_label: tuple[What, str] | None
) -> list[Example]:
    """Read the examples in a file; `default_label` is that of examples without a label."""
    file = Path(home.config if home else ".", name).expanduser().resolve()
    if home and file.is_relative_to(Path(home.workspace).resolve()):
        raise ConfigError(
            f"{name!r} lies in the workspace, where tools write what strangers say; keep examples elsewhere", path=path
        )
    try:
        if file.stat().st_size > LARGEST:
            raise ConfigError(f"{name!r} has more than {LARGEST} bytes", path=path)
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name!r} cannot be read as examples: {error}", path=path) from None
    return list(_parsed(text, name, path, default_label))


def _parsed(
    text: str, name: str, path: tuple[str | int, ...], default_label: tuple[What, str] | None
) -> Iterator[Example]:
    for number, line in enumerate(text.split("\n"), 1):
        if not (line := line.strip()):
            continue
        try:
            row = decode(line, _Row) if default_label is None or line.startswith("{") else _Row(line)
            if default_label is None and bool(row.intent) == bool(row.kind):
                raise ValueError('an example has either "intent" or "kind"')
            what, label = default_label or ("intent" if row.intent else "kind", "")
            yield bounded(what, row.text, row.intent or row.kind or label)
        except (ValueError, msgspec.DecodeError) as error:
            raise ConfigError(f"{name!r}, line {number}: {error}, found {line!r:.80}", path=path) from None
