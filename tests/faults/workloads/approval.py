"""Calls that people are asked about: one answered while its cycle waits, one after it has gone on, one refused."""

from __future__ import annotations

from collections.abc import Sequence

from spar import Agent
from spar.protocols import Context
from spar.types import Action, Call, Perception
from tests.faults.workloads.life import Workload, agent, live, signing, submit
from tests.faults.world import Want, World

ANSWERS = {"a1": ("approve", 0.0), "a2": ("approve", 0.08), "a3": ("deny", 0.0)}
_HOLD = 0.05


class Asking:
    """Plans a call that asks, with one before it and one after it; answers once there is nothing else to do."""

    async def plan(self, perceptions: Sequence[Perception], context: Context) -> Action | None:
        run = context.run
        if run is None:
            return None
        if run.number > 1:
            return Action(output=f"done with {run.goal}")
        event = run.goal
        return Action(
            (
                Call("look", {"event": event, "step": "look"}, id="look", output_path="†state.seen"),
                Call("sign", {"event": event, "step": "sign", "given": "†state.seen"}, id="sign",
                     output_path="†state.signed"),
                Call("tally", {"event": event, "step": "file", "given": "†state.signed"}, id="file"),
                Call("pay", {"event": event, "step": "pay"}, id="pay"),
            ),
            goal=event,
        )  # fmt: skip


async def main(world: World) -> None:
    made = agent(world, plan=Asking(), hold=_HOLD, expires=60.0)

    async def feed(made: Agent) -> None:
        await submit(world, made, tuple(ANSWERS), ("main", "two", "three"))

    await live(world, made, feed, signing(world, ANSWERS.__getitem__))


def _wants(event: str) -> tuple[Want, ...]:
    is_refused = ANSWERS[event][0] == "deny"
    return (
        Want(event, "look", "read"),
        Want(event, "sign", "once", asks=True, after=("look",), is_refused=is_refused),
        Want(event, "file", "idempotent", after=("sign",), is_refused=is_refused),
        Want(event, "pay", "once"),
    )


WORKLOAD = Workload("approval", main, tuple(want for event in ANSWERS for want in _wants(event)))
