"""The world around a simulated agent: what it senses with, plans by and acts on, all of which may fail by a seed.

The world outlives the agent's process. It keeps the ledger of what was really done, and knows of every fault that it
made. Whether a fault may happen at all in this simulation, and when it does, is drawn (`Dice.fails`), after
FoundationDB's BUGGIFY: with every fault possible everywhere, nothing would ever get far enough to break.
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from spar import Action, Agent, Call, Context, Perception
from spar.clock import Clock
from spar.errors import PermanentError, TransientError
from spar.hooks import Decision
from spar.protocols import SensorContext
from spar.protocols.tools import tool
from spar.testing.script import Hang

#: The share of the kinds of faults that a seed switches on.
SWITCHED_ON = 0.4
SYLLABLES = ("ba", "de", "fi", "go", "hu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "wu", "zy")
GARBAGE: tuple[Callable[[], Any], ...] = (
    lambda: 42,
    lambda: "an answer",
    lambda: [None, 7],
    lambda: {"_tool": "read"},
    lambda: Action(calls=("no call",)),  # type: ignore[arg-type]
    lambda: Action(calls=(Call("nothing of this name"),)),
    lambda: Action(calls=(Call("read", {"key": Ellipsis}),)),
    lambda: Action(
        calls=(Call("read", {"key": "†state.never"}, id="a", after=("b",)), Call("read", id="b", after=("a",)))
    ),
    lambda: Action(calls=(Call("read", {"wrong": 1}), Call("read", {"key": "†"}))),
)


#: What a model may answer that is of no use.
ANSWERS: tuple[Any, ...] = (
    None, 42, "no JSON", {"output": " "}, {"calls": "none"}, {"calls": [{"key": "x"}, 7]}, {"calls": [{"_tool": 3}]},
    {"calls": [{"_tool": "nothing of this name"}]}, {"output": "†state.never"}, {"calls": [], "more": 1},
)  # fmt: skip


class Dice:
    """What is drawn from a seed. `is_calm` switches all faults off; `made` counts those that were made, by label."""

    def __init__(self, seed: int | str) -> None:
        self._seed = seed
        self._random = random.Random(f"{seed}/world")
        self._is_on: dict[str, bool] = {}
        self.is_calm = False
        self.made: Counter[str] = Counter()
        self.uniform, self.choice, self.randrange = self._random.uniform, self._random.choice, self._random.randrange
        self.choices, self.expovariate = self._random.choices, self._random.expovariate

    def fails(self, label: str, chance: float) -> bool:
        """Whether this fault is made now."""
        if label not in self._is_on:
            self._is_on[label] = random.Random(f"{self._seed}/{label}").random() < SWITCHED_ON
        if self.is_calm or not self._is_on[label] or self._random.random() >= chance:
            return False
        self.made[label] += 1
        return True


class World:
    """See the module.

    `effects` counts by key what was done that must not be done twice. `tell(line)` traces.
    """

    def __init__(self, seed: int | str, tell: Callable[[str], None]) -> None:
        self.dice, self.tell = Dice(seed), tell
        self.effects: Counter[str] = Counter()
        self.hangs: list[Hang] = []
        self.clock: Clock
        self.agent: Agent
        self._count = 0

    def token(self, kind: str) -> str:
        """A word that nothing else is called by, and that is not like another one."""
        self._count += 1
        letters = random.Random(self._count)
        return f"{kind} " + " ".join("".join(letters.choices(SYLLABLES, k=3)) for _ in range(3))

    def perception(self, kind: str, session: str = "main", **more: Any) -> Perception:
        return Perception(self.token(kind), kind=kind, at=self.clock.now(), session=session, trust="trusted", **more)

    def calm(self) -> None:
        """Nothing fails any more, and who hangs comes back."""
        self.dice.is_calm = True
        self.release()

    def release(self) -> None:
        hangs, self.hangs = self.hangs, []
        for hang in hangs:
            hang.release()

    async def trouble(self, place: str, chance: float = 0.06) -> None:
        """One of the ways in which a part may behave badly: late, broken, stuck."""
        fails = self.dice.fails
        if fails(f"{place}.slow", chance):
            await asyncio.sleep(self.dice.uniform(0.0, 4.0))
        if fails(f"{place}.raises", chance):
            raise RuntimeError(f"{place} broke")
        if fails(f"{place}.transient", chance):
            raise TransientError(f"{place} is not there", retry_after=self.dice.choice([None, 0.1, 3.0]))
        if fails(f"{place}.permanent", chance / 2):
            raise PermanentError(f"{place} never works")
        if fails(f"{place}.group", chance / 2):
            errors = [RuntimeError("one"), ValueError("two"), asyncio.CancelledError()]
            raise BaseExceptionGroup(f"{place}", errors[: self.dice.randrange(1, 4)])
        if fails(f"{place}.cancels_itself", chance / 2):
            raise asyncio.CancelledError
        if fails(f"{place}.hangs", chance / 2):
            await self.hang()
        if fails(f"{place}.ignores_cancellation", chance / 3):
            await self.hang(ignore_cancel=True)

    async def hang(self, *, ignore_cancel: bool = False) -> None:
        hang = Hang(ignore_cancel=ignore_cancel)
        self.hangs.append(hang)
        await hang.wait()

    # -- tools

    def do(self, key: str) -> None:
        """What is done to the world, once."""
        self.effects[key] += 1
        self.tell(f"effect {key}")

    def tools(self) -> list[Any]:
        async def deed(place: str, key: str, effect: Callable[[], None]) -> str:
            await self.trouble(place)
            effect()
            await self.trouble(f"{place}.after")
            return f"done {key}"

        @tool(effect="read", timeout=2.0, retries=1)
        async def read(key: str) -> str:
            return await deed("tool.read", key, lambda: None)

        @tool(effect="idempotent", timeout=2.0, retries=2)
        async def put(key: str) -> str:
            return await deed("tool.put", key, lambda: self.tell(f"put {key}"))

        @tool(effect="once", timeout=2.0, retries=2)
        async def send(key: str) -> str:
            return await deed("tool.send", key, lambda: self.do(key))

        @tool(effect="once", timeout=2.0, retries=2, approval="ask")
        async def pay(key: str) -> str:
            return await deed("tool.pay", key, lambda: self.do(key))

        @tool(effect="once", timeout=2.0, detach=True)
        async def post(key: str) -> str:
            return await deed("tool.post", key, lambda: self.do(key))

        @tool(effect="read", timeout=2.0, concurrency=1)
        def look(key: str) -> str:
            if self.dice.fails("tool.look.raises", 0.06):
                raise OSError("nothing to be seen")
            return f"seen {key}"

        return [read, put, send, pay, post, look]

    def calls(self) -> tuple[Call, ...]:
        """What a planner may come up with: calls that wait for one another, or not, each with a key of its own."""
        calls: list[Call] = []
        for _ in range(self.dice.choice([0, 1, 1, 2, 3, 5])):
            self._count += 1
            name = self.dice.choices(["read", "put", "send", "pay", "post", "look"], [3, 3, 3, 1, 1, 2])[0]
            key = f"{name}-{self._count}"
            more: dict[str, Any] = {}
            if calls and self.dice.uniform(0, 1) < 0.3:
                more["after"] = (self.dice.choice(calls).id,)
            written = [call.output_path for call in calls if call.output_path]
            if written and name in ("read", "put") and self.dice.uniform(0, 1) < 0.3:
                key = self.dice.choice(written)
            if self.dice.uniform(0, 1) < 0.4:
                more["output_path"] = f"†state.s{self._count}"
            calls.append(Call(name, {"key": key}, id=f"c{self._count}", **more))
        return tuple(calls)


class FaultyPlanner:
    """Plans something for whatever it is shown; answers a run at its third request."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def plan(self, perceptions: Sequence[Perception], context: Context) -> Any:
        world, dice = self._world, self._world.dice
        await world.trouble("planner")
        if dice.fails("planner.garbage", 0.08):
            return dice.choice(GARBAGE)()
        calls = world.calls()
        is_answer = context.run is not None and (context.run.number > 2 or dice.is_calm)
        if is_answer:
            return Action(calls=calls[:1], output="that is all", perceptions=tuple(perceptions))
        if dice.uniform(0, 1) < 0.3:
            return self._streamed(calls)
        return Action(calls=calls, perceptions=tuple(perceptions))

    async def _streamed(self, calls: Sequence[Call]) -> AsyncIterator[Any]:
        for call in calls:
            await self._world.trouble("stream")
            yield call
        if self._world.dice.fails("stream.garbage", 0.1):
            yield "no call"


