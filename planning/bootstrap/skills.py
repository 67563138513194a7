"""Skills of a planner: the folders with a `SKILL.md` as they were last read, and the reasons why some cannot be used.

A prompt lists names and descriptions; the tool `skill` (`planning.bootstrap.session_prompts`) returns a body.
`planning.bootstrap.snapshots` keeps the version that a session uses.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field

from planning.bootstrap.reading import Key, UnreadableError, key_of, read_text
from planning.prompt.shorten import to_json
from spar.data.skills import FILE, parse_skill
from spar.errors import ConfigError
from spar.protocols import Home
from spar.types import Trust

MOST_SKILLS: Final = 100
#: Characters of a skill as a tool's result. So many a model is shown without a cut.
LONGEST: Final = 18_000
#: Characters of all descriptions together.
LONGEST_LIST: Final = 30_000
#: Largest number of entries of the folder that are read.
_MOST_ENTRIES: Final = 1_000


class SkillsTable(BaseModel):
    """The folder of skills, written as a table with its path and options."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: Annotated[str, Field(min_length=1)]
    trust: Trust | None = None


class Skill(Struct, frozen=True):
    """A skill that can be used. `folder` has its files; `environment` names the variables that it needs."""

    name: str
    description: str
    body: str
    folder: str
    environment: tuple[str, ...] = ()


class _Looked(Struct, frozen=True):
    """State of a skill's file at its last check: the skill, or the problem why there is none."""

    key: Key | None
    skill: Skill | None = None
    problem: str = ""


class Skills:
    """The skills in one folder.

    `usable` has them by name; `unavailable` has by name the reason why a skill cannot be used; `reads` counts files
    read.

    Args: named: the folder, beside the configuration or in the workspace. Raises: ConfigError if it does not exist.
    """

    def __init__(self, named: str | SkillsTable, home: Home | None) -> None:
        table = SkillsTable(path=named) if isinstance(named, str) else named
        folders = (home.config, home.workspace) if home is not None else (".",)
        paths = [os.path.join(folder, table.path) for folder in folders]  # noqa: PTH118
        match = next((folder for folder in paths if Path(folder).is_dir()), None)
        if match is None:
            raise ConfigError(f"no folder {table.path!r}; looked for {' and '.join(paths)}", path=("skills",))
        self.path = os.path.realpath(match)
        self.workspace = os.path.realpath(home.workspace) if home is not None else os.devnull
        is_inside = Path(self.path).is_relative_to(self.workspace)
        self.name = table.path
        self.trust: Trust = table.trust or ("untrusted" if is_inside else "trusted")
        self._looked: dict[str, _Looked] = {}
        self.usable: Mapping[str, Skill] = {}
        self.unavailable: Mapping[str, str] = {}
        self.reads = 0

    def look(self) -> None:
        """Check all skills and read the changed ones. Blocks, for a bounded number of files. Raises nothing."""
        looked: dict[str, _Looked] = {}
        try:
            with os.scandir(self.path) as entries:
                names = sorted(entry.name for _, entry in zip(range(_MOST_ENTRIES), entries, strict=False))
        except OSError as error:
            self.usable, self.unavailable = {}, {self.name: f"the folder cannot be read: {error.strerror}"}
            return
        for name in names:
            if not name.startswith(".") and (file := self._look_at(name)) is not None:
                looked[name] = file
        self._looked = looked
        self._set_usable(looked)

    def _set_usable(self, looked: Mapping[str, _Looked]) -> None:
        """Set `usable` and `unavailable` from the files of the skills."""
        usable: dict[str, Skill] = {}
        problems = {name: file.problem for name, file in looked.items() if file.problem}
        listed = 0
        for name, file in looked.items():
            if file.skill is None:
                continue
            listed += len(file.skill.description)
            missing = [variable for variable in file.skill.environment if not os.environ.get(variable)]
            if missing:
                problems[name] = f"its environment is missing: {', '.join(missing)} (set where the service is started)"
            elif len(usable) >= MOST_SKILLS or listed > LONGEST_LIST:
                problems[name] = (
                    f"there are too many: at most {MOST_SKILLS} skills, with descriptions of {LONGEST_LIST:,} "
                    "characters in all"
                )
            else:
                usable[name] = file.skill
        self.usable, self.unavailable = usable, problems

    def _look_at(self, name: str) -> _Looked | None:
        """Return the state of a skill's file now, read again only if it has changed; None if it is not a folder."""
        folder = os.path.join(self.path, name)  # noqa: PTH118
        path = os.path.join(folder, FILE)  # noqa: PTH118
        known = self._looked.get(name)
        try:
            key = key_of(os.stat(path))  # noqa: PTH116
        except OSError as error:
            if not Path(folder).is_dir():
                return None
            why = f"it has no {FILE}" if isinstance(error, FileNotFoundError) else f"{FILE} cannot be read"
            return _Looked(None, problem=why)
        if known is not None and known.key == key:
            return known
        self.reads += 1
        try:
            reading = read_text(path, LONGEST, inside=self.workspace)
            if reading.is_inside and self.trust == "trusted" and not Path(self.path).is_relative_to(self.workspace):
                raise UnreadableError("lies in the workspace, where tools may write")
            text = parse_skill(reading.text, name) if reading.is_whole else None
        except UnreadableError as error:
            return _Looked(key if error.stays else None, problem=f"{FILE} {error}")
        except ValueError as error:
            return _Looked(key, problem=str(error))
        if text is None or len(to_json(text.body)) > LONGEST:
            return _Looked(key, problem=f"it is too large: expected at most {LONGEST:,} characters; put parts of it "
                           "into files beside it")  # fmt: skip
        return _Looked(key, Skill(text.name, text.description, text.body, folder, text.environment))
