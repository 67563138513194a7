"""Messages and files through the rules planner: a read, what may be repeated, what may not, in a chain."""

from __future__ import annotations

from typing import Any

from perception.sense import Sense
from perception.sensors.directory import DirectorySensor
from planning.rules.planner import RulesPlanner
from spar import Agent
from spar.protocols import SensorSpec
from spar.types import Perception
from tests.faults.workloads.life import Workload, agent, drop, live, submit
from tests.faults.world import Want, World

MESSAGES, FILES, PUSHED = ("m1", "m2", "m3"), ("f1", "f2"), ("p1",)

_CALLS = [
    {"name": "look", "tool": "look", "params": {"event": "{content}", "step": "look"}, "output": "†state.seen"},
    {"name": "tally", "tool": "tally", "params": {"event": "{content}", "step": "tally", "given": "†state.seen"},
     "output": "†state.counted"},
    {"name": "pay", "tool": "pay", "params": {"event": "{content}", "step": "pay", "given": "†state.counted"}},
    {"name": "mark", "tool": "tally", "params": {"event": "{content}", "step": "mark"}, "after": ["pay"]},
]  # fmt: skip
RULES = [
    {"name": "message", "when": {"kind": "message"}, "answer": "done with {content}", "calls": _CALLS},
    {"name": "file", "when": {"kind": "file.added"}, "calls": _CALLS},
]


async def main(world: World) -> None:
    inbox: Any = DirectorySensor(str(world.inbox), home=world.home, settle=0.0)
    made = agent(world, sense=Sense([SensorSpec("inbox", inbox)]), plan=RulesPlanner(RULES))

    async def feed(made: Agent) -> None:
        drop(world, FILES[:1])
        await submit(world, made, MESSAGES, ("main", "main", "side"))
        drop(world, FILES[1:])
        if not any(line["event"] == PUSHED[0] for line in world.events.read()):
            world.events.write(event=PUSHED[0], told="offered")
            made.push(Perception(PUSHED[0], kind="message", source="test", trust="trusted"))

    await live(world, made, feed)


def wants_of(event: str) -> tuple[Want, ...]:
    """The steps that `RULES` lead to for one event."""
    return (
        Want(event, "look", "read"),
        Want(event, "tally", "idempotent", after=("look",)),
        Want(event, "pay", "once", after=("tally",)),
        Want(event, "mark", "idempotent", after=("pay",)),
    )


# Nobody promised what was only pushed: it need not happen, and must not happen twice.
WORKLOAD = Workload("rules", main, tuple(want for event in (*MESSAGES, *FILES, *PUSHED) for want in wants_of(event)))
