"""Port between planners and models: requests, and the pieces of an answer.

A model is any callable that takes a `Request`: `await model(request)` returns the whole solution, or an async iterator
of its pieces while they are streamed. A solution is an object that fits the request's schema:

    {"meta": …, "advisors": […], "calls": [{"_tool": …, …}], "output": … | null}

A piece is a part of the solution's JSON text (`str`), a call (an object with `_tool`), an object with other parts of
the solution (`{"output": …}`), or one of `TextDelta`, `ThoughtDelta`, `Signed`, `Usage`, `Asked`. A solution without
`calls` or `output` has no calls or no output.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cached_property
from hashlib import blake2b
from typing import Any, Final, Literal

from msgspec import Struct, field
from msgspec.structs import force_setattr

from spar.data.json_safe import text as encodable
from spar.data.media import Medium
from spar.decoding import encode
from spar.ports.budgets import Quantity
from spar.records.run_options import Thinking
from spar.types import Trust

Kind = Literal["main", "latent", "delegate"]
#: Bytes that are added to each text on the wire.
FRAME: Final = 16


class MadeCall(Struct, frozen=True):
    """A call that was made, with its result. `id` is the call's id, `provided` the provider's id for it ("" for none);
    `arguments` are the parameters that the model wrote; `result` is a text, `images` are those in it."""

    id: str
    provided: str
    tool: str
    arguments: Mapping[str, Any]
    result: str
    images: tuple[Medium, ...] = ()

    def __post_init__(self) -> None:
        for name in ("id", "provided", "tool", "result"):
            _make_sendable(self, name)


class Turn(Struct, frozen=True, dict=True):
    """One turn of the conversation, and its speaker.

    `user` are words of people. `assistant` are words of the model, its `calls` with their results, and its `thoughts`
    as its provider signed them. `context` is what spar tells the model: it stands in nobody's mouth; if it is not
    trusted, it is never put where a provider expects instructions.
    """

    role: Literal["user", "assistant", "context"]
    text: str = ""
    calls: tuple[MadeCall, ...] = ()
    thoughts: tuple[Mapping[str, Any], ...] = ()
    trust: Trust = "trusted"

    def __post_init__(self) -> None:
        _make_sendable(self, "text")

    # Each request has all turns of a conversation, so what each costs is computed once, when it is new.

    @cached_property
    def size(self) -> int:
        """Return the bytes that a model reads of it in UTF-8, with `FRAME` for each text and the parts of each call."""
        texts = [self.text, *(text for call in self.calls for text in (call.tool, call.result))]
        encoded = [text.encode() for text in texts]
        encoded += [encode(call.arguments) for call in self.calls]
        return FRAME * len(encoded) + sum(map(len, encoded))

    @cached_property
    def digest(self) -> bytes:
        """Return a hash of all of it."""
        return blake2b(encode(self), digest_size=16).digest()


def _make_sendable(of: Struct, name: str) -> None:
    """Replace the lone surrogates in a text, which no provider can be sent: the turn stands in all later requests."""
    if not (value := getattr(of, name)).isascii():
        force_setattr(of, name, encodable(value))


class Request(Struct, frozen=True, kw_only=True):
    """One self-contained request to a model. It is recorded as it was sent.

    `context` has wire messages; `schema` is the schema of the solution. The model reads `instructions`, `preface` (the
    texts before the conversation), `turns` and `texts` in this order, so that the parts that stay the same come first.
    The last `own` turns are those of the run that it belongs to. `history` has the content of `texts` as turns, with
    the run's calls beside their results, for models with messages for calls (None: no call was made). `answer` is the
    schema of the output alone (None: any text or value). `max_tokens` limits the answer. `purpose` names the kind of
    request, for budgets and the record. `models` names the models in the order in which they are asked (empty: the
    preferred order). `thinking` is how much the answering model thinks (None: its setting). `room` is the number of
    tokens that the request was made to fit (None: any number). `traceparent` is the HTTP header that names its span to
    the provider ("" for none); no model reads it. `session` names the conversation that later requests go on with, for
    the provider's cache ("" for a request that stands alone).
    """

    context: tuple[Mapping[str, Any], ...] = ()
    schema: Mapping[str, Any] = field(default_factory=dict)
    kind: Kind = "main"
    instructions: str = ""
    preface: tuple[str, ...] = ()
    turns: tuple[Turn, ...] = ()
    own: int = 0
    texts: tuple[str, ...] = ()
    history: tuple[Turn, ...] | None = None
    answer: Mapping[str, Any] | None = None
    max_tokens: int | None = None
    purpose: str = ""
    cycle_id: str = ""
    run_id: str | None = None
    models: tuple[str, ...] = ()
    thinking: Thinking | None = None
    room: int | None = None
    traceparent: str = ""
    session: str = ""


class ProvidedCall(dict[str, Any]):
    """A call on the wire with the provider's id; its result is sent back with this id."""

    def __init__(self, wire: Mapping[str, Any], provided: str) -> None:
        super().__init__(wire)
        self.provided = provided


class TextDelta(Struct, frozen=True):
    """A piece of the answer's text for people, while it is streamed."""

    text: str


class ThoughtDelta(Struct, frozen=True):
    """A piece of a model's thoughts before its answer. With `reset` the earlier thoughts are void: another model is
    asked. Thoughts are shown to people who follow the run, and not stored."""

    text: str
    reset: bool = False


class Signed(Struct, frozen=True):
    """Parts of an answer that its provider signed, such as thoughts; the provider wants them back in later requests."""

    parts: tuple[Mapping[str, Any], ...]


class Usage(Struct, frozen=True):
    """Usage of a request: its tokens; `cached_tokens` are the part of the input that a cache served. `cost` is in
    millionths of the currency's unit, None if no price is known. `model` is the model that answered, `answered_as` its
    name in the provider's answer, `finish` the provider's word for the reason why the answer ended."""

    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: int | None = None
    answered_as: str = ""
    finish: str = ""

    @property
    def amounts(self) -> dict[Quantity, int]:
        """Return the tokens as budgets count them: those read in full or written, and those that a cache served."""
        cached = min(self.cached_tokens, self.input_tokens)
        return {"tokens": self.input_tokens - cached + self.output_tokens, "cached_tokens": cached}


class Asked(Struct, frozen=True, omit_defaults=True):
    """The settings with which a model was asked, sent after the answer if the request names models. None: the
    provider's default."""

    model: str = ""
    thinking: Thinking | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    settings: Mapping[str, Any] = {}


Piece = str | Mapping[str, Any] | TextDelta | ThoughtDelta | Signed | Usage | Asked
Model = Callable[[Request], Awaitable[Mapping[str, Any] | AsyncIterator[Piece]]]


@asynccontextmanager
async def pieces_of(model: Model, request: Request) -> AsyncIterator[AsyncIterator[Piece]]:
    """Give the pieces of a model's answer to a request, whether it answers at once or as a stream, which is closed at
    the end."""
    answer: Any = model(request)
    if inspect.isawaitable(answer):
        answer = await answer
    stream = aiter(answer) if hasattr(answer, "__aiter__") else _one_piece(answer)
    try:
        yield stream
    finally:
        if callable(close := getattr(stream, "aclose", None)):
            await close()


async def _one_piece(answer: Piece | None) -> AsyncIterator[Piece]:
    if answer is not None:
        yield answer
