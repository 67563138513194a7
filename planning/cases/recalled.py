"""Recall for a decision: bounded in number and time. A memory that fails does not stop the decision."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from msgspec import Struct

from spar.data.learning.situations import is_exact
from spar.types import Experience, Fault

#: Number of experiences that are recalled for a decision.
RECALLED: Final = 30
#: Seconds that a decision waits for the memory.
WITHIN: Final = 2.0
#: Characters of a text that are used as the query.
_QUERY: Final = 2_000


class Recalled(Struct, frozen=True):
    """Recalled experiences, best first. `trouble` is a sentence if the memory failed, else "".

    `nearness` has by id the cosine of an experience's meaning and the query's; only of those with a known one.
    """

    experiences: Sequence[Experience] = ()
    trouble: str = ""
    nearness: Mapping[str, float] = {}


async def recall_at(memory: Any, text: str, key: str, session: str, **filters: Any) -> Recalled:
    """Return the experiences with this situation's key, newest first, then those that fit the text. Never raises.

    A key that names particular things is searched by itself. So experiences with these things are always among the
    result, however many similar texts there are. The same holds for experiences of this session.
    """
    by_key = await _recall_here(memory, "", session, key=key, **filters) if is_exact(key) else Recalled()
    if by_key.trouble:
        return by_key
    return _join(by_key, await _recall_here(memory, text, session, key, **filters))


async def _recall_here(memory: Any, text: str, session: str, situation: str | None = None, **filters: Any) -> Recalled:
    """Return the experiences that fit a text best. If the memory may have more, those of the session come first."""
    memories = await recall_bounded(memory, text, situation, **filters)
    if len(memories.experiences) < RECALLED or all(
        experience.session == session for experience in memories.experiences
    ):
        return memories
    return _join(await recall_bounded(memory, text, situation, session=session, **filters), memories)


def _join(first: Recalled, then: Recalled) -> Recalled:
    known_ids = {experience.id for experience in first.experiences}
    others = (experience for experience in then.experiences if experience.id not in known_ids)
    return Recalled((*first.experiences, *others), first.trouble or then.trouble, {**first.nearness, **then.nearness})


async def recall_bounded(memory: Any, text: str, situation: str | None = None, **filters: Any) -> Recalled:
    """Return the experiences that fit a text best and pass the filters. Never raises.

    Args: situation: the key of the situation of the decision.
    """
    search = getattr(memory, "search", None)
    recall = getattr(memory, "recall", None) if search is None else partial(search, situation=situation)
    if recall is None:
        return Recalled()
    query = text[:_QUERY]
    try:
        async with asyncio.timeout(WITHIN):
            matches = await recall(query, RECALLED, **filters) if query.strip() or filters else ()
    except TimeoutError:
        return Recalled(trouble=f"the memory did not answer within {WITHIN:g} s, so this was decided without it")
    except Exception as error:  # a memory that fails must not stop the decision
        return Recalled(trouble=f"decided without memory, which failed: {Fault.of(error).message}")
    if search is None:
        return Recalled(tuple(matches))
    nearness = {match.experience.id: match.nearness for match in matches if match.nearness is not None}
    return Recalled(tuple(match.experience for match in matches), nearness=nearness)
