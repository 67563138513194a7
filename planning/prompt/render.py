"""Renderer of a context as texts that a model reads; pure.

Data messages of one kind and instance are merged into one text, in the same way in which references read them, with
their description and schema. Keys of the executor (`_call`, `_date`, `_outputMethod`) are never shown. The same context
gives the same texts, and texts that change from request to request come last, so that the beginning can be cached.

No text can pass for another one: data is a single line of JSON, and a line of free text that looks like a heading gets
a backslash.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from msgspec import Struct, field

from planning.prompt.call_results import error_shown, result_shown
from planning.prompt.shorten import head_and_tail, reference, shown_json, to_json
from spar.data.blackboard import Board, read_message
from spar.data.json_safe import UNBOUNDED, copied, plain

LIMIT: Final = 20_000
#: Kinds whose messages are shown as a list: merged, only the last one would be left.
_LISTED: Final = ("result", "correction", "error", "guard")
#: Kinds that come last, in this order.
_LAST: Final = ("meta", "state", "plan", "called", "result", "spoken", "skipped", "guard", "correction", "error")
#: The key of a message that holds for one request only: it stands behind those that stay the same.
NOW: Final = "_now"

_NEWLINE = re.compile("\r\n|[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_HEADING = re.compile(
    r"^(?=(?:[^\S\n]|\\)*(?:#+[^\S\n]*(?:data|tools|advisor)\b|schema for ¶))", re.IGNORECASE | re.MULTILINE
)
_NAME = re.compile(r"[^\W\d][\w-]*")


def render(context: Iterable[Any], *, limit: int = LIMIT) -> list[str]:
    """Return the texts of a context: one for each kind and instance of data, and one for each other message.

    Args: limit: characters of one value's JSON, or of one free text; a longer one keeps its head, its tail and the
        reference to the whole.
    Returns: tools, advisors and input, then texts, then data: first data that no call wrote, at the end state, plan,
        results and errors.
    Raises: TypeError when the context is no iterable of messages; nothing for the content of a message.
    """
    if isinstance(context, (str, bytes, Mapping)):
        raise TypeError(f"a context is a list of messages, found {type(context).__name__}")
    return [block.text for block in blocks([plain(message, UNBOUNDED) for message in context], limit)]


class Block(NamedTuple):
    """Text about one kind ("" for other messages than data); `is_behind`: the steps of a run change it."""

    kind: str
    is_behind: bool
    text: str


def blocks(context: Iterable[Any], limit: int = LIMIT) -> list[Block]:
    """Return the texts of plain messages, each with its kind: first those that stay the same in each step of a run."""
    reading = _Reading()
    for message in context:
        _take(message, reading)
    return list(_texts(reading, max(limit, _LEAST)))


#: A limit below this would leave nothing that can be read.
_LEAST: Final = 200


class _Reading(Struct):
    """Messages of a context by type: data messages, descriptions of tools by name, advisors, texts, and those that
    hold for one request only (`now`)."""

    data: list[dict[str, Any]] = field(default_factory=list)
    tools: dict[str, str] = field(default_factory=dict)
    advisors: list[dict[str, Any]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    now: list[str] = field(default_factory=list)


# -- taking messages in


def _take(message: Any, reading: _Reading) -> None:
    if not isinstance(message, dict):  # a value that is no object is shown as it is
        reading.texts.append(message if isinstance(message, str) else to_json(message))
        return
    content = message.get("content")
    if "type" not in message and isinstance(content, dict) and "type" in content:
        message = content  # a typed object in the place of a message's text
    shape = message.get("type")
    if isinstance(shape, str):
        _TAKERS.get(shape, _take_data)(message, reading)
    elif "text" in message or "content" in message:
        _say(message, reading)
    else:
        reading.texts.append(to_json(message))


def _say(message: dict[str, Any], reading: _Reading) -> None:
    """Take a text, with its role if it has one; `content` may be a list of parts."""
    content = message.get("text", message.get("content"))
    if content is None:
        return
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text", part) if isinstance(part, dict) else part for part in parts]
    text = "\n".join(part if isinstance(part, str) else to_json(part) for part in texts if part is not None)
    role = message.get("role")
    if isinstance(role, str) and role:
        # Further lines are indented, so that none of them looks like another role's.
        text = f"{_word(role)}: {_one_break(text)}".replace("\n", "\n  ")
    (reading.now if message.get(NOW) else reading.texts).append(text)


def _take_tool(message: dict[str, Any], reading: _Reading) -> None:
    given = message.get("tool")
    tools = given if isinstance(given, dict) and not isinstance(given.get("properties"), dict) else {"": given}
    for key, schema in tools.items():
        if isinstance(schema, dict):
            named = schema.get("properties")
            constant = named.get("_tool") if isinstance(named, dict) else None
            name = (constant.get("const") if isinstance(constant, dict) else None) or key
            reading.tools.pop(str(name), None)
            reading.tools[str(name)] = str(schema.get("description") or "")
        elif isinstance(schema, str):
            reading.tools.setdefault(schema, "")


def _take_advisor(message: dict[str, Any], reading: _Reading) -> None:
    given = message.get("advisor")
    reading.advisors.append({**message, **given} if isinstance(given, dict) else message)


def _take_data(message: dict[str, Any], reading: _Reading) -> None:
    if not isinstance(message.get("_instance"), str):
        message = {**message, "_instance": None}  # data of no instance
    reading.data.append(message)


_TAKERS: dict[str, Callable[[dict[str, Any], _Reading], None]] = {
    "text": _say,
    "tool": _take_tool,
    "advisor": _take_advisor,
}


# -- writing them out


def _texts(reading: _Reading, limit: int) -> Iterator[Block]:
    """Yield each text of a context, in order."""
    if reading.tools:
        lines = (f"- {_word(name)}: {_free(text, 1_000)}".replace("\n", "\n  ") for name, text in reading.tools.items())
        yield Block("", False, "\n".join(["## Tools", *lines]))
    for advisor in reading.advisors:
        yield Block("", False, _advisor(advisor, limit))
    kinds: dict[str, list[dict[str, Any]]] = {}
    for message in Board(reading.data, copy=copied).messages():
        kinds.setdefault(read_message(message)[0], []).append(message)
    changing, every = _history(reading.data)
    others = [kind for kind in kinds if kind not in ("input", *_LAST)]
    if "input" in kinds:
        for text in _blocks("input", kinds["input"], every, limit):
            yield Block("input", False, text)
    yield from (Block("", False, _free(text, limit)) for text in reading.texts if text)
    for kind in sorted(others, key=changing.__contains__):
        for text in _blocks(kind, kinds[kind], every, limit):
            yield Block(kind, kind in changing, text)
    yield from (Block("", True, _free(text, limit)) for text in reading.now if text)
    for kind in (kind for kind in _LAST if kind in kinds):
        for text in _blocks(kind, kinds[kind], every, limit):
            yield Block(kind, True, text)


_Payloads = Mapping[tuple[str, str | None], list[Any]]
#: Functions that return the shown form of a message and its payload, for the kinds that are shown as lists.
_SHOWN: Final[Mapping[str, Callable[[Mapping[str, Any], Any], Any]]] = {
    "result": result_shown,
    "error": lambda message, payload: error_shown(payload),
    "correction": lambda message, payload: error_shown(payload),
}


def _history(data: Iterable[Mapping[str, Any]]) -> tuple[set[str], _Payloads]:
    """Return the kinds that calls have written or that hold for one request only, and the payloads of all messages by
    kind and instance."""
    changing: set[str] = set()
    every: defaultdict[tuple[str, str | None], list[Any]] = defaultdict(list)
    for message in data:
        kind, payload = read_message(message)
        if (change := _SHOWN.get(kind)) is not None:
            payload = change(message, payload)
        every[kind, message["_instance"]].append(payload)
        if "_call" in message or message.get(NOW):
            changing.add(kind)
    return changing, every


def _blocks(kind: str, messages: Iterable[Mapping[str, Any]], every: _Payloads, limit: int) -> Iterator[str]:
    """Yield the text of a kind without an instance, then one for each instance, in the order of appearance."""
    label = f"¶{_word(kind)}"
    for message in sorted(messages, key=lambda message: "_instance" in message):
        instance = message.get("_instance")
        of = "" if instance is None else f" of instance {to_json(instance)}"
        if kind in _LISTED:
            data_text = shown_json(every[kind, instance], (), limit)
        else:  # only calls of the same instance can refer to its data by this path
            data_text = shown_json(read_message(message)[1], (kind,), limit)
        schema, description = message.get("schema"), message.get("description")
        about = f"Schema for {label}:\n{shown_json(schema, (), limit)}" if schema is not None else ""
        description = _free(description, limit) if isinstance(description, str) else ""
        parts = [data_text, description, about]
        if kind == "input":
            parts = ["Input data must be treated as a structured prompt", description, about, data_text]
        remark = _REMARKS.get(kind, "")
        yield "\n".join(part for part in (f"## Data: {label}{of}", *parts, remark) if part)


_REMARKS: dict[str, str] = {
    "plan": "The calls of the next solution become the next plan and replace this one.",
    "meta": "The next solution's meta keeps domain and path and has a greater version.",
    "result": (
        "What calls without an output path returned, oldest first, each with what it was given; "
        f"{reference(('result',))} names the last."
    ),
    "correction": (
        "Calls that people changed before they ran, oldest first: `call` is what was proposed, `ran` what ran instead. "
        "What people decided stands."
    ),
    "error": "What went wrong, oldest first: each call and its error.",
}
_OCCASIONS: dict[Any, str] = {
    "start": "Speaks at the first request.",
    "finish": "Speaks when the work is about to end.",
    "request": "Speaks at every request.",
    None: "Speaks when it is consulted.",
}


def _advisor(advisor: Mapping[str, Any], limit: int) -> str:
    name, role, on = (advisor.get(key) for key in ("id", "role", "on"))
    lines = [f"## Advisor: {_word(name if isinstance(name, str) else '')}"]
    lines.append(_free(role if isinstance(role, str) else "", limit))
    lines.append(_OCCASIONS.get(on if isinstance(on, str) else None, ""))
    for key, heading in (("scopes", "Looks at "), ("schema", "Schema of its advice:\n")):
        if advisor.get(key) is not None:
            lines.append(heading + shown_json(advisor[key], (), limit))
    return "\n".join(line for line in lines if line)


def _word(name: str) -> str:
    """Return a name for a heading; a text that is no name is quoted."""
    return name if _NAME.fullmatch(name) else to_json(head_and_tail(name, 200))


def _one_break(text: str) -> str:
    return _NEWLINE.sub("\n", text)


def _free(text: str, limit: int) -> str:
    """Return free text with at most `limit` characters, uniform line breaks, and no line that looks like a heading."""
    return _HEADING.sub(r"\\", head_and_tail(_one_break(text), limit))
