"""Standing prompts of sessions: composed of files and skills, passed to hooks, cached while their parts are the same.

A problem with a file or a skill is reported when it begins and when it ends. A run goes on with the other parts.

The tool `skill` returns a skill's instructions as they were when the session began, or a file beside them.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from planning.bootstrap.before_request import ask_hooks, publish_fault
from planning.bootstrap.files import PromptFiles, cut_to_bounds
from planning.bootstrap.reading import UnreadableError, read_text
from planning.bootstrap.sections import Prompt, lay_out
from planning.bootstrap.skills import Skill
from planning.bootstrap.snapshots import Snapshots
from spar.checks import shorten
from spar.data.bounded import BoundedDict
from spar.data.skills import FILE
from spar.errors import PermanentError
from spar.hooks import PromptFile
from spar.protocols import CALLED_FOR, Context, Effect, Host
from spar.types import Fault, Trust

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


POINT: Final = "agent_bootstrap"
#: Largest numbers of conversations with rewritten files, of cached prompts, and of cycles with a known session.
_MOST_SESSIONS: Final = 1_000
_MOST_PROMPTS: Final = 64
_MOST_CYCLES: Final = 1_000

_Files = tuple[PromptFile, ...]


def _check_types(files: _Files) -> None:
    """Raise TypeError for a file with a field that is not a text."""
    for file in files:
        if not all(isinstance(text, str) for text in (file.name, file.text, file.origin, file.left_out)):
            raise TypeError("name, text, origin and left_out of a PromptFile are texts")


class SessionPrompts:
    """The standing prompts of one planner.

    Args: instructions: those of the configuration; files: those of the configuration; snapshots: the sessions' skills;
        references: whether calls may refer to one another.
    """

    def __init__(
        self,
        instructions: str = "",
        files: PromptFiles | None = None,
        snapshots: Snapshots | None = None,
        *,
        references: bool = True,
    ) -> None:
        self.references = references
        self.instructions, self.files, self.snapshots = instructions, files, snapshots
        self._host: Host | None = None
        #: By conversation, the files before the hooks and after them.
        self._rewritten: BoundedDict[str, tuple[_Files, _Files]] = BoundedDict(_MOST_SESSIONS)
        self._prompts: BoundedDict[tuple[_Files, tuple[Skill, ...]], Prompt] = BoundedDict(_MOST_PROMPTS)
        #: By cycle and by run, the session and its conversation.
        self._sessions: BoundedDict[str, tuple[str, str]] = BoundedDict(_MOST_CYCLES)
        self._reported: dict[str, str] = {}
        self._reported_missing: set[str] = set()
        self.composed = 0

    def attach(self, host: Host) -> None:
        """Keep the host, and give files and snapshots its clock and rows."""
        self._host = host
        if self.files is not None:
            self.files.attach(host.clock)
        if self.snapshots is not None:
            self.snapshots.attach(host.rows("skills"), host.clock)

    def tools(self) -> tuple[SkillTool, ...]:
        """Return the tool that reads skills; nothing if no folder of skills is configured."""
        if self.snapshots is None:
            return ()
        skills = self.snapshots.skills
        return (SkillTool(self._skills_of_call, self.snapshots.in_thread, skills.trust, skills.workspace),)

    async def of(self, context: Context, *, keep: bool = True) -> Prompt:
        """Return the standing part of a session's next request. Args: keep: False for a preview. Raises nothing."""
        files: _Files = ()
        is_hooked = self._host is not None and self._host.hooks is not None and POINT in self._host.hooks.used
        conversation = await self._conversation(context) if is_hooked or self.snapshots is not None else ""
        if self.files is not None:
            await self.files.look()
            files = self.files.files
        if is_hooked:
            files = await self._apply_hooks(files, context, conversation, keep=keep)
        skills = await self._skills(context, conversation, keep=keep)
        if self.files is not None or self.snapshots is not None:
            self._report_problems()
        key = (files, skills)
        if (prompt := self._prompts.get(key)) is None:
            self.composed += 1
            prompt = self._prompts[key] = self._lay_out(*key)
        return prompt

    def warnings(self) -> list[str]:
        """Return a sentence for each problem with a file or a skill."""
        return [f"{subject} {reason}" for subject, reason in self._problems().items()]

    def snapshot(self) -> dict[str, Any]:
        """Return the files, the skills and their problems."""
        files, skills = self.files, self.snapshots.skills if self.snapshots is not None else None
        snapshot: dict[str, Any] = {}
        if files:
            snapshot["files"] = {file.name: len(file.text) for file in files.files}
            snapshot["missing"] = list(files.missing)
        if skills is not None:
            usable = ({"name": skill.name, "description": skill.description} for skill in skills.usable.values())
            others = ({"name": name, "unavailable": why} for name, why in skills.unavailable.items())
            snapshot["skills"] = [*usable, *others]
        return {**snapshot, "problems": self._problems()} if snapshot else {}

    def _lay_out(self, files: _Files, skills: tuple[Skill, ...]) -> Prompt:
        folder = self.snapshots.skills if self.snapshots is not None else None
        origin, trust = (folder.name, folder.trust) if folder is not None else ("", "trusted")
        return lay_out(self.instructions, files, skills, skills_origin=origin, skills_trust=trust,
                       references=self.references)  # fmt: skip

    async def _conversation(self, context: Context) -> str:
        """Return the id of the session's current conversation; the id of its first one if the store fails."""
        if self._host is not None:
            try:
                return await self._host.conversation(context.session)
            except Exception as error:
                publish_fault(self._host, context, Fault.of(error, part="sessions", phase="plan"))
        return f"{context.session}#1"

    async def _apply_hooks(self, files: _Files, context: Context, conversation: str, *, keep: bool) -> _Files:
        """Return the files after the hooks. They are called once for each conversation, and again for changed files."""
        known = self._rewritten.get(conversation)
        if known is not None and known[0] == files:
            return known[1]
        changes: list[dict[str, Any]] = []

        def accept(hook: str, before: _Files, after: _Files) -> _Files:
            _check_types(after)
            changes.append({"point": POINT, "hook": hook, "files": [file.name for file in after]})
            return after

        outcome = await ask_hooks(self._host, context, POINT, files, "" if keep else "preview", accept)
        if changes and keep and self._host is not None:
            self._host.note(context.cycle_id, lambda: {"kind": "hooks", "hooks": changes})
        rewritten = () if outcome.denied else cut_to_bounds(tuple(outcome.value))
        if keep:
            self._rewritten[conversation] = (files, rewritten)
        return rewritten

    async def _skills(self, context: Context, conversation: str, *, keep: bool) -> tuple[Skill, ...]:
        if self.snapshots is None:
            return ()
        for key in (context.cycle_id, context.run.id if context.run is not None else ""):
            if key and keep:
                self._sessions[key] = (context.session, conversation)
        try:
            return await self.snapshots.of(context.session, conversation, cycle_id=context.cycle_id, keep=keep)
        except Exception as error:
            publish_fault(self._host, context, Fault.of(error, part="skills", phase="plan"))
            return tuple(self.snapshots.skills.usable.values())

    async def _skills_of_call(self, cycle_id: str, run_id: str | None) -> tuple[Skill, ...]:
        assert self.snapshots is not None
        known = self._sessions.get(cycle_id) or self._sessions.get(run_id or "")
        if known is None:  # the call belongs to a cycle from before the restart
            await self.snapshots.look()
            return tuple(self.snapshots.skills.usable.values())
        return await self.snapshots.of(*known, keep=False)

    def _problems(self) -> dict[str, str]:
        files, skills = self.files, self.snapshots.skills if self.snapshots is not None else None
        problems = {f"the file {name!r}": reason for name, reason in files.problems.items()} if files else {}
        unavailable: Mapping[str, str] = skills.unavailable if skills is not None else {}
        folder = skills.path if skills is not None else ""
        return {**problems, **{f"the skill {name!r} is not available ({Path(folder, name)}):": reason
                            for name, reason in unavailable.items()}}  # fmt: skip

    def _report_problems(self) -> None:
        """Report problems that are new and problems that have ended."""
        host, problems = self._host, self._problems()
        if host is None:
            return
        missing = set(self.files.missing) if self.files is not None else set()
        for name in sorted(missing - self._reported_missing):
            host.tell_problem(f"the file {name!r}", "is not there, so the model is not told of it", is_note=True)
        self._reported_missing = missing
        if problems == self._reported:
            return
        for subject in self._reported.keys() - problems.keys():
            host.tell_problem(subject, "")
        for subject, reason in problems.items():
            if self._reported.get(subject) != reason:
                host.tell_problem(subject, reason)
        self._reported = problems
