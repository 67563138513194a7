"""What a server of models is asked, as it was recorded, and whether a real one would take it.

The rules are those of OpenAI's chat completions that a program breaks most easily: each tool call of the conversation
has its result, names are of letters, a strict schema is closed. Not judged: anything that providers differ in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ROLES = ("system", "developer", "user", "assistant", "tool")
KEPT = 10_000  # steps of which a request keeps the time


@dataclass
class Asked:
    """One request and what became of it.

    `times` are those (`time.perf_counter`, the same for all processes of a machine) at which each step of the reply had
    been carried out. `at_once` is how many were being answered when it came, itself included.
    """

    number: int
    method: str
    path: str
    headers: Mapping[str, str]
    raw: bytes
    at_once: int
    status: int = 0
    is_over: bool = False
    is_aborted: bool = False
    times: list[float] = field(default_factory=list)
    body: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        try:
            body = json.loads(self.raw or b"{}")
        except ValueError:
            body = None
        self.body = body if isinstance(body, dict) else {}

    @property
    def messages(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = self.body.get("messages") or []
        return messages

    @property
    def text(self) -> str:
        """All that the model is given to read, for a script that answers by what it finds there."""
        return "\n".join(content_of(message) for message in self.messages)

    @property
    def tools(self) -> list[str]:
        """The names of the functions that it may call."""
        return [tool["function"]["name"] for tool in self.body.get("tools") or ()]

    @property
    def is_streamed(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def wants_usage(self) -> bool:
        return not self.is_streamed or bool((self.body.get("stream_options") or {}).get("include_usage"))


def content_of(message: Mapping[str, Any]) -> str:
    """The text of a message, whose content may be a list of parts."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def misfit(body: Mapping[str, Any]) -> str:
    """Why a real server would not take it; "" when it would."""
    return next(_misfits(body), "")


def _misfits(body: Mapping[str, Any]) -> Iterator[str]:
    if not isinstance(body.get("model"), str):
        yield "you must provide a model parameter"
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "Invalid 'messages': empty array"
        return
    yield from _unpaired(messages)
    for place, tool in enumerate(body.get("tools") or ()):
        function = tool["function"]
        if not NAME.fullmatch(function["name"]):
            yield f"Invalid 'tools[{place}].function.name': string does not match pattern {NAME.pattern!r}"
        parameters = function.get("parameters") or {"type": "object"}
        if parameters.get("type") != "object":
            yield f"Invalid schema for function {function['name']!r}: schema must be of type 'object'"
        if function.get("strict"):
            yield from _open(parameters, function["name"])
    wanted = body.get("response_format") or {}
    if wanted.get("type") == "json_schema":
        described = wanted.get("json_schema") or {}
        if not NAME.fullmatch(described.get("name", "")):
            yield "Invalid 'response_format.json_schema.name': string does not match pattern"
        if described.get("strict"):
            yield from _open(described.get("schema") or {}, described.get("name", ""))


def _unpaired(messages: list[Any]) -> Iterator[str]:
    """Tool calls without a result right after them, and results without a call."""
    due: set[str] = set()
    for place, message in enumerate(messages):
        role = message.get("role")
        if role not in ROLES:
            yield f"Invalid value: {role!r}. Supported values are: {ROLES}"
        if role == "tool":
            if message.get("tool_call_id") not in due:
                yield f"messages[{place}] with role 'tool' must follow a message with 'tool_calls'"
            due.discard(message.get("tool_call_id"))
            continue
        if due:
            yield f"tool_call_ids without a response message: {sorted(due)}"
        due = {call["id"] for call in message.get("tool_calls") or ()}
        if role != "assistant" and message.get("content") is None:
            yield f"Invalid value for 'messages[{place}].content': expected a string, got null"
    if due:
        yield f"tool_call_ids without a response message: {sorted(due)}"


def _open(schema: Any, name: str) -> Iterator[str]:
    """Objects of a strict schema that would let in more than they name, or less."""
    if isinstance(schema, list):
        for each in schema:
            yield from _open(each, name)
    if not isinstance(schema, dict):
        return
    if isinstance(properties := schema.get("properties"), dict):
        if schema.get("additionalProperties") is not False:
            yield f"Invalid schema for {name!r}: 'additionalProperties' is required to be supplied and to be false"
        if missing := set(properties) - set(schema.get("required") or ()):
            yield f"Invalid schema for {name!r}: 'required' has to name every key in properties: {sorted(missing)}"
    for key, each in schema.items():
        if key not in ("const", "enum", "default"):
            yield from _open(list(each.values()) if key in ("properties", "$defs") else each, name)
