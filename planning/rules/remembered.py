"""Memory for rules: what is remembered of the situation in which a rule decides.

A source may be an environment with episodes, in which each perception is one step and each action leads to the next.
There the memory may hold a sequence of calls that worked before; each step then gets the next call of it. A sequence is
looked for once, at the first step of an episode that is planned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from planning.cases.evidence import Case, cases_of
from planning.cases.recalled import Recalled, recall_at
from planning.cases.sequences import KnownCall, KnownSequence, sequence_of
from planning.cases.situations import Situation, situation
from spar.clock import Clock
from spar.data.bounded import SharedDict
from spar.types import Experience, Perception

#: Situations of one plan that are recalled; the others are decided by ability alone, and the reason says so.
RECALL_LIMIT = 32
#: Episodes whose sequence of calls is remembered, and sources that are known to go step by step.
EPISODE_LIMIT = 256


class Remembered(Struct, frozen=True):
    """Memory of a situation.

    `cases` are the calls that were tried in it or in one like it. In an environment that is acted in step by step,
    `episode` names the step and decides between equal tools, `replay` is the next call of a sequence that worked, and
    `replayed` is the id of the experience that it is from.
    """

    cases: tuple[Case, ...]
    at: Situation
    episode: str = ""
    replay: KnownCall | None = None
    replayed: str = ""


class Episodes:
    """Episodes of the environments that a planner acts in, and the sequence that it follows in each."""

    def __init__(self) -> None:
        #: By session, the sources that were seen to go step by step.
        self._stepwise: SharedDict[str, bool] = SharedDict(EPISODE_LIMIT)
        #: By session and episode, the first step that was planned and the sequence that is followed from there.
        self._sequences: SharedDict[str, tuple[int, KnownSequence | None]] = SharedDict(EPISODE_LIMIT)

    def has_steps(self, perception: Perception, experiences: Sequence[Experience]) -> bool:
        """Return whether a source is known to go step by step; in other sources one call ends the work."""
        session, source = perception.session, perception.source
        if _step_of(perception) > 0:
            self._stepwise.put(session, source, True)
        return self._stepwise.get(session, source) is not None or any(
            len(experience.calls) > 1 for experience in experiences
        )

    def sequence_in(self, session: str, episode: str) -> tuple[int, KnownSequence | None] | None:
        """Return the first step that was planned in an episode and the sequence from there; None for a new episode."""
        return self._sequences.get(session, episode)

    def follow(self, session: str, episode: str, step: int, sequence: KnownSequence | None) -> None:
        """Remember the sequence that is followed from this step of an episode on; None for none."""
        self._sequences.put(session, episode, (step, sequence))


class PlanMemory:
    """Memory for the rules of one plan: each situation is recalled once, and only a bounded number of them.

    Args: memory: is asked; episodes: of the planner; tell: takes the sentences about what could not be recalled.
    """

    def __init__(self, memory: Any, episodes: Episodes, clock: Clock, tell: Callable[[str], None]) -> None:
        self._memory, self._episodes, self._clock, self._tell = memory, episodes, clock, tell
        self._recalled: dict[tuple[str, str, str], Recalled] = {}  # by session, name and words of a situation
        self._has_failed = False

    async def of(self, perception: Perception, key: str) -> Remembered | None:
        """Return what is remembered of a perception's situation, by the name of that; None where the memory cannot be
        asked."""
        if self._memory is None:
            return None
        at = situation(perception, key, self._clock.now())
        same = (at.session, at.key, at.words)
        recalled = self._recalled.get(same)
        if recalled is None:
            if self._has_failed:
                return None
            if len(self._recalled) >= RECALL_LIMIT:
                self._tell(f"only {RECALL_LIMIT} situations were recalled, the others decided by ability alone")
                return None
            recalled = await recall_at(self._memory, perception.text, at.key, at.session)
            self._recalled[same] = recalled
        if recalled.trouble:
            self._has_failed = True  # a memory that hangs is waited for once, not for each perception
            self._tell(recalled.trouble)
            return None
        episode = perception.attributes.get("episode")
        if not isinstance(episode, str) or not self._episodes.has_steps(perception, recalled.experiences):
            return Remembered(cases_of(recalled.experiences, at, recalled.nearness), at)
        return await self._of_step(perception, recalled.experiences, at, episode)

    async def _of_step(
        self, perception: Perception, experiences: Sequence[Experience], at: Situation, episode: str
    ) -> Remembered:
        """Return what is remembered of a step: with it the next call of the sequence that is followed."""
        step = _step_of(perception)
        followed = self._episodes.sequence_in(at.session, episode)
        if followed is None:
            successes = await recall_at(self._memory, perception.text, at.key, at.session, success=True)
            if successes.trouble:
                self._tell(successes.trouble)
            followed = step, sequence_of([*experiences, *successes.experiences], at)
            self._episodes.follow(at.session, episode, *followed)
        first_step, sequence = followed
        cases = cases_of((experience for experience in experiences if len(experience.calls) == 1), at)
        place = step - first_step
        if sequence is None or not 0 <= place < len(sequence.calls):
            return Remembered(cases, at, f"{episode}|{step}")
        return Remembered(cases, at, f"{episode}|{step}", sequence.calls[place], sequence.experience_id)


def _step_of(perception: Perception) -> int:
    """Return the number of the step that a perception is of; 0 where it has none."""
    step = perception.attributes.get("step")
    return step if isinstance(step, int) else 0
