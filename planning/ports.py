"""Port between planners and models: requests, and the pieces of an answer.

A model is anything that can be called with a `Request`: `await model(request)` gives the whole solution, or an async
iterator of its pieces as they come. A solution is an object that fits the request's schema:

    {"meta": …, "advisors": […], "calls": [{"_tool": …, …}], "output": … | null}

A piece is a part of the solution's JSON text (`str`), a call (an object with `_tool`), an object with other parts of
the solution (`{"output": …}`), or one of `TextDelta`, `ThoughtDelta`, `Usage`, `Asked`. What is left out counts as
nothing: no calls, no output.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal

from msgspec import Struct, field

from spar.records.run_options import Thinking

Kind = Literal["main", "latent", "delegate"]


class Turn(Struct, frozen=True):
    """One turn of the earlier conversation, and its speaker."""

    role: Literal["user", "assistant"]
    text: str


class Made(Struct, frozen=True):
    """A call of an earlier step and what came of it: `id` is the call's, `provided` the id that the provider gave it
    ("" for none), `arguments` what the model wrote besides the tool's name, `came` one line of JSON."""

    id: str
    provided: str
    tool: str
    arguments: Mapping[str, Any]
    came: str


class History(Struct, frozen=True):
    """Content of `Request.texts` for models that are told of calls in messages of their own: the texts `before` the
    calls, the calls of each step in order, the texts `behind` them; `spoken` is the text that the model wrote beside
    the calls of each step ("" for none)."""

    before: tuple[str, ...]
    steps: tuple[tuple[Made, ...], ...]
    behind: tuple[str, ...]
    spoken: tuple[str, ...] = ()


class Request(Struct, frozen=True, kw_only=True):
    """One request: self-contained, made anew for each, and kept as it was sent.

    `context` holds wire messages, `schema` what the solution has to fit; `instructions`, `preface`, `turns` and `texts`
    are what the model reads, what stays the same first: `preface` are texts before the conversation. `history` says
    what `texts` say with the run's calls as pairs of a call and its result, for models that are told so (None: no call
    was made). `answer` is the schema of the output alone (None: any text or value). `max_tokens` bounds what it may
    answer. `purpose` says who asks, for budgets and the record. `models` names the models in the order in which they
    are asked (none: as they are preferred), `thinking` says how much the one that answers thinks (None: as it is set),
    `room` the tokens that it was made to fit (None: any number). `traceparent` is the header that names its span to the
    provider, "" for none; no model reads it.
    """

    context: tuple[Mapping[str, Any], ...] = ()
    schema: Mapping[str, Any] = field(default_factory=dict)
    kind: Kind = "main"
    instructions: str = ""
    preface: tuple[str, ...] = ()
    turns: tuple[Turn, ...] = ()
    texts: tuple[str, ...] = ()
    history: History | None = None
    answer: Mapping[str, Any] | None = None
    max_tokens: int | None = None
    purpose: str = ""
    cycle_id: str = ""
    run_id: str | None = None
    models: tuple[str, ...] = ()
    thinking: Thinking | None = None
    room: int | None = None
    traceparent: str = ""


class ProvidedCall(dict[str, Any]):
    """A call on the wire that has an id of the provider's: its result is sent back under that."""

    def __init__(self, wire: Mapping[str, Any], provided: str) -> None:
        super().__init__(wire)
        self.provided = provided


class TextDelta(Struct, frozen=True):
    """A piece of the answer as people read it, while it is being written."""

    text: str


class ThoughtDelta(Struct, frozen=True):
    """A piece of what a model thought before it answered; with `reset` its earlier thoughts are void: another one is
    asked. It is shown to whoever wants to read along, and kept nowhere."""

    text: str
    reset: bool = False


class Usage(Struct, frozen=True):
    """Usage of a request: tokens both ways, of the input those that a cache served; `cost` in millionths of the
    currency's unit, None where no price is known. `model` is who answered, `answered_as` the name that its provider
    gave for it, `finish` why it ended, in the provider's word."""

    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: int | None = None
    answered_as: str = ""
    finish: str = ""


class Asked(Struct, frozen=True, omit_defaults=True):
    """The settings with which a model was asked, told to who names models in a request, once it has answered; what is
    None is as its provider has it."""

    model: str = ""
    thinking: Thinking | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    settings: Mapping[str, Any] = {}


Piece = str | Mapping[str, Any] | TextDelta | ThoughtDelta | Usage | Asked
Model = Callable[[Request], Awaitable[Mapping[str, Any] | AsyncIterator[Piece]]]


@asynccontextmanager
async def pieces_of(model: Model, request: Request) -> AsyncGenerator[AsyncIterator[Piece]]:
    """Ask a model: the pieces of its answer, in whatever shape it gives that; its stream is closed at the end."""
    answer: Any = model(request)
    if inspect.isawaitable(answer):
        answer = await answer
    pieces = aiter(answer) if hasattr(answer, "__aiter__") else _whole(answer)
    try:
        yield pieces
    finally:
        if callable(close := getattr(pieces, "aclose", None)):
            await close()


async def _whole(answer: Any) -> AsyncGenerator[Piece]:
    if answer is not None:
        yield answer
