"""Standing part of each session's prompt: composed of what there is, shown to hooks, kept while it stays so.

What is wrong with a file or a skill is told when it becomes so, and when it is over; a run goes on with what there is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from planning.bootstrap.files import PromptFiles, bounded
from planning.bootstrap.sections import ListedSkill, Prompt, lay_out
from planning.bootstrap.skill_tool import SkillTool
from planning.bootstrap.skills import Skill
from planning.bootstrap.snapshots import Snapshots
from spar.data.bounded import BoundedDict
from spar.events import ErrorOccurred
from spar.hooks import HookContext
from spar.protocols import Context, Host
from spar.records.prompt import PromptFile
from spar.types import Fault

POINT: Final = "agent_bootstrap"
#: Sessions whose files hooks have rewritten, prompts that are kept, and cycles whose session is known.
_MOST_SESSIONS: Final = 1_000
_MOST_PROMPTS: Final = 64
_MOST_CYCLES: Final = 1_000

_Files = tuple[PromptFile, ...]


def _check(files: _Files) -> None:
    """Raises: TypeError for a file whose parts are no texts."""
    for each in files:
        if not all(isinstance(text, str) for text in (each.name, each.text, each.origin, each.left_out)):
            raise TypeError("name, text, origin and left_out of a PromptFile are texts")


class SessionPrompts:
    """The standing prompts of one planner.

    Args: instructions: those of the configuration; files: told with them; snapshots: the skills of sessions.
    """

    def __init__(
        self, instructions: str = "", files: PromptFiles | None = None, snapshots: Snapshots | None = None
    ) -> None:
        self.instructions, self.files, self.snapshots = instructions, files, snapshots
        self._host: Host | None = None
        #: By conversation, the files that hooks were shown and what they made of them.
        self._rewritten: BoundedDict[str, tuple[_Files, _Files]] = BoundedDict(_MOST_SESSIONS)
        self._prompts: BoundedDict[tuple[_Files, tuple[ListedSkill, ...]], Prompt] = BoundedDict(_MOST_PROMPTS)
        #: By cycle and by run, the session and its conversation.
        self._sessions: BoundedDict[str, tuple[str, str]] = BoundedDict(_MOST_CYCLES)
        self._told: dict[str, str] = {}
        self._said_missing: set[str] = set()
        self.composed = 0

    def attach(self, host: Host) -> None:
        """Take the agent's clock, hooks and rows."""
        self._host = host
        if self.files is not None:
            self.files.attach(host.clock)
        if self.snapshots is not None:
            self.snapshots.attach(host.rows("skills"), host.clock)

    def tools(self) -> tuple[SkillTool, ...]:
        """Return the tool that reads skills, where there are any."""
        if self.snapshots is None:
            return ()
        skills = self.snapshots.skills
        return (SkillTool(self._skills_of_call, self.snapshots.in_thread, skills.trust, skills.workspace),)

    async def of(self, context: Context, *, keep: bool = True) -> Prompt:
        """Return the standing part of a session's next request. Args: keep: False only looks. Raises nothing."""
        files: _Files = ()
        conversation = await self._conversation(context)
        if self.files is not None:
            await self.files.look()
            files = self.files.told
        if self._host is not None and self._host.hooks is not None and POINT in self._host.hooks.used:
            files = await self._asked(files, context, conversation, keep=keep)
        skills = await self._skills(context, conversation, keep=keep)
        self._tell()
        key = (files, tuple(ListedSkill(each.name, each.description) for each in skills))
        if (found := self._prompts.get(key)) is None:
            self.composed += 1
            found = self._prompts[key] = self._laid_out(*key)
        return found

    def warnings(self) -> list[str]:
        """Return what is wrong with files and skills, a sentence each."""
        return [f"{about} {why}" for about, why in self._problems().items()]

    def snapshot(self) -> dict[str, Any]:
        """Return the files and skills, and why some are not told."""
        files, skills = self.files, self.snapshots.skills if self.snapshots is not None else None
        told: dict[str, Any] = {}
        if files:
            told["files"] = {each.name: len(each.text) for each in files.told}
            told["missing"] = list(files.missing)
        if skills is not None:
            told["skills"] = list(skills.found)
        return {**told, "problems": self._problems()} if told else {}

    def _laid_out(self, files: _Files, skills: tuple[ListedSkill, ...]) -> Prompt:
        found = self.snapshots.skills if self.snapshots is not None else None
        origin, trust = (found.name, found.trust) if found is not None else ("", "trusted")
        return lay_out(self.instructions, files, skills, skills_origin=origin, skills_trust=trust)

    async def _conversation(self, context: Context) -> str:
        """Return the id of the conversation that goes on; that of the first where nobody can say."""
        if self._host is not None:
            try:
                return await self._host.conversation(context.session)
            except Exception as error:
                self._report(error, "sessions", context)
        return f"{context.session}#1"

    async def _asked(self, files: _Files, context: Context, conversation: str, *, keep: bool) -> _Files:
        """Return what a conversation's hooks make of the files: asked once, and again when a file has changed."""
        known = self._rewritten.get(conversation)
        if known is not None and known[0] == files:
            return known[1]
        assert self._host is not None
        run_id = context.run.id if context.run is not None else None
        reason = "" if keep else "preview"
        asked = HookContext(POINT, context.agent, files, context.session, run_id, context.cycle_id, reason)
        did: list[dict[str, Any]] = []

        def accept(hook: str, before: _Files, after: _Files) -> _Files:
            _check(after)
            did.append({"point": POINT, "hook": hook, "files": [each.name for each in after]})
            return after

        outcome = await self._host.hooks.run(asked, accept)
        if did and keep:
            self._host.note(context.cycle_id, lambda: {"kind": "hooks", "hooks": did})
        for fault in outcome.faults:
            self._publish(ErrorOccurred(cycle_id=context.cycle_id, phase="plan", error=fault, policy=POINT))
        made = () if outcome.denied else bounded(tuple(outcome.value))
        if keep:
            self._rewritten[conversation] = (files, made)
        return made

    async def _skills(self, context: Context, conversation: str, *, keep: bool) -> tuple[Skill, ...]:
        if self.snapshots is None:
            return ()
        for key in (context.cycle_id, context.run.id if context.run is not None else ""):
            if key and keep:
                self._sessions[key] = (context.session, conversation)
        try:
            return await self.snapshots.of(context.session, conversation, cycle_id=context.cycle_id, keep=keep)
        except Exception as error:
            self._report(error, "skills", context)
            return tuple(self.snapshots.skills.found.values())

    async def _skills_of_call(self, cycle_id: str, run_id: str | None) -> tuple[Skill, ...]:
        assert self.snapshots is not None
        known = self._sessions.get(cycle_id) or self._sessions.get(run_id or "")
        if known is None:  # of a cycle before the restart
            await self.snapshots.look()
            return tuple(self.snapshots.skills.found.values())
        return await self.snapshots.of(*known, keep=False)

    def _problems(self) -> dict[str, str]:
        files, skills = self.files, self.snapshots.skills if self.snapshots is not None else None
        found = {f"the file {name!r}": why for name, why in files.problems.items()} if files else {}
        unavailable: Mapping[str, str] = skills.unavailable if skills is not None else {}
        folder = skills.path if skills is not None else ""
        return {**found, **{f"the skill {name!r} is not available ({Path(folder, name)}):": why
                            for name, why in unavailable.items()}}  # fmt: skip

    def _tell(self) -> None:
        """Tell what has become wrong, and what is well again."""
        host, problems = self._host, self._problems()
        if host is None:
            return
        missing = set(self.files.missing) if self.files is not None else set()
        for name in sorted(missing - self._said_missing):
            host.tell_problem(f"the file {name!r}", "is not there, so the model is not told of it", is_note=True)
        self._said_missing = missing
        if problems == self._told:
            return
        for about in self._told.keys() - problems.keys():
            host.tell_problem(about, "")
        for about, why in problems.items():
            if self._told.get(about) != why:
                host.tell_problem(about, why)
        self._told = problems

    def _report(self, error: Exception, part: str, context: Context) -> None:
        fault = Fault.of(error, part=part, phase="plan")
        self._publish(ErrorOccurred(cycle_id=context.cycle_id, phase="plan", error=fault, policy="continue"))

    def _publish(self, event: Any) -> None:
        if self._host is not None:
            self._host.events.publish(event)
