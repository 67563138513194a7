"""Words of environments on how things went in an episode, as perceptions and results carry them; pure.

An environment's trusted perceptions carry `episode`, a name; `reward`, a number, for what was done since the last one;
`done`, true once it is over, perhaps `success`; `cut` beside `done` where it was cut short, as by a limit of steps. A
tool of it may say the same at once, by returning a table with `reward` and `done`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from spar.types import ActionResult, Perception, replace

#: Characters of the name of an episode.
_LONGEST_NAME = 120
#: Parts of a perception that are looked at for an episode's word.
_MOST_EVIDENCE = 50


class Word(Struct, frozen=True):
    """Message of an environment of a session, in one perception or result."""

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
        """Return the id of its thread: elsewhere an episode of the same name is another one."""
        return f"{self.episode} at {self.place}"


def words_in(perceptions: Iterable[Perception], session: str) -> Iterator[Word]:
    """Yield what environments say in trusted perceptions, and in the parts that they were fused from."""
    for perception in perceptions:
        parts = [part for part in perception.evidence[:_MOST_EVIDENCE] if part.id != perception.id]
        for each in (perception, *parts):
            if (word := _word_of(each, session)) is not None:
                yield word


def word_of_calls(result: ActionResult, episode: Word) -> Word | None:
    """Return what the tools of an environment say of an episode by what they returned; None when they say nothing."""
    found = [
        item.output
        for item in result.results
        if item.status == "ok"
        and isinstance(item.output, Mapping)
        and "reward" in item.output
        and "done" in item.output
    ]
    if not found:
        return None
    is_done, is_cut = (any(each.get(name) is True for each in found) for name in ("done", "cut"))
    reward = sum(_number(each["reward"]) for each in found)
    return replace(episode, reward=reward, is_done=is_done, success=None, is_cut=is_cut)


def _word_of(perception: Perception, session: str) -> Word | None:
    given = perception.attributes
    name = given.get("episode")
    if perception.trust != "trusted" or not isinstance(name, str) or not name or len(name) > _LONGEST_NAME:
        return None
    success = given.get("success")
    return Word(
        name,
        session,
        perception.source,
        _number(given.get("reward")),
        given.get("done") is True,
        success if isinstance(success, bool) else None,
        given.get("cut") is True,
    )


def _number(value: object) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else 0.0  # type: ignore[arg-type]
