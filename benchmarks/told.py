"""Measure what a model is told and what that costs: `python -m benchmarks.told` (`make told`).

A scripted server of chat completions answers, so no model is needed, and its record of the requests is measured: the
tools and the messages as they came over the wire. pydantic-ai and openai-agents do the same tasks over the same
server. The tasks: a run of forty steps, each of which reads a page of 2 kB; a conversation of two hundred turns, each
with one call, in which the agent remembers what it learnt elsewhere.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise
from os.path import commonprefix
from pathlib import Path
from typing import Any, Final

from acting import Executor
from memory import Memory
from planning.assistant import Assistant
from reflection import Reflect
from spar import Agent, tool
from spar.cli.templates import template
from spar.types import Experience
from tests.servers.llm import LlmServer
from tests.servers.llm_replies import Reply, ToolCall, says
from tests.servers.llm_requests import Asked, content_of

STEPS, TURNS, SEEDS, PAGE = 40, 200, 60, 2_000
#: The share of a token's price that is paid for one that comes from the cache.
CACHED: Final = 0.1
INSTRUCTIONS: Final = "You keep this host well. Be brief."
PYDANTIC_AI, OPENAI_AGENTS = "pydantic-ai", "openai-agents"
#: Texts about what was learnt, as a request has them: blocks of data, or lines below their heading.
_OF_MEMORY: Final = re.compile(
    r"## Data: ¶(?:ability|experience\w*)\n[^\n]*(?:\n[^#\n][^\n]*)?|From memory[^\n]*(?:\n- [^\n]*)*"
)

Asking = Callable[[str], Awaitable[object]]


@dataclass(frozen=True)
class Row:
    """Row of the table: a figure and what is owed, which is the most of it or with `is_least` the least."""

    name: str
    figure: float
    owed: float
    before: str
    is_least: bool = False
    beside: str = ""

    @property
    def is_reached(self) -> bool:
        return self.figure >= self.owed if self.is_least else self.figure <= self.owed


def read_of(asked: Asked) -> str:
    """Return what the model reads of a request: the tools, then the messages, in the bytes of the wire."""
    return "\n".join(map(_wire, [asked.body.get("tools") or [], *asked.messages]))


def _wire(part: Any) -> str:
    """Return a part of a request as the provider's client writes it."""
    return json.dumps(part, ensure_ascii=False, separators=(",", ":"))


def common(one: str, other: str) -> int:
    """Return the number of characters with which both texts begin."""
    return len(commonprefix([one, other]))  # noqa: RUF071 - of characters, which is meant here


def shares(requests: Sequence[Asked]) -> list[float]:
    """Return for each request after the first which share of the one before it begins with."""
    texts = [read_of(asked) for asked in requests]
    return [common(*pair) / len(pair[0]) for pair in pairwise(texts)]


def billed(requests: Sequence[Asked]) -> float:
    """Return the characters that are paid in full, with those that a cache serves at a tenth."""
    texts = ["", *(read_of(asked) for asked in requests)]
    return sum(len(pair[1]) - (1 - CACHED) * common(*pair) for pair in pairwise(texts))


def remembered(requests: Sequence[Asked]) -> list[int]:
    """Return for each request how many characters about what was learnt it has beyond the one before."""
    sizes: list[int] = []
    former = ""
    for asked in requests:
        text = "\n".join(content_of(message) for message in asked.messages)
        sizes.append(sum(len(match) for match in _OF_MEMORY.findall(text[common(former, text) :])))
        former = text
    return sizes


# -- the tasks


def reading() -> Callable[[Asked], Reply]:
    """Return a model that reads forty pages one after another and then answers."""
    numbers = count()

    def answer(asked: Asked) -> Reply:
        number = next(numbers)
        return says("", ToolCall("page", {"number": number}, f"c{number}")) if number < STEPS else says("All is read.")

    return answer


