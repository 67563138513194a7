"""`skill`: brings a skill's instructions, or a file that lies beside them, as the session began with it."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

from planning.bootstrap.reading import UnreadableError, read_text
from planning.bootstrap.skills import Skill
from spar.checks import shorten
from spar.errors import PermanentError
from spar.protocols import CALLED_FOR, Effect
from spar.records.skills import FILE
from spar.types import Trust

#: Characters of a file beside a skill: so many, and what they are written with, a model is shown without a gap.
_LONGEST: Final = 16_000
#: Files of a skill that are named, and how deep they may lie.
_MOST_FILES: Final = 50
_DEEPEST: Final = 3

#: Gives the skills of the session that a cycle or run belongs to.
SkillsOf = Callable[[str, str | None], Awaitable[tuple[Skill, ...]]]


class SkillTool:
    """Reads skills.

    Args: skills_of: gives those of the session that calls; in_thread: runs what blocks; trust: that of their folder;
        workspace: where tools write.
    """

    name = "skill"
    effect: Effect = "read"
    timeout = 10.0
    concurrency = 4
    safe_with_untrusted = True

    def __init__(self, skills_of: SkillsOf, in_thread: Callable[..., Awaitable[Any]], trust: Trust,
                 workspace: str) -> None:  # fmt: skip
        self._skills_of, self._in_thread, self._workspace = skills_of, in_thread, workspace
        self.brings_untrusted = trust == "untrusted"
        self.schema: dict[str, Any] = {
            "type": "object",
            "description": "Read a skill: its instructions, or with `file` one of the files that it names.",
            "properties": {
                "_tool": {"const": self.name},
                "name": {"type": "string", "description": "the skill's name"},
                "file": {"type": "string", "description": "a file of the skill, relative to its folder"},
            },
            "required": ["name"],
            "additionalProperties": False,
        }

    async def __call__(self, *, name: str, file: str = "") -> dict[str, Any]:
        """Return the skill's `instructions`, `folder` and `files`; or the `text` of a file.

        Raises: PermanentError for a skill or file that is not there or cannot be read.
        """
        cycle_id, run_id = CALLED_FOR.get()
        skills = {each.name: each for each in await self._skills_of(cycle_id, run_id)}
        if name not in skills:
            raise PermanentError(f"no skill {shorten(name)}; there are: {', '.join(skills) or 'none'}")
        skill = skills[name]
        if file:
            found: dict[str, Any] = await self._in_thread(self._file, skill, file)
            return found
        files = await self._in_thread(lambda: sorted(_files(skill.folder)))
        told = {"name": skill.name, "instructions": skill.body, "folder": skill.folder}
        return {**told, "files": files} if files else told

    def _file(self, skill: Skill, file: str) -> dict[str, Any]:
        """Return the beginning of a file in the skill's folder. Raises: PermanentError."""
        folder = os.path.realpath(skill.folder)
        path = os.path.realpath(os.path.join(folder, file)) if "\0" not in file else ""  # noqa: PTH118
        if not Path(path).is_relative_to(folder) or _is_hidden(path, folder):
            raise PermanentError(f"{shorten(file)} does not lie in the folder of the skill {skill.name!r}")
        try:
            found = read_text(path, _LONGEST, inside=self._workspace)
        except UnreadableError as error:
            raise PermanentError(f"{shorten(file)} {error}") from error
        told: dict[str, Any] = {"file": file, "text": found.text}
        return told if found.is_whole else {**told, "left_out": f"all but the first {_LONGEST:,} characters"}


def _is_hidden(path: str, folder: str) -> bool:
    """Return whether a path leads over a name that begins with a dot: `.env`, `.git` are for programs."""
    return any(part.startswith(".") for part in Path(path).relative_to(folder).parts)


def _files(folder: str) -> Iterator[str]:
    """Yield the files of a skill, relative to its folder, without those that begin with a dot."""
    count = 0
    for at, folders, names in os.walk(folder):
        depth = len(Path(at).relative_to(folder).parts)
        folders[:] = [] if depth >= _DEEPEST else sorted(each for each in folders if not each.startswith("."))
        for name in sorted(names):
            if name.startswith(".") or (depth == 0 and name == FILE):
                continue
            count += 1
            if count > _MOST_FILES:
                return
            yield str(Path(at, name).relative_to(folder))
