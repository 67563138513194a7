"""What nodes leave to the one with the channels: each row is dealt with, whatever becomes of another one."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from spar.channels.forwarding import Forwarding
from spar.errors import TransientError
from spar.testing import VirtualClock


class Rows:
    """Rows of other nodes; the first look at them fails."""

    def __init__(self, **rows: Any) -> None:
        self.rows, self.looks = rows, 0

    async def list(self) -> dict[str, Any]:
        self.looks += 1
        if self.looks == 1:
            raise TransientError("the database cannot be reached")
        return dict(self.rows)

    def drop(self, key: str) -> None:
        del self.rows[key]


class Answers:
    """Answers that take each end of a run but one."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    def end(self, run_id: str, reply: str | None, into: str) -> None:
        self.ended.append(run_id)
        if run_id == "bad":
            raise ValueError("nobody knows why")

    async def settle_ended(self, before: set[str]) -> set[str]:
        return set()


async def test_a_row_that_fails_keeps_no_other_one_from_its_way(clock: VirtualClock) -> None:
    rows, answers = Rows(a={"run_id": "bad"}, b={"run_id": 7}, c={"run_id": "good"}), Answers()
    core: Any = SimpleNamespace(clock=clock, events=SimpleNamespace(subscribe=None))
    forwarding = Forwarding(core, None, (), rows, lambda: True)  # type: ignore[arg-type]
    taking = asyncio.create_task(forwarding.take(answers, {}))  # type: ignore[arg-type]
    await clock.sleep(10)
    rows.rows["d"] = {"run_id": "later"}
    await clock.sleep(10)
    taking.cancel()

    assert answers.ended == ["bad", "good", "later"]
    assert rows.rows.keys() == {"a", "b"}  # what cannot be read stays, too
