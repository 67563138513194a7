"""Feedback of environments on an episode, read from perceptions and from results of calls; pure.

The trusted perceptions of an environment carry `episode`, a name; `reward`, a number for the actions since the last
perception; `done`, true once the episode is over; perhaps `success`; and `cut` beside `done` when the episode was cut
short, for example by a limit of steps. A tool of the environment may report the same at once, by returning a table
with `reward` and `done`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from spar.types import ActionResult, Perception, replace

#: Characters of the name of an episode.
_LONGEST_NAME = 120
#: Parts of a perception that are searched for feedback.
_MOST_EVIDENCE = 50


class Word(Struct, frozen=True):
    """Feedback of an environment in a session, from one perception or one result."""

    episode: str
    session: str
    source: str
    reward: float
    is_done: bool
    success: bool | None = None
    is_cut: bool = False

    @property
    def place(self) -> str:
        """Return the name of the place where the episode goes on."""
        return f"{self.session} {self.source}"

    @property
    def thread(self) -> str:
        """Return the id of the episode's thread; it holds the place, because another place may have an episode of the
        same name."""
        return f"{self.episode} at {self.place}"


def words_in(perceptions: Iterable[Perception], session: str) -> Iterator[Word]:
    """Yield the feedback of environments in trusted perceptions and in the parts that they were fused from."""
    for perception in perceptions:
        if perception.attributes and (word := _word_of(perception, session)) is not None:
            yield word
        for part in perception.evidence[:_MOST_EVIDENCE]:
            if part.id != perception.id and (word := _word_of(part, session)) is not None:
                yield word


def word_of_calls(result: ActionResult, episode: Word) -> Word | None:
    """Return the feedback on an episode that the results of an environment's tools carry; None when they carry none."""
    outputs = [item.output for item in result.results if item.status == "ok" and isinstance(item.output, Mapping)]
    outputs = [output for output in outputs if "reward" in output and "done" in output]
    if not outputs:
        return None
    is_done, is_cut = (any(output.get(name) is True for output in outputs) for name in ("done", "cut"))
    reward = sum(_number(output["reward"]) for output in outputs)
    return replace(episode, reward=reward, is_done=is_done, success=None, is_cut=is_cut)


def _word_of(perception: Perception, session: str) -> Word | None:
    attributes = perception.attributes
    name = attributes.get("episode")
    if perception.trust != "trusted" or not isinstance(name, str) or not name or len(name) > _LONGEST_NAME:
        return None
    success = attributes.get("success")
    return Word(name, session, perception.source, _number(attributes.get("reward")), attributes.get("done") is True,
                success if isinstance(success, bool) else None, attributes.get("cut") is True)  # fmt: skip


def _number(value: object) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else 0.0  # type: ignore[arg-type]
