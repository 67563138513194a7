"""Embed an agent in a Starlette app: it lives as long as the app, a request becomes a run, its answer the response.

Here the app is asked once without a server; `uvicorn embed_in_web_app:app` serves it (without the last lines).
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import Message

from spar import Action, Agent, Perception

STOCK = {"lamp": 12, "chair": 0}


async def plan(perceptions: list[Perception]) -> Action:
    article = perceptions[0].text
    return Action(output=f"{STOCK[article]} in stock" if article in STOCK else f"no article {article!r}")


agent = Agent(plan=plan, loop_interval="off")


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> AsyncGenerator[None, None]:
    async with agent:
        yield


async def ask(request: Request) -> JSONResponse:
    receipt = await agent.submit((await request.body()).decode(), session=request.path_params["customer"])
    status = await agent.wait(receipt.run_id, timeout=10.0)
    return JSONResponse({"status": status.status, "answer": status.output})


app = Starlette(routes=[Route("/ask/{customer}", ask, methods=["POST"])], lifespan=lifespan)


async def main() -> None:
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/ask/ada", "headers": [], "query_string": b""}
    body: list[bytes] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"lamp"}

    async def send(message: Message) -> None:
        body.append(message.get("body", b""))

    async with app.router.lifespan_context(app):
        await app(scope, receive, send)
    print(json.loads(b"".join(body)))


if __name__ == "__main__":
    asyncio.run(main())
