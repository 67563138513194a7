"""Memory for rules: what is remembered of the situation in which a rule decides.

A source may be an environment with episodes, in which each perception is one step and each action leads to the next.
There the memory may hold a sequence of calls that worked before; each step then gets the next call of it. A sequence is
looked for once, at the first step of an episode that is planned.

A sequence is of calls that began in a situation and led to success.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from planning.cases.evidence import Case, cases_of
from planning.cases.recalled import Recalled, recall_at
from planning.cases.situations import Situation, has_same_params, is_same, situation
from spar.clock import Clock
from spar.data.bounded import SharedDict
from spar.data.learning.situations import thing_named, things_of
from spar.data.scrub import MASK
from spar.types import Experience, Perception, TriedCall, Trust

#: The sign of a cut in a stored parameter, and the first sign of a reference in a parameter.
_LEFT_OUT: Final = "…"
_REFERENCE: Final = "†"


class KnownCall(Struct, frozen=True):
    """One call of a sequence: its tool, the parameters that can be used again, and their trust."""

    tool: str
    params: Mapping[str, Any] = {}
    trust: Trust = "trusted"


class KnownSequence(Struct, frozen=True):
    """Calls that began in a situation and led to success, without those that failed; with the id of the experience."""

    calls: tuple[KnownCall, ...]
    experience_id: str
    score: float

    @property
    def tools(self) -> tuple[str, ...]:
        return tuple(call.tool for call in self.calls)


def sequence_of(experiences: Iterable[Experience], at: Situation) -> KnownSequence | None:
    """Return the best sequence of calls that began in this situation and worked; of equals the shortest one.

    A parameter is used again if its value is one of the things in the situation's key, or if it was the same each time
    that these calls worked here.
    """
    by_tools: dict[tuple[str, ...], list[tuple[Experience, list[TriedCall]]]] = {}
    for experience in experiences:
        if experience.success is not True or len(experience.calls) < 2 or not is_same(experience, at):
            continue
        if experience.trust == "untrusted" and at.trust == "trusted":
            continue
        calls = [call for call in experience.calls if call.success is not False]
        by_tools.setdefault(tuple(call.tool for call in calls), []).append((experience, calls))
    candidates = [
        (max(alike, key=lambda candidate: _score_of(candidate[0])), [calls for _, calls in alike])
        for alike in by_tools.values()
    ]
    if not candidates:
        return None
    (experience, calls), alike = min(
        candidates, key=lambda candidate: (-_score_of(candidate[0][0]), len(candidate[0][1]))
    )
    known = [
        _known_call(call, experience, [sequence[place] for sequence in alike], at) for place, call in enumerate(calls)
    ]
    return KnownSequence(tuple(known), experience.id, _score_of(experience))


def _score_of(experience: Experience) -> float:
    return 1.0 if experience.score is None else experience.score


def _known_call(call: TriedCall, experience: Experience, alike: Sequence[TriedCall], at: Situation) -> KnownCall:
    """Return a call as it can be made again. No untrusted parameter enters a call in a trusted situation."""
    trust: Trust = "untrusted" if "untrusted" in (call.trust, experience.trust) else "trusted"
    if trust == "untrusted" and at.trust == "trusted":
        return KnownCall(call.tool)
    things = things_of(at.key)
    params = {
        name: value
        for name, value in call.params.items()
        if _is_whole(value)
        and (
            (isinstance(value, str) and thing_named(value) in things)
            or all(name in other.params and has_same_params({"": other.params[name]}, {"": value}) for other in alike)
        )
    }
    return KnownCall(call.tool, params, trust)


def _is_whole(value: Any) -> bool:
    """Return whether a stored parameter is the original value: not masked, not cut and not a reference."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return not any(sign in text for sign in (MASK, _LEFT_OUT, _REFERENCE))


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
