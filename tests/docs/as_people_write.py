"""Parts as people write them: mypy and pyright accept all that the documents allow."""

from collections.abc import AsyncIterator, Sequence

from perception.sensors.messages import MessagesSensor
from spar import Action, ActionResult, Agent, Call, CallResult, Context, Perception, Reflection, SensorContext
from spar.protocols import SensorSpec


async def plan(perceptions: Sequence[Perception], context: Context) -> Action | None:
    return None


def lists(perceptions: Sequence[Perception]) -> list[Call]:
    return []


async def streams(perceptions: Sequence[Perception]) -> AsyncIterator[Call]:
    yield Call("note")


class Actor:
    async def act(self, action: Action) -> ActionResult:
        return ActionResult(action)


async def sense() -> list[Perception]:
    return []


class PlainSensor:
    every = 10

    def open(self, context: SensorContext) -> None: ...

    def poll(self) -> list[Perception]:
        return []

    def close(self) -> None: ...


class AsyncSensor:
    async def poll(self, context: Context) -> Perception | None:
        return None


class Pushes:
    async def open(self, ctx: SensorContext) -> None:
        ctx.push(Perception("x"))


specs = [SensorSpec(type(each).__name__, each) for each in (PlainSensor(), AsyncSensor(), Pushes(), MessagesSensor())]
agents = [Agent(sense=sense, plan=plan, act=Actor()), Agent(plan=lists), Agent(plan=streams)]
call = Call("note", {"text": "x"}, after=["a"])
action = Action(calls=[call], perceptions=[Perception("x", evidence=[Perception("y")])])
result = ActionResult(action, results=[CallResult(call, "ok")], messages=[], errors=[])
reflection = Reflection(result, successes=[call], failures=[], abilities=[], experiences=[])
