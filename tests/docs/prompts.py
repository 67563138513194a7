"""The conversations of `docs/explanation/prompt.md`; `make docs` writes them into the page, a test compares them.

They are those of `tests.planning.prompt.conversations`, sent to a scripted server by the clients of the providers, and
shown as they came over the wire.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from planning.llm.provider import ProviderModel
from planning.ports import Request
from planning.resilience.provider_errors import ProviderError
from tests.planning.prompt.conversations import requests
from tests.servers.llm import LlmServer
from tests.servers.llm_replies import GOOD

PAGE: Final = Path(__file__).parents[2] / "docs" / "explanation" / "prompt.md"
BEGIN, END = "<!-- conversations: python -m tests.docs.prompts -->\n", "<!-- end of the conversations -->\n"
#: By its name on the page, how a model of each provider is made for a server.
PROVIDERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "OpenAI": {"name": "openai-chat:gpt-4o"},
    "Anthropic": {"name": "anthropic:claude-haiku-4-5"},
    "a server of one's own, whose model writes JSON": {"name": "local", "mode": "structured"},
}


async def bodies() -> dict[str, dict[str, dict[str, Any]]]:
    """Return the body of each request, by conversation and provider."""
    return {
        name: {provider: await _body(request, options) for provider, options in PROVIDERS.items()}
        for name, request in requests().items()
    }


async def _body(request: Request, options: Mapping[str, Any]) -> dict[str, Any]:
    async with LlmServer(GOOD) as server:
        own = {} if ":" in options["name"] else {"base_url": server.url}
        with _pointed_at(server.url):
            model = ProviderModel(**options, **own)
            try:
                async for _ in await model(request):
                    pass
            except ProviderError:
                pass  # the server speaks one protocol alone
            await model.aclose()
        return server.requests[0].body


@contextmanager
def _pointed_at(url: str) -> Iterator[None]:
    """Send the clients of all providers to this server."""
    wanted = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "k", "ANTHROPIC_BASE_URL": url.removesuffix("/v1"),
              "ANTHROPIC_API_KEY": "k"}  # fmt: skip
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            os.environ.update({name: value} if value is not None else {})


def shown(body: Mapping[str, Any]) -> str:
    """Return the messages of a request for people, without the instructions."""
    lines = [line for message in body["messages"][_first(body) :] for line in _lines(message)]
    return "\n".join(line.rstrip() for line in "\n".join(lines).splitlines())


def _first(body: Mapping[str, Any]) -> int:
    return int(body["messages"][0]["role"] == "system")


def _lines(message: Mapping[str, Any]) -> Iterator[str]:
    role, content = message["role"], message.get("content")
    for part in content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []:
        match part["type"]:
            case "text":
                text = part["text"]
            case "tool_use":
                text = f"calls {part['name']} {json.dumps(part['input'], ensure_ascii=False)} ({part['id']})"
            case "tool_result":
                result = part["content"]
                text = f"result ({part['tool_use_id']}): {result if isinstance(result, str) else result[0]['text']}"
            case kind:
                raise ValueError(f"a part of an unknown type: {kind}")
        mark = "  ⟵ end of what is to be kept in the cache" if "cache_control" in part else ""
        id = f" ({message['tool_call_id']})" if role == "tool" else ""
        yield f"{role}{id}: {text}{mark}".replace("\n", "\n    ")
    for call in message.get("tool_calls") or ():
        yield f"{role}: calls {call['function']['name']} {call['function']['arguments']} ({call['id']})"


def text() -> str:
    """Return the conversations as Markdown, once for providers that differ in how calls and results are written."""
    lines: list[str] = []
    for name, by_provider in asyncio.run(bodies()).items():
        lines += [f"## {name}", ""]
        ways: dict[str, list[str]] = {}
        for provider, body in by_provider.items():
            ways.setdefault(_compared(shown(body)), []).append(provider)
        for providers in ways.values():
            conversation = shown(by_provider[providers[0]])
            lines += [f"For {' and '.join(providers)}:", "", "```text", conversation, "```", ""]
    return "\n".join(lines)


def _compared(conversation: str) -> str:
    """Return a conversation without that in which all providers that call functions differ."""
    return re.sub(r"^tool \(", "user: result (", conversation, flags=re.M).replace(" ", "")


def page() -> str:
    """Return the page with the conversations as they are now."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n{text()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")