def noting() -> Callable[[Asked], Reply]:
    """Return a model that reads one page in each turn."""
    numbers = count()

    def answer(asked: Asked) -> Reply:
        number, is_answer = divmod(next(numbers), 2)
        return (
            says(f"Turn {number} is done.")
            if is_answer
            else says("", ToolCall("page", {"number": number}, f"c{number}"))
        )

    return answer


def text_of(number: int) -> str:
    return (f"Page {number}: the printer of floor {number % 7} was looked at, its paper and its ink. " * 40)[:PAGE]


async def page(number: int) -> str:
    """Read a page of the log of the printers."""
    return text_of(number)


async def short_page(number: int) -> str:
    """Read a page of the log of the printers."""
    return text_of(number)[:200]


async def one_run(ask: Asking) -> None:
    await ask("Read the pages of the log of the printers, from the first to the last, and say when all is read.")


async def conversation(ask: Asking) -> None:
    for number in range(TURNS):
        await ask(f"Turn {number}: look at the printer of floor {number % 7} and say how it is.")


# -- those who do them


@asynccontextmanager
async def spar(url: str, read: Any) -> AsyncIterator[Asking]:
    with tempfile.TemporaryDirectory() as folder:
        planner = Assistant("local", base_url=url, instructions=INSTRUCTIONS)
        memory, earlier = Memory(f"sqlite:///{folder}/m.db"), datetime.now(UTC) - timedelta(days=1)
        tools = [tool(read, name="page", effect="read")]
        settings = {"agent": {"min_interval": 0.0}, "runs": {"requests": STEPS + 10}}
        agent = Agent(plan=planner, act=Executor(tools), reflect=Reflect(), memory=memory, loop_interval="off",
                      settings=settings)  # fmt: skip
        async with agent:
            for number in range(SEEDS):
                lesson = f"the printer of floor {number % 7} has its paper in room {number}"
                situation = f"printer of floor {number % 7}, look {number}"
                await agent.memory.store(
                    Experience(situation, "looked", "no paper", success=False, lesson=lesson, at=earlier,
                               session=f"s{number}", run_id=f"r{number}")
                )  # fmt: skip

            async def ask(text: str) -> object:
                status = await agent.wait((await agent.submit(text)).run_id, 120)
                if status.status != "ok":
                    raise RuntimeError(f"the run came back {status}")
                return status

            yield ask


@asynccontextmanager
async def pydantic_ai(url: str, read: Any) -> AsyncIterator[Asking]:
    from pydantic_ai import Agent as Peer
    from pydantic_ai import UsageLimits
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel("local", provider=OpenAIProvider(base_url=url, api_key="none"))
    peer = Peer(model, instructions=INSTRUCTIONS)
    peer.tool_plain(read, name="page")
    history: list[Any] = []

    async def ask(text: str) -> object:
        result = await peer.run(text, message_history=history, usage_limits=UsageLimits(request_limit=STEPS + 10))
        history[:] = result.all_messages()
        return result

    yield ask


@asynccontextmanager
async def openai_agents(url: str, read: Any) -> AsyncIterator[Asking]:
    from agents import Agent as Peer
    from agents import OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=url, api_key="none")
    model = OpenAIChatCompletionsModel("local", openai_client=client)
    tools = [function_tool(read, name_override="page")]
    peer = Peer(name="bench", instructions=INSTRUCTIONS, model=model, tools=tools)
    history: list[Any] = []

    async def ask(text: str) -> object:
        result = await Runner.run(peer, [*history, {"role": "user", "content": text}], max_turns=STEPS + 10)
        history[:] = result.to_input_list()
        return result

    yield ask


async def recorded(
    who: Any, script: Callable[[Asked], Reply], task: Callable[[Asking], Awaitable[None]], read: Any
) -> list[Asked]:
    """Return the requests of a task."""
    async with LlmServer(script) as server:
        async with who(server.url, read) as ask:
            await task(ask)
        return server.requests


