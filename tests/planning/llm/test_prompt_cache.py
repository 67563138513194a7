"""The beginning of each request that a provider can serve from its cache: all that the request before said."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise
from os.path import commonprefix
from pathlib import Path

import pytest

from acting import Executor
from memory import Memory
from planning.assistant import Assistant
from reflection import Reflect
from spar import Agent, Decision, HookContext, Perception, RequestDraft, tool
from spar.types import Experience
from tests.servers.llm import LlmServer
from tests.servers.llm_replies import Reply, ToolCall, says, solves
from tests.servers.llm_requests import Asked, content_of

#: Requests of the long run: twelve with a call each, and the last one.
REQUESTS = 13
EARLIER = datetime.now(UTC) - timedelta(hours=1)


def answered_by(mode: str, calls: int = REQUESTS - 1) -> Callable[[Asked], Reply]:
    """A model that notes lines: many in a long story, one in any other."""

    def answer(asked: Asked) -> Reply:
        first = max(at for at, message in enumerate(asked.messages) if content_of(message).startswith("a "))
        of_run = asked.messages[first:]
        kind, most = ("long", calls) if "long story" in content_of(of_run[0]) else ("short", 1)
        done = sum(message["role"] == "assistant" for message in of_run)
        line = {"text": f"{kind} {done} {'x' * 200}"}
        if mode == "structured":
            return solves({"_tool": "note", **line}) if done < most else solves(output="done")
        return says("", ToolCall("note", line)) if done < most else says("done")

    return answer


def read_of(asked: Asked) -> str:
    """The messages of a request as they were sent, without the end of the last one: texts may be added to it."""
    return json.dumps(asked.messages).removesuffix('"}]')


def check_beginnings(requests: list[Asked]) -> None:
    for former, later in pairwise(requests):
        assert {**former.body, "messages": ()} == {**later.body, "messages": ()}
        one, other = read_of(former), read_of(later)
        same = len(commonprefix([one, other]))  # noqa: RUF071 - of characters, which is meant here
        assert other.startswith(one), (one[same - 200 : same + 200], other[same : same + 200])


@pytest.mark.parametrize("mode", ["native", "structured"])
async def test_nothing_that_moves_within_a_run_changes_what_its_requests_said_before(mode: str, tmp_path: Path) -> None:
    url, numbers, failures, held = f"sqlite:///{tmp_path}/m.db", count(), count(), asyncio.Event()
    agents: list[Agent] = []

    @tool(effect="read")
    async def note(text: str) -> str:
        number = int(text.split()[1]) if "long" in text else -1
        if number in (2, 3):  # more is learnt, and of what is shown something else
            await agents[-1].memory.store(Experience("out of paper", lesson="look there", at=EARLIER))
        if number == 4:
            await agents[-1].submit("and hurry with the printer, it has been out of paper", mode="steer")
        if number == 6 and not held.is_set():
            held.set()
            await asyncio.Event().wait()
        if number == 8 and next(failures) == 0:
            raise ValueError("no ink")
        return "y" * (9_000 if number in (5, 9) else 100)

    async def add_news(hook: HookContext) -> Decision:
        return Decision.rewrite([*hook.value, Perception(f"news {next(numbers)}", source="press", trust="trusted")])

    async def add_time(hook: HookContext) -> Decision:
        draft: RequestDraft = hook.value
        return Decision.rewrite(draft.add(f"it is {next(numbers)} o'clock"))

    def agent_at(server: LlmServer) -> Agent:
        planner = Assistant("local", base_url=server.url, mode=mode)  # type: ignore[arg-type]
        agent = Agent(plan=planner, act=Executor([note]), reflect=Reflect(), memory=Memory(url), loop_interval="off",
                      settings={"agent": {"min_interval": 0.0}})  # fmt: skip
        agent.hook("before_plan")(add_news)
        agent.hook("before_request")(add_time)
        agents.append(agent)
        return agent

    async with LlmServer(answered_by(mode)) as server:
        async with agent_at(server) as agent:
            for text in ("a story of the printer", "a second story of the printer"):
                await agent.wait((await agent.submit(text)).run_id, 60)
            before = len(server.requests)
            run_id = (await agent.submit("a long story of the printer")).run_id
            await asyncio.wait_for(held.wait(), 20)
            await agent.stop(0)
        async with agent_at(server) as agent:
            status = await agent.wait(run_id, 60)

    assert (status.status, status.output) == ("ok", "done"), f"{status.error} {status.errors}"
    assert len(server.requests) >= before + REQUESTS
    for text in ("o'clock", "news", "hurry", "no ink"):
        assert text in read_of(server.requests[-1]), text
    check_beginnings(server.requests)
