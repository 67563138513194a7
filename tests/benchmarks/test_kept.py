"""What a message costs on the event loop does not depend on what was learnt or met before: counted, at two sizes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import cache

import pytest

from benchmarks.kept import Known, knowing
from tests.effort import Effort

MESSAGES = 8
FEW = Known(tools=6, situations=6, sessions=6, experiences=6)


@cache
def steps(known: Known) -> int:
    async def main() -> int:
        async with knowing(known) as batch:
            await batch(4)
            with Effort() as counted:
                await batch(MESSAGES)
            return counted.steps

    return asyncio.run(main())


@pytest.mark.parametrize("field", ["tools", "situations", "sessions", "senders", "incidents", "experiences"])
def test_a_message_takes_as_many_steps_when_eight_times_as_much_is_known(field: str) -> None:
    known = replace(FEW, **{field: 6})
    many = steps(replace(known, **{field: 48}))

    assert many <= 1.15 * steps(known)
