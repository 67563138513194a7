"""What a language model's server says to one request: pieces of an answer with the time between them, or a fault.

A reply is a sequence of steps that are carried out one after another on the connection:

    a mapping    an event of the stream: {"delta": …, "finish_reason": …} or {"usage": …}
    bytes        these bytes as they are, if the answer is streamed
    a number     so many seconds of nothing
    a Cut        END the answer as it should be, CLOSE in the middle of it, RESET the connection, or HANG

`says` makes a good answer; `Reply.cut` and `Reply.broken` spoil one; `FAULTS` names what providers are known to do.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import chain, islice, repeat
from typing import Any

TOKEN = 4  # characters: about what a token of English or JSON has
DONE = b"data: [DONE]\n\n"

Usage = tuple[int, int, int]  # tokens of the prompt, of them cached ones, and of the completion


class Cut(Enum):
    """How an answer ends."""

    END = "the last chunk, then the connection waits for the next request"
    CLOSE = "closed without the last chunk, as by a proxy that gave up"
    RESET = "reset, as by a process that was killed"
    HANG = "open, and nothing more is said"


Step = Mapping[str, Any] | bytes | float | Cut


@dataclass(frozen=True)
class Reply:
    """One answer on the wire.

    `before` are steps that precede the status line. With a `body` it is the whole answer, whether streamed or not.
    `rate` is events a second (None: at once). With `byte_wait` each byte comes by itself, so many seconds after the
    one before. `steps` may be endless, or come from something that is still thinking.
    """

    steps: Iterable[Step] | AsyncIterable[Step] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    before: tuple[Step, ...] = ()
    rate: float | None = None
    byte_wait: float = 0.0

    def cut(self, after: int, how: Cut) -> Reply:
        """The same, ended in this way after so many of its steps."""
        return replace(self, steps=(*islice(self._steps, after), how))

    def broken(self, after: int, *steps: Step) -> Reply:
        """The same with these steps put in after so many of its own."""
        own = tuple(self._steps)
        return replace(self, steps=(*own[:after], *steps, *own[after:]))

    @property
    def _steps(self) -> Iterable[Step]:
        if isinstance(self.steps, AsyncIterable):
            raise TypeError("steps that come from something else cannot be counted beforehand")
        return self.steps


@dataclass(frozen=True)
class ToolCall:
    """A call of a function. `arguments` that are a text are sent as they are, JSON or not."""

    name: str
    arguments: Mapping[str, Any] | str = "{}"
    id: str | None = None

    @property
    def text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


def pieces(text: str, size: int = TOKEN) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def says(
    text: str | Sequence[str] = "",
    *calls: ToolCall,
    size: int = TOKEN,
    together: bool = False,
    finish: str | None = None,
    usage: Usage | None = (20, 0, 0),
    rate: float | None = None,
    before: tuple[Step, ...] = (),
) -> Reply:
    """An answer of text, then calls, each in pieces of `size` characters; a list of texts is sent as it is split.

    Args:
        together: the arguments of all calls come in turn, a piece of each, instead of one call after another.
        finish: why it ended; by itself "tool_calls" or "stop".
        usage: tokens of prompt, cached, and completion (0: the number of events); None when it never tells.
    """
    texts: list[Step] = [content_delta(piece) for piece in (pieces(text, size) if isinstance(text, str) else text)]
    ways = [call_deltas(number, call, size) for number, call in enumerate(calls)]
    said = [*texts, *(_in_turn(ways) if together else chain.from_iterable(ways))]
    steps: list[Step] = [{"delta": {"role": "assistant", "content": None if calls and not text else ""}}, *said]
    steps.append({"delta": {}, "finish_reason": finish or ("tool_calls" if calls else "stop")})
    if usage is not None:
        prompt, cached, completion = usage
        steps.append(used(prompt, cached, completion or len(said)))
    return Reply((*steps, DONE, Cut.END), rate=rate, before=before)


def solves(*calls: Mapping[str, Any], output: Any = None, rate: float | None = None, **parts: Any) -> Reply:
    """An answer whose text is a solution in JSON, as a model that is given a schema says it."""
    return says(json.dumps({**parts, "calls": list(calls), "output": output}), rate=rate)


def content_delta(text: str) -> Step:
    return {"delta": {"content": text}}


def call_deltas(number: int, call: ToolCall, size: int = TOKEN) -> list[Step]:
    """The events of one call: its name first, then its arguments as they grow."""
    name = {"name": call.name, "arguments": ""}
    identity = f"call_{number}" if call.id is None else call.id
    first = {"index": number, "id": identity, "type": "function", "function": name}
    rest = ({"index": number, "function": {"arguments": piece}} for piece in pieces(call.text, size))
    return [{"delta": {"tool_calls": [each]}} for each in (first, *rest)]


def used(prompt: int, cached: int, completion: int) -> Step:
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return {"usage": {**counts, "prompt_tokens_details": {"cached_tokens": cached}}}


def _in_turn(ways: Sequence[Sequence[Step]]) -> list[Step]:
    longest = max(map(len, ways), default=0)
    return [way[place] for place in range(longest) for way in ways if place < len(way)]


# -- what goes wrong


def refuses(
    status: int, code: str | None, message: str, *, kind: str = "invalid_request_error", param: str | None = None,
    **headers: str,
) -> Reply:  # fmt: skip
    """An error in the provider's form; `headers` by their names with underscores."""
    error = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status=status, headers=named, body=json.dumps(error).encode())