async def shipped() -> int:
    """Return the characters of the standing part and the four tools of the profile `assistant`, as they are sent."""
    async with LlmServer(says("NO_REPLY")) as server:
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder, "config.toml")
            config.write_text(template("profile", "assistant.toml"), encoding="utf-8")  # noqa: ASYNC240
            options = json.dumps({"model": "local", "base_url": server.url, "instructions": ""})
            async with Agent.from_config(str(config), plan__options=options, memory__url=f"sqlite:///{folder}/m.db",
                                         ) as agent:  # fmt: skip
                await agent.wait((await agent.submit("hello")).run_id, 60)
        (asked,) = server.requests
    standing = [content_of(message) for message in asked.messages if message["role"] in ("system", "developer")]
    return len("".join(standing)) + len(_wire(asked.body["tools"]))


async def beside(script: Callable[[], Callable[[Asked], Reply]]) -> tuple[dict[str, float], list[str]]:
    """Return what the long run costs each peer, and a sentence for each that cannot be measured."""
    costs: dict[str, float] = {}
    missing: list[str] = []
    for name, who in ((PYDANTIC_AI, pydantic_ai), (OPENAI_AGENTS, openai_agents)):
        try:
            costs[name] = billed(await recorded(who, script(), one_run, page))
        except ImportError as error:
            missing.append(f"{name} is not installed ({error.name}): make bench installs it")
    return costs, missing


async def measure() -> tuple[list[Row], list[str]]:
    """Return the rows of the table, and remarks below it."""
    run = await recorded(spar, reading(), one_run, page)
    session = await recorded(spar, noting(), conversation, short_page)
    of_run, of_session, cost = shares(run), shares(session), billed(run)
    peers, remarks = await beside(reading)
    name, best = min(peers.items(), key=lambda item: item[1])
    told = remembered(session)
    per_turn = [sum(told[at : at + 2]) for at in range(0, len(told), 2)]
    costs = ", ".join(f"{peer} {figure / 4:,.0f}" for peer, figure in peers.items())
    remarks.append(f"input tokens of the run of {STEPS} steps, billed in full: spar {cost / 4:,.0f}, {costs}")
    return [
        Row(f"run of {STEPS} steps: share of a request that is the one before, least", min(of_run), 1.0, "0.83 → 0.5",
            is_least=True),
        Row(f"session of {TURNS} turns: the same over all requests, least", min(of_session), 0.995, "0.53–0.9",
            is_least=True),
        Row(f"input tokens billed in full, run of {STEPS} steps, × {name}", cost / best, 1.05, "–"),
        Row("standing part and four shipped tools, kB", await shipped() / 1_000, 4.0, "7.1"),
        Row("what is told of memory in a turn of a long conversation, mean kB",
            sum(per_turn) / len(per_turn) / 1_000, 0.5, "2.0"),
    ], remarks  # fmt: skip


def main() -> int:
    """Print the table. Returns: 0, or 1 when a figure that is owed is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--requests", metavar="FILE", help="write the last two requests of the run as JSON")
    arguments = parser.parse_args()
    if arguments.requests:
        run = asyncio.run(recorded(spar, reading(), one_run, page))
        Path(arguments.requests).write_text(
            json.dumps([asked.body for asked in run[-2:]], indent=1, ensure_ascii=False)
        )
        return 0
    rows, remarks = asyncio.run(measure())
    print(f"{'':72}{'figure':>9}{'owed':>9}   before")
    for row in rows:
        sign = "≥" if row.is_least else "≤"
        verdict = "reached" if row.is_reached else "missed"
        print(f"{row.name:72}{row.figure:>9.3f}{sign + format(row.owed, '.3g'):>9}   {row.before:12}{verdict}")
    print(*remarks, sep="\n")
    return int(not all(row.is_reached for row in rows))


if __name__ == "__main__":
    sys.exit(main())
