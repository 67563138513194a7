"""One model of any provider, through pydantic-ai, which only the modules of this folder import.

    model = ProviderModel("openai:gpt-5", clock=clock)
    model = ProviderModel("qwen3", base_url="http://127.0.0.1:8080/v1", key_env="LOCAL_KEY", clock=clock)
    pieces = await model(request)

It makes one HTTP request for one `Request` and yields the answer as it comes: each call once it is complete, the text
for people, and at the end the usage. Faults of the provider are raised as a `ProviderError`. Neither this module nor
the provider's client repeats a request: `planning.resilience.failover` decides whether to ask again.

The import of the library takes about a second. It happens in a thread, at the start (`load`) or with the first request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from planning.llm.provider.client import ProviderKey, is_unknown, model_without_key, open_model
from planning.llm.provider.faults import ProviderFaults
from planning.llm.provider.messages import (
    MODES,
    Mode,
    absorb,
    functions_of,
    messages_of,
    parameters_of,
    signed_of,
    texts_of,
)
from planning.llm.provider.native_tools import Calls
from planning.llm.provider.prices import checked, cost_of, usage_of
from planning.llm.provider.settings import THOUGHTS, GenerationSettings, Refusal, cache_settings, refusal
from planning.ports import Asked, Piece, Request, Signed, TextDelta
from planning.prompt.history import text_of
from planning.prompt.token_budget import answer_room
from planning.resilience.timeouts import Watch
from spar.clock import Clock, SystemClock
from spar.errors import ConfigError, SparError
from spar.records.run_options import Thinking
from spar.threads import Threads

if TYPE_CHECKING:
    from pydantic_ai.models import Model

#: Lower bound of the bytes of a token, averaged over a whole request, in any language that a tokenizer was made for.
_LEAST_BYTES: Final = 2
#: Most bytes that are received for each character of an answer. An event of 250 bytes for a token of four characters
#: has fewer.
_BYTES_A_CHAR: Final = 100
#: The provider whose models take a message with the role of instructions amid a conversation. Others refuse it, as many
#: servers of open models do, or move it to the front, so that their cache no longer holds.
_SYSTEM_ANYWHERE: Final = "openai"
#: Assumed tokens that the provider adds to a request: roles, separators, its description of functions.
_AROUND: Final = 500


class ProviderModel:
    """A model by its name, e.g. `openai:gpt-5`, `anthropic:claude-sonnet-4-5`, or a model object of pydantic-ai.

    Args:
        name: provider and model; with `base_url` the model's name on that server.
        base_url: a server with OpenAI's chat completions; None: the provider's own.
        key_env: the environment variable that holds the key; None: the one that the provider's client reads.
        api_key: the key itself, in the place of `key_env`.
        mode: `native` offers the tools as functions, `structured` asks for the solution as JSON text, `auto` chooses by
            what the request asks for and the model is known to support.
        first_byte: seconds until the answer begins; idle: seconds after that in which no part of it comes (keep-alives
            are no part); longest: seconds for the whole answer.
        max_chars, max_calls: characters and calls of one answer.
        context_tokens: tokens that the model reads, its answer included; None: not known.
        max_tokens: tokens of an answer, for requests that set no limit; None: a quarter of `context_tokens`, at most
            4,096. Tokens for thinking come on top (`THOUGHTS`).
        prices: `input`, `output` and perhaps `cached`, per million tokens; None: as pydantic-ai knows them, and 0 for a
            server on this machine.
        cache: whether requests of a conversation are marked for the provider's cache; None: by the providers that are
            known to take it, not by a `base_url`. What is written to a cache may cost more than what is only read.
        thinking: how much the model thinks before it answers, for requests that do not say it; temperature; settings:
            further settings of the provider, as pydantic-ai names them.

    Raises: ConfigError for options that make no sense, and with the first request for a provider or a key that is not
        there; `ProviderError` while the answer is read.
    """

    def __init__(
        self,
        name: str | Model,
        *,
        clock: Clock | None = None,
        base_url: str | None = None,
        key_env: str | None = None,
        api_key: str | None = None,
        mode: Mode = "auto",
        first_byte: float = 120.0,
        idle: float = 60.0,
        longest: float = 600.0,
        max_chars: int = 1_000_000,
        max_calls: int = 100,
        context_tokens: int | None = None,
        max_tokens: int | None = None,
        prices: Mapping[str, float] | None = None,
        cache: bool | None = None,
        thinking: Thinking | None = None,
        temperature: float | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        max_tokens = answer_room(context_tokens) if max_tokens is None else max_tokens
        bounds = {"first_byte": first_byte, "idle": idle, "longest": longest, "max_chars": max_chars,
                  "max_calls": max_calls, "max_tokens": max_tokens}  # fmt: skip
        for option, value in bounds.items():
            if not value > 0:
                raise ConfigError(f"{option} of a model must be greater than 0, found {value!r}", path=(option,))
        if mode not in MODES:
            raise ConfigError(f"no mode {mode!r} of a model; known: {', '.join(MODES)}", path=("mode",))
        self.name = name if isinstance(name, str) else name.model_name
        if not self.name or (isinstance(name, str) and base_url is None and ":" not in name):
            raise ConfigError(
                f"model {self.name!r} names no provider: write one such as 'openai:gpt-5', or say where its server is "
                "(base_url)", path=("model",)
            )  # fmt: skip
        self._key = ProviderKey(key_env, api_key or "")
        #: The provider and a name of the key. A fault of the provider or the key holds for all models with this value.
        self.provider = " ".join(filter(None, (base_url or self.name.partition(":")[0], self._key.label)))
        self._given, self._base_url, self._mode = name, base_url, mode
        self._first_byte, self._idle, self._longest = first_byte, idle, longest
        self._max_chars, self._max_calls = max_chars, max_calls
        self._context_tokens, self._max_tokens, self._prices = context_tokens, max_tokens, checked(prices, base_url)
        self._cache = cache if cache is not None else base_url is None
        self._generation = GenerationSettings(thinking, temperature, settings or {})
        self._refusals: dict[Thinking, str] = {}
        self._clock: Clock = clock or SystemClock()
        self._faults = ProviderFaults(self.name, self._clock, first_byte=first_byte, idle=idle, longest=longest)
        self._threads = Threads("model", self._clock)
        self._loading = anyio.Lock()
        self._model: Model | None = None

    async def __call__(self, request: Request) -> AsyncIterator[Piece]:
        """Return the pieces of the answer. The request is sent when the first piece is read, and ends if the iterator
        of the pieces is closed."""
        return self._pieces(request, await self._ready())

    def room(self, thinking: Thinking | None = None) -> int | None:
        """Return the tokens that a request may have, without its answer and thoughts; None if that is unknown."""
        if self._context_tokens is None:
            return None
        thoughts = THOUGHTS[thinking or self._generation.thinking or "off"]
        return max(self._context_tokens - self._max_tokens - thoughts, self._context_tokens // 4)

    async def most(self, request: Request) -> dict[str, int | None]:
        """Return the largest amounts that this request can use, which a budget reserves; money is None if no price is
        known."""
        model = await self._ready()
        parts = [request.instructions, *map(text_of, request.turns), *texts_of(request), str(request.schema)]
        size = sum(len(part.encode("utf-8", "surrogatepass")) for part in parts)
        thoughts = THOUGHTS[self._thinking(model, request) or "off"]
        tokens, answer = size // _LEAST_BYTES + _AROUND, (request.max_tokens or self._max_tokens) + thoughts
        return {"requests": 1, "tokens": tokens + answer, "money": cost_of(model, self._prices, tokens, answer)}

    @property
    def given_settings(self) -> dict[str, Any]:
        """Return the settings of the model that were given, for a status."""
        values = {"context_tokens": self._context_tokens, **self._generation._asdict()}
        return {name: value for name, value in values.items() if value}

    @property
    def is_unknown(self) -> bool:
        """Return whether the library knows no provider of this name. Imports the library, which blocks."""
        return isinstance(self._given, str) and self._base_url is None and is_unknown(self._given)

    def refusal(self) -> Refusal | None:
        """Return the first setting that the model does not accept; None if there is none, or if that is unknown.

        Imports the library, which blocks.
        """
        if self._generation == GenerationSettings():
            return None
        model = self._given if not isinstance(self._given, str) else model_without_key(
            self._given, self._base_url, thinks=self._generation.thinking is not None
        )  # fmt: skip
        return None if model is None else refusal(model, self._generation)

    async def refusal_of(self, thinking: Thinking) -> str:
        """Return why the model does not support this much thinking; "" if it does, or if it cannot be opened."""
        try:
            return self._refused(await self._ready(), thinking)
        except SparError:
            return ""

    async def load(self) -> None:
        """Import the library and open the model, in a thread, before the first request. Raises: as that request."""
        await self._ready()

    async def aclose(self) -> None:
        """Close the connections; the next request opens them again. Idempotent."""
        model, self._model = self._model, None
        if model is not None:
            await model.__aexit__(None, None, None)

    # -- opening it

    async def _ready(self) -> Model:
        if self._model is None:
            async with self._loading:
                if self._model is None:
                    model = await self._threads.run(self._open)
                    await model.__aenter__()
                    self._model = model
        return self._model

    def _open(self) -> Model:
        most = self._max_chars * _BYTES_A_CHAR
        too_long = partial(self._faults.error_of, "endless", f"more than {most} bytes")
        if not isinstance(self._given, str):
            return self._given
        thinks = self._generation.thinking is not None
        model, self._faults.secret = open_model(self._given, self._base_url, self._key, most, too_long, thinks=thinks)
        return model

    # -- asking it

    async def _pieces(self, request: Request, model: Model) -> AsyncIterator[Piece]:
        from pydantic_ai.direct import model_request_stream

        functions = functions_of(request, model, self._mode)
        calls = Calls(functions or ())
        watch = Watch(self._clock, self._first_byte, self._idle, self._longest)
        parameters = parameters_of(request, model, functions)
        generation = self._generation._replace(thinking=self._thinking(model, request))
        settings: Any = generation.in_library(request.max_tokens or self._max_tokens)
        if self._cache and request.session:
            settings = {**cache_settings(model, request.session), **settings}
        if request.traceparent:
            headers = settings.get("extra_headers") or {}
            settings["extra_headers"] = {"traceparent": request.traceparent, **headers}
        settings = {key: value for key, value in settings.items() if key not in model.unsupported_settings}
        messages = messages_of(
            request,
            functions,
            sees=bool(model.profile.get("supports_image_input", False)),
            has_system_turns=model.system == _SYSTEM_ANYWHERE,
            provider=model.system,
        )
        texts: list[str] = []
        chars = 0
        stack = AsyncExitStack()
        try:
            opening = model_request_stream(
                model, messages, model_settings=settings, model_request_parameters=parameters
            )
            stream = await watch.over(stack.enter_async_context(opening))
            events = aiter(stream)
            while (event := await watch.over(anext(events, None))) is not None:
                content, size = absorb(event, calls)
                if not size:
                    continue
                watch.progress()
                chars += size
                if chars > self._max_chars:
                    raise self._faults.error_of("endless", f"more than {self._max_chars} characters")
                if calls.count > self._max_calls:
                    raise self._faults.error_of("endless", f"more than {self._max_calls} calls")
                if isinstance(content, TextDelta) and functions is None:
                    yield content.text
                elif content is not None:
                    texts += [content.text] if isinstance(content, TextDelta) else []
                    yield content
                for part in calls.ready():
                    yield part
            response = stream.get()
        except SparError:
            raise
        except Exception as error:
            # Not chained: exceptions of the libraries may hold the key.
            raise self._faults.of_exception(error, watch) from None
        finally:
            watch.stop()
            await stack.aclose()
        fault = self._faults.of_ending(response)
        if fault is None:
            for part in calls.ready(is_over=True):
                yield part
            if texts and not calls.count:
                yield {"output": "".join(texts)}
        if signed := signed_of(response):
            yield Signed(signed)
        if (usage := usage_of(self.name, model, response, self._prices)) is not None:
            yield usage
        if fault is not None:
            raise fault
        if request.models:  # only requests that name models need the name and settings of the one that answered
            yield Asked(self.name, *generation[:2], settings.get("max_tokens"), generation.settings)

    def _thinking(self, model: Model, request: Request) -> Thinking | None:
        """Return how much the model thinks for a request: as the request says if the model can, else as configured."""
        if (asked := request.thinking) is None or asked == self._generation.thinking:
            return self._generation.thinking
        return self._generation.thinking if self._refused(model, asked) else asked

    def _refused(self, model: Model, thinking: Thinking) -> str:
        """Return why the model does not support this much thinking; "" if it does."""
        if thinking not in self._refusals:
            model_refusal = refusal(model, self._generation._replace(thinking=thinking))
            self._refusals[thinking] = "" if model_refusal is None else model_refusal.why
            needed = self._max_tokens + THOUGHTS[thinking]
            if model_refusal is None and self._context_tokens is not None and needed > self._context_tokens * 3 // 4:
                self._refusals[thinking] = f"{self.name} reads {self._context_tokens} tokens, too few for such thoughts"
        return self._refusals[thinking]
