"""Ask before something is done: a call waits as a question, the program that embeds the agent answers it."""

import asyncio

from spar import Action, Agent, Call, Perception, tool
from spar.events import ApprovalRequested, CallCompleted


@tool(effect="once", approval="ask")
async def restart(unit: str) -> str:
    "Restart a unit."
    return f"restarted {unit}"


async def plan(perceptions: list[Perception]) -> Action:
    return Action(calls=[Call("restart", {"unit": perceptions[0].text})])


async def main() -> None:
    agent = Agent(plan=plan, tools=[restart], loop_interval="off")
    asked, done = agent.events.stream(ApprovalRequested), agent.events.stream(CallCompleted)
    async with agent:
        agent.push(Perception("nginx"))
        await anext(aiter(asked))
        for question in await agent.approvals.list():
            print("asked:", question.call)
            await agent.approvals.decide(question.id, "edit", params={"unit": "nginx.service"}, by="ada")
        completed = await anext(aiter(done))
        if isinstance(completed, CallCompleted):  # a `Gap` would say that this program was too slow
            print(completed.result.output)


asyncio.run(main())
