"""Programs of skills: their files, and the environment variables that only they get.

A skill's folder belongs to the operator: it must not be where tools may write, or a tool could put a program there that
reveals its variables. A program belongs to a skill only by the folder of its real path, with links resolved.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from spar.errors import ConfigError, PermanentError
from spar.protocols import Home
from spar.records.skills import FILE, parse_skill

#: Most bytes of a `SKILL.md`.
_LARGEST: Final = 200_000
#: Shorter values are no secrets, and occur in any text.
_SHORTEST_SECRET: Final = 4


class SkillPrograms:
    """The programs in a folder of skills. Args: named: the folder, relative to the configuration's ("" for none).

    Raises: ConfigError for a folder that does not exist, or that tools may write to.
    """

    def __init__(self, named: str, home: Home) -> None:
        self.folder = os.path.realpath(os.path.join(home.config, named)) if named else ""  # noqa: PTH118
        if not named:
            return
        folder, workspace = Path(self.folder), Path(home.workspace).resolve()
        if not folder.is_dir():
            raise ConfigError(f"no folder {named!r}; looked for {self.folder}", path=("skills",))
        if folder.is_relative_to(workspace) or workspace.is_relative_to(folder):
            raise ConfigError(
                f"the skills in {named!r} lie where tools may write, and their programs are given values of the "
                "environment: put them beside the configuration",
                path=("skills",),
            )
        for what, own in (("state", home.state), ("configuration", home.config)):
            mine = Path(own).resolve()
            if mine.is_relative_to(folder) or (what == "state" and folder.is_relative_to(mine)):
                raise ConfigError(f"{named!r} and the service's {what} must not lie in one another", path=("skills",))

    def program(self, path: str) -> str:
        """Return the real path of a skill's program; "" for any other file."""
        if not self.folder or not path.startswith("/"):
            return ""
        real = os.path.realpath(path)
        is_own = Path(real).is_relative_to(self.folder) and len(Path(real).relative_to(self.folder).parts) > 1
        return real if is_own and os.access(real, os.X_OK) and Path(real).is_file() else ""

    def variables(self, program: str) -> dict[str, str]:
        """Return the environment variables of a program's skill, by the real path from `program`. Blocks shortly.

        Raises: PermanentError for a skill that cannot be read, or whose variables are not set.
        """
        name = Path(program).relative_to(self.folder).parts[0]
        try:
            with Path(self.folder, name, FILE).open("rb") as file:
                text = file.read(_LARGEST).decode("utf-8-sig")
            wanted = parse_skill(text.replace("\r\n", "\n"), name).environment
        except (OSError, ValueError) as error:
            raise PermanentError(f"the skill {name!r} is not available: {error}") from error
        if missing := [name_wanted for name_wanted in wanted if not os.environ.get(name_wanted)]:
            raise PermanentError(
                f"the skill {name!r} is not available: its environment is missing: {', '.join(missing)}"
            )
        return {name_wanted: os.environ[name_wanted] for name_wanted in wanted}


def without(text: str, variables: Mapping[str, str]) -> str:
    """Return a text with each variable's value replaced by the variable's name."""
    for name, value in sorted(variables.items(), key=lambda pair: -len(pair[1])):
        if len(value) >= _SHORTEST_SECRET:
            text = text.replace(value, f"[{name}]")
    return text
