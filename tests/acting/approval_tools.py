"""What the tests of approvals share: an executor whose tools note what they did, and people who answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from acting import Executor
from acting.approvals.queue import ApprovalQueue
from memory import Memory
from spar.bus.bus import Events
from spar.clock import Clock
from spar.protocols import Context, Host, Store
from spar.protocols.tools import tool
from spar.records.approvals import Approval, Decision
from spar.testing import VirtualClock
from spar.types import Action, ActionResult


class World:
    """What tools did to it, in order."""

    def __init__(self) -> None:
        self.done: list[Any] = []

    def tools(self) -> list[Any]:
        @tool(approval="ask")
        async def act(what: Any = None) -> Any:
            self.done.append(what)
            return {"did": what}

        @tool
        async def plain(what: Any = None) -> Any:
            self.done.append(what)
            return what

        @tool(safe_with_untrusted=True)
        async def safe(what: Any = None) -> Any:
            self.done.append(what)
            return what

        return [act, plain, safe]


def executor(world: World, clock: Clock, *, store: Store | None = None, tools: Any = None,
             resumed: list[str] | None = None, events: Any = None, **approval: Any) -> Executor:  # fmt: skip
    """One that asks at its desk, attached to an agent without being one's."""
    asks = {"hold": 30.0, **approval}
    made = Executor(world.tools() if tools is None else tools, events=events, settings={"approval": asks})
    wake = (lambda session: None) if resumed is None else resumed.append
    host = Host("main", clock, events or Events("main", clock=clock), None, lambda: None, store, None, wake)
    made.attach(host)
    return made


def remembering(path: Path, clock: VirtualClock) -> Memory:
    """A memory in this folder, not yet open."""
    memory = Memory.open(f"sqlite:///{path}/m.db")
    memory.attach(Host("main", clock, Events("main", clock=clock), None, lambda: None))
    return memory


def cycle(clock: Clock, session: str = "main") -> Context:
    return Context("main", clock.new_id(), session)


def desk_of(made: Executor) -> ApprovalQueue:
    assert made.approvals is not None
    return made.approvals


async def pending(made: Executor, count: int = 1) -> list[Approval]:
    """The questions, once there are so many; oldest first."""
    for _ in range(400):
        found = await desk_of(made).list()
        if len(found) >= count:
            return list(found)[::-1]
        await asyncio.sleep(0.001)
    raise AssertionError(f"{count} questions never came, there are {len(found)}")


async def answer(made: Executor, row: Approval, decision: Decision = "approve", **more: Any) -> Approval:
    return await desk_of(made).decide(row.id, row.digest, decision, **{"by": "alice", **more})


def on_hand(made: Executor, session: str = "main") -> Action:
    """The action with which the next cycle of a session goes on."""
    found = made.resumable(session)
    assert found is not None
    return found


def statuses(result: ActionResult) -> list[str]:
    return [f"{each.status} {each.reason}".strip() for each in result.results]


def faults(result: ActionResult) -> list[str]:
    return [each.fault.kind if each.fault else "" for each in result.results]
