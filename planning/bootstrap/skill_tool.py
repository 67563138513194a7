"""The tool `skill`: returns a skill's instructions as they were when the session began, or a file beside them."""

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

#: Characters of a file beside a skill. Encoded as a tool's result, they fit into what a model is shown without a cut.
_LONGEST: Final = 16_000
#: Largest number of files that are listed of a skill, and of folder levels that are searched for them.
_MOST_FILES: Final = 50
_DEEPEST: Final = 3

#: Returns the skills of the session of a cycle (its id) or run (its id).
SkillsOf = Callable[[str, str | None], Awaitable[tuple[Skill, ...]]]


class SkillTool:
    """Tool that reads skills.

    Args: skills_of: returns the skills of the calling session; in_thread: runs a blocking function in a thread; trust:
        the trust of the folder of skills; workspace: the folder where tools write.
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
        """Return the skill's `instructions`, `folder` and `files`; with `file`, the `text` of that file.

        Raises: PermanentError for a skill or file that does not exist or cannot be read.
        """
        cycle_id, run_id = CALLED_FOR.get()
        skills = {skill.name: skill for skill in await self._skills_of(cycle_id, run_id)}
        if name not in skills:
            raise PermanentError(f"no skill {shorten(name)}; there are: {', '.join(skills) or 'none'}")
        skill = skills[name]
        if file:
            answer: dict[str, Any] = await self._in_thread(self._file, skill, file)
            return answer
        files = await self._in_thread(lambda: sorted(_files(skill.folder)))
        answer = {"name": skill.name, "instructions": skill.body, "folder": skill.folder}
        return {**answer, "files": files} if files else answer

    def _file(self, skill: Skill, file: str) -> dict[str, Any]:
        """Return the beginning of a file in the skill's folder. Raises: PermanentError."""
        folder = os.path.realpath(skill.folder)
        path = os.path.realpath(os.path.join(folder, file)) if "\0" not in file else ""  # noqa: PTH118
        if not Path(path).is_relative_to(folder) or _is_hidden(path, folder):
            raise PermanentError(f"{shorten(file)} does not lie in the folder of the skill {skill.name!r}")
        try:
            reading = read_text(path, _LONGEST, inside=self._workspace)
        except UnreadableError as error:
            raise PermanentError(f"{shorten(file)} {error}") from error
        answer: dict[str, Any] = {"file": file, "text": reading.text}
        return answer if reading.is_whole else {**answer, "left_out": f"all but the first {_LONGEST:,} characters"}


def _is_hidden(path: str, folder: str) -> bool:
    """Return whether a part of the path begins with a dot: `.env`, `.git` are for programs."""
    return any(part.startswith(".") for part in Path(path).relative_to(folder).parts)


def _files(folder: str) -> Iterator[str]:
    """Yield the files of a skill relative to its folder, without hidden ones and without its `SKILL.md`."""
    count = 0
    for at, folders, names in os.walk(folder):
        depth = len(Path(at).relative_to(folder).parts)
        folders[:] = [] if depth >= _DEEPEST else sorted(folder for folder in folders if not folder.startswith("."))
        for name in sorted(names):
            if name.startswith(".") or (depth == 0 and name == FILE):
                continue
            count += 1
            if count > _MOST_FILES:
                return
            yield str(Path(at, name).relative_to(folder))