def limited(**headers: str) -> Reply:
    """Too many requests; `limited(retry_after="2")` says when to come again."""
    text = "Rate limit reached for requests. Limit: 3 / min. Please try again in 20s."
    return refuses(429, "rate_limit_exceeded", text, kind="requests", **headers)


GOOD = says("all is well, nothing more is to be done today")
TWO_CALLS = says("", ToolCall("look", {"at": "the door"}), ToolCall("look", {"at": "the window"}))
QUOTA = "You exceeded your current quota, please check your plan and billing details."
BUSY = "The server is overloaded or not ready yet."
LENGTH = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9412 tokens."
FILTERED = "The response was filtered due to the prompt triggering the content management policy."
PAGE = b"<html><head><title>502 Bad Gateway</title></head><body><center>nginx</center></body></html>"
IN_STREAM = b'data: {"error": {"message": "upstream went away", "type": "server_error", "code": 502}}\n\n'

#: By name: what servers of models, and the proxies before them, have been seen to do.
FAULTS: Mapping[str, Reply] = {
    "limited": limited(),
    "limited, in seconds": limited(retry_after="2"),
    "limited, in milliseconds": limited(retry_after_ms="1500"),
    "limited, until a date": limited(retry_after="Wed, 21 Oct 2065 07:28:00 GMT"),
    "limited, until a date gone by": limited(retry_after="Wed, 21 Oct 2015 07:28:00 GMT"),
    "limited, no time at all": limited(retry_after="soon"),
    "limited, less than no time": limited(retry_after="-5"),
    "limited, for ever": limited(retry_after="1e400"),
    "quota": refuses(429, "insufficient_quota", QUOTA, kind="insufficient_quota"),
    "payment": refuses(402, "invalid_request_error", "Insufficient Balance", kind="unknown_error"),
    "key": refuses(401, "invalid_api_key", "Incorrect API key provided: sk-12***89."),
    "forbidden": refuses(403, "unsupported_country_region_territory", "Country, region, or territory not supported"),
    "no such model": refuses(404, "model_not_found", "The model does not exist or you do not have access to it."),
    "too long": refuses(400, "context_length_exceeded", LENGTH, param="messages"),
    "unfit": refuses(400, "invalid_value", "Invalid schema for function 'look'.", param="tools[0].function.parameters"),
    "filtered before": refuses(400, "content_filter", FILTERED),
    "filtered": says("I must", finish="content_filter"),
    "broken": refuses(500, None, "The server had an error while processing your request.", kind="server_error"),
    "gateway": Reply(status=502, headers={"content-type": "text/html"}, body=PAGE),
    "unavailable": refuses(503, None, BUSY, kind="service_unavailable", retry_after="1"),
    "overloaded": refuses(529, None, "Overloaded", kind="overloaded_error"),
    "reset before": Reply(before=(Cut.RESET,)),
    "closed before": Reply(before=(Cut.CLOSE,)),
    "silent before": Reply(before=(Cut.HANG,)),
    "silent after headers": GOOD.cut(0, Cut.HANG),
    "silent in the middle": GOOD.cut(4, Cut.HANG),
    "reset in the middle": GOOD.broken(4, 0.02, Cut.RESET),
    "closed in the middle": GOOD.cut(4, Cut.CLOSE),
    "truncated": GOOD.cut(4, Cut.END),
    "truncated in a call": TWO_CALLS.cut(4, Cut.END),
    "empty": GOOD.cut(0, Cut.END),
    "nothing said": says(""),
    "too many tokens": says("and then and then", finish="length"),
    "garbage": GOOD.broken(3, b"data: {not json}\n\n"),
    "garbage lines": GOOD.broken(3, b"\x00\x01 what is this\n\nevent: ?\n\n"),
    "garbage for an answer": Reply(body=b"Listening on port 8080\n"),
    "no UTF-8": GOOD.broken(3, b'data: {"choices":[{"index":0,"delta":{"content":"\xff\xfe"}}]}\n\n'),
    "an error in the stream": GOOD.broken(3, IN_STREAM, Cut.END),
    "unfit arguments": says("", ToolCall("look", '{"at": "the do')),
    "comments only": Reply(chain.from_iterable(repeat((b": keep-alive\n\n", 1.0)))),
    "byte by byte": replace(GOOD, byte_wait=1.0),
    "endless": Reply(repeat(content_delta("and then ")), rate=100.0),
}  # fmt: skip
