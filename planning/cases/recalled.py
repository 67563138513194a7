"""Recall for a decision: bounded in number and time, and never a reason not to decide."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from msgspec import Struct

from spar.records.abilities import is_exact
from spar.types import Experience, Fault

#: How many experiences are recalled for a decision.
RECALLED: Final = 30
#: Seconds that a decision waits for the memory.
WITHIN: Final = 2.0
#: Characters of a text that are looked for.
_QUERY: Final = 2_000


class Recalled(Struct, frozen=True):
    """Memories, best first; `trouble` is a sentence where the memory failed.

    `nearness` is how near the meaning of each is to what was asked for, a cosine, by id; of those of which it is known.
    """

    experiences: Sequence[Experience] = ()
    trouble: str = ""
    nearness: Mapping[str, float] = {}


async def recalled_at(memory: Any, text: str, key: str, session: str, **filters: Any) -> Recalled:
    """Return what was lived in the situation of this name, the newest first, and then what fits a text. Never raises.

    A name that says what it is about is asked for by itself: however many texts are like this one, what happened with
    these very things is among what is returned. So is what was lived in this session, whatever others live through.
    """
    own = await _recalled_here(memory, "", session, key=key, **filters) if is_exact(key) else Recalled()
    if own.trouble:
        return own
    return _joined(own, await _recalled_here(memory, text, session, key, **filters))


async def _recalled_here(
    memory: Any, text: str, session: str, situation: str | None = None, **filters: Any
) -> Recalled:
    """Return the experiences that have most to do with a text; where there are more, first those of the session."""
    found = await recalled(memory, text, situation, **filters)
    if len(found.experiences) < RECALLED or all(each.session == session for each in found.experiences):
        return found
    return _joined(await recalled(memory, text, situation, session=session, **filters), found)


def _joined(first: Recalled, then: Recalled) -> Recalled:
    known = {each.id for each in first.experiences}
    others = (each for each in then.experiences if each.id not in known)
    return Recalled((*first.experiences, *others), first.trouble or then.trouble, {**first.nearness, **then.nearness})


async def recalled(memory: Any, text: str, situation: str | None = None, **filters: Any) -> Recalled:
    """Return the experiences that have most to do with a text, and fit the filters. Never raises.

    Args: situation: the name of the one that is decided on.
    """
    search = getattr(memory, "search", None)
    recall = getattr(memory, "recall", None) if search is None else partial(search, situation=situation)
    if recall is None:
        return Recalled()
    query = text[:_QUERY]
    try:
        async with asyncio.timeout(WITHIN):
            found = await recall(query, RECALLED, **filters) if query.strip() or filters else ()
    except TimeoutError:
        return Recalled(trouble=f"the memory did not answer within {WITHIN:g} s, so this was decided without it")
    except Exception as error:  # a memory that fails is no reason not to act
        return Recalled(trouble=f"decided without memory, which failed: {Fault.of(error).message}")
    if search is None:
        return Recalled(tuple(found))
    near = {each.experience.id: each.nearness for each in found if each.nearness is not None}
    return Recalled(tuple(each.experience for each in found), nearness=near)