class FaultyModel:
    """Answers what it is asked with calls, or with an output; or with what is no answer."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def __call__(self, request: Any) -> Any:
        world, dice = self._world, self._world.dice
        await world.trouble("model")
        if dice.fails("model.garbage", 0.1):
            return copy.deepcopy(dice.choice(ANSWERS))
        calls = [call.to_wire() for call in world.calls()]
        if dice.is_calm or dice.uniform(0, 1) < 0.4:
            return {"calls": calls[:1], "output": "that is all"}
        return {"calls": calls}


class FaultySensor:
    """Notices now and then; is closed as often as it is opened. `noticed` holds what the agent took from it."""

    def __init__(self, world: World, name: str, every: float) -> None:
        self._world, self.name, self.every = world, name, every
        self._last: list[Perception] = []
        self._pusher: asyncio.Task[None] | None = None

    async def open(self, ctx: SensorContext) -> None:
        self._pusher = asyncio.get_running_loop().create_task(self._push(ctx), name=f"pushes of {self.name}")
        await self._world.trouble(f"{self.name}.open")

    async def poll(self) -> Any:
        world, dice = self._world, self._world.dice
        await world.trouble(f"{self.name}.poll")
        if dice.fails(f"{self.name}.garbage", 0.1):
            return dice.choice([17, "text", [None], {"a": 1}])
        if dice.fails(f"{self.name}.repeats", 0.2):
            return self._last
        number = 500 if dice.fails(f"{self.name}.floods", 0.02) else dice.choice([0, 0, 0, 1, 2])
        self._last = [world.perception(self.name) for _ in range(number)]
        return self._last

    async def close(self) -> None:
        pusher, self._pusher = self._pusher, None
        if pusher is not None:
            pusher.cancel()
        await self._world.trouble(f"{self.name}.close")

    async def _push(self, ctx: SensorContext) -> None:
        while True:
            await asyncio.sleep(self._world.dice.expovariate(1 / 20.0))
            ctx.push(self._world.perception(self.name))
            if self._world.dice.fails(f"{self.name}.lies", 0.1):
                ctx.push("no perception")  # type: ignore[arg-type]


def beset(world: World, agent: Agent) -> None:
    """Give an agent hooks and handlers that fail."""
    for point in (
        "before_cycle",
        "before_plan",
        "before_call",
        "after_call",
        "before_run",
        "session_end",
        "service_stop",
    ):
        agent.hook(point, timeout=1.0)(_hook(world, point))

    async def slow(event: Any) -> None:
        await world.trouble("handler.async")

    def rash(event: Any) -> None:
        if world.dice.fails("handler.raises", 0.3):
            raise RuntimeError("the handler broke")

    for kind in ("LoopCompleted", "CallCompleted", "RunEnded"):
        agent.events.subscribe(_event(kind), slow)
        agent.events.subscribe(_event(kind), rash)


def _hook(world: World, point: str) -> Any:
    async def hook(ctx: Any) -> Any:
        await world.trouble(f"hook.{point}", 0.02)
        if world.dice.fails(f"hook.{point}.denies", 0.03):
            return Decision.deny("a hook was against it")
        if world.dice.fails(f"hook.{point}.nonsense", 0.02):
            return world.dice.choice([7, Decision.rewrite("nonsense"), Decision.require_approval("why not")])
        return None

    return hook


def _event(name: str) -> Any:
    import spar.events

    return getattr(spar.events, name)
