"""One model of any provider, through pydantic-ai, which only the modules of this folder import.

    model = ProviderModel("openai:gpt-5", clock=clock)
    model = ProviderModel("qwen3", base_url="http://127.0.0.1:8080/v1", key_env="LOCAL_KEY", clock=clock)
    pieces = await model(request)

It makes one HTTP request for one `Request` and yields the answer as it comes: each call once it is complete, the text
for people, and at the end the usage. Faults of the provider are raised as a `ProviderError`. Neither this module nor
the provider's client repeats a request: `planning.resilience.failover` decides whether to ask again.

The import of the library takes about a second. It happens in a thread, at the start (`load`) or with the first request.

Exceptions of the library and bad ends of an answer become a `ProviderError`, which has one of a fixed set of kinds
(`FaultKind`), by which callers decide what to do. Usage is in tokens, its cost in millionths of the currency's unit.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import anyio
from msgspec.structs import replace

from planning.llm.provider.client import ProviderKey, is_unknown, model_without_key, open_model
from planning.llm.provider.messages import absorb, functions_of, messages_of, parameters_of, signed_of, texts_of
from planning.llm.provider.native_tools import Calls
from planning.llm.provider.settings import THOUGHTS, ModelOptions, Refusal, cache_settings, refusals
from planning.ports import Asked, Piece, Request, Signed, TextDelta, Usage
from planning.prompt.history import text_of
from planning.resilience.provider_errors import (
    FaultKind,
    ProviderError,
    clamp_wait,
    kind_of,
    kind_of_class,
    provider_error,
    read_wait,
)
from planning.resilience.timeouts import Watch
from spar.clock import Clock, SystemClock
from spar.errors import ConfigError, SparError
from spar.records.run_options import Thinking
from spar.threads import Threads

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
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
        options: those of `ModelOptions`.

    Raises: ConfigError for options that make no sense, and with the first request for a provider or a key that is not
        there; `ProviderError` while the answer is read.
    """

    def __init__(self, name: str | Model, *, clock: Clock | None = None, **options: Any) -> None:
        self._options = given = ModelOptions(**options)
        self.name = name if isinstance(name, str) else name.model_name
        if not self.name or (isinstance(name, str) and given.base_url is None and ":" not in name):
            raise ConfigError(
                f"model {self.name!r} names no provider: write one such as 'openai:gpt-5', or say where its server is "
                "(base_url)", path=("model",)
            )  # fmt: skip
        self._key = ProviderKey(given.key_env, given.api_key or "")
        #: The provider and a name of the key. A fault of the provider or the key holds for all models with this value.
        self.provider = " ".join(filter(None, (given.base_url or self.name.partition(":")[0], self._key.label)))
        self._given = name
        self._prices = checked(given.prices, given.base_url)
        self._refusals: dict[Thinking, str] = {}
        self._clock: Clock = clock or SystemClock()
        self._faults = ProviderFaults(self.name, self._clock, given)
        self._threads = Threads("model", self._clock)
        self._loading = anyio.Lock()
        self._model: Model | None = None

    async def __call__(self, request: Request) -> AsyncIterator[Piece]:
        """Return the pieces of the answer. The request is sent when the first piece is read, and ends if the iterator
        of the pieces is closed."""
        return self._pieces(request, await self._ready())

    def room(self, thinking: Thinking | None = None) -> int | None:
        """Return the tokens that a request may have, without its answer and thoughts; None if that is unknown."""
        most = self._options.context_tokens
        if most is None:
            return None
        thoughts = THOUGHTS[thinking or self._options.thinking or "off"]
        return max(most - self._options.answer - thoughts, most // 4)

    async def most(self, request: Request) -> dict[str, int | None]:
        """Return the largest amounts that this request can use, which a budget reserves; money is None if no price is
        known."""
        model = await self._ready()
        parts = [request.instructions, *map(text_of, request.turns), *texts_of(request), str(request.schema)]
        size = sum(len(part.encode("utf-8", "surrogatepass")) for part in parts)
        thoughts = THOUGHTS[self._thinking(model, request) or "off"]
        tokens, answer = size // _LEAST_BYTES + _AROUND, (request.max_tokens or self._options.answer) + thoughts
        return {"requests": 1, "tokens": tokens + answer, "money": cost_of(model, self._prices, tokens, answer)}

    @property
    def given_settings(self) -> dict[str, Any]:
        """Return the settings of the model that were given, for a status."""
        values = {"context_tokens": self._options.context_tokens, **self._options.of_answers}
        return {name: value for name, value in values.items() if value}

    @property
    def is_unknown(self) -> bool:
        """Return whether the library knows no provider of this name. Imports the library, which blocks."""
        return isinstance(self._given, str) and self._options.base_url is None and is_unknown(self._given)

    def refusal(self) -> Refusal | None:
        """Return the first setting that the model does not accept; None if there is none, or if that is unknown.

        Imports the library, which blocks.
        """
        options = self._options
        if not options.of_answers:
            return None
        model = self._given if not isinstance(self._given, str) else model_without_key(
            self._given, options.base_url, thinks=options.thinking is not None
        )  # fmt: skip
        return None if model is None else next(refusals(model, options), None)

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
        most = self._options.max_chars * _BYTES_A_CHAR
        too_long = partial(self._faults.error_of, "endless", f"more than {most} bytes")
        if not isinstance(self._given, str):
            return self._given
        url, thinks = self._options.base_url, self._options.thinking is not None
        model, self._faults.secret = open_model(self._given, url, self._key, most, too_long, thinks=thinks)
        return model

    # -- asking it

    async def _pieces(self, request: Request, model: Model) -> AsyncIterator[Piece]:
        from pydantic_ai.direct import model_request_stream

        options = replace(self._options, thinking=self._thinking(model, request))
        functions = functions_of(request, model, options.mode)
        calls = Calls(functions or ())
        watch = Watch(self._clock, options.first_byte, options.idle, options.longest)
        parameters = parameters_of(request, model, functions)
        settings: Any = options.in_library(request.max_tokens or options.answer)
        if options.is_cached and request.session:
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
                if chars > self._options.max_chars:
                    raise self._faults.error_of("endless", f"more than {self._options.max_chars} characters")
                if calls.count > self._options.max_calls:
                    raise self._faults.error_of("endless", f"more than {self._options.max_calls} calls")
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
            yield Asked(self.name, options.thinking, options.temperature, settings.get("max_tokens"),
                        options.settings or {})  # fmt: skip

    def _thinking(self, model: Model, request: Request) -> Thinking | None:
        """Return how much the model thinks for a request: as the request says if the model can, else as configured."""
        usual = self._options.thinking
        return (
            usual if (asked := request.thinking) is None or (asked != usual and self._refused(model, asked)) else asked
        )

    def _refused(self, model: Model, thinking: Thinking) -> str:
        """Return why the model does not support this much thinking; "" if it does."""
        if thinking not in self._refusals:
            model_refusal = next(refusals(model, replace(self._options, thinking=thinking)), None)
            self._refusals[thinking] = "" if model_refusal is None else model_refusal.why
            needed, most = self._options.answer + THOUGHTS[thinking], self._options.context_tokens
            if model_refusal is None and most is not None and needed > most * 3 // 4:
                self._refusals[thinking] = f"{self.name} reads {most} tokens, too few for such thoughts"
        return self._refusals[thinking]


#: Kinds of a failed connection before the answer has begun, and the kind that each becomes afterwards.
_AMID: Final[Mapping[FaultKind | None, FaultKind]] = {"unreachable": "truncated", "silent": "idle"}


class ProviderFaults:
    """Maker of the errors of one model, which name the model and never hold its key.

    The key, `secret`, is "" until the model is open.

    Args: options: with the limits in seconds of the waits for an answer (`Watch`), for error messages.
    """

    def __init__(self, model: str, clock: Clock, options: ModelOptions) -> None:
        self._model, self._clock, self._options = model, clock, options
        self.secret = ""

    def of_ending(self, response: ModelResponse) -> ProviderError | None:
        """Return the error if the answer ended badly, else None."""
        details = response.provider_details or {}
        match response.finish_reason:
            case "content_filter":
                return self.error_of("refused", str(details.get("refusal", "")))
            case "length":
                return self.error_of("length", "")
            case "error":
                return self.error_of("server", str(details.get("finish_reason", "")))
        if response.state != "complete":
            return self.error_of("truncated", "")
        return None

    def of_exception(self, error: Exception, watch: Watch) -> ProviderError:
        """Return the `ProviderError` for an exception that was raised while the answer was read."""
        from pydantic_ai import exceptions

        if watch.is_over:
            if watch.is_too_long:
                return self.error_of("endless", f"not over after {self._options.longest:g} s")
            if watch.has_begun:
                return self.error_of("idle", f"nothing for {self._options.idle:g} s")
            return self.error_of("silent", f"nothing for {self._options.first_byte:g} s")
        known = kind_of_class(error)
        if watch.has_begun:
            known = _AMID.get(known, known)
        if not isinstance(error, exceptions.ModelAPIError):
            # The library could not read what the provider sent: an unexpected shape, not JSON, not UTF-8.
            return self.error_of(known or "garbage", str(error) or type(error).__name__)
        status = getattr(error, "status_code", None)
        headers = getattr(error, "headers", None) or {}
        words = (error.provider_error_code, error.provider_error_type, error.body or error.message)
        text = " ".join(str(word) for word in words if word)
        if known is None and status is None and not error.in_stream:
            known = "truncated" if "finish_reason" in error.message else "garbage"
        wait = read_wait(headers, self._clock.now())
        if wait is None and error.retry_after is not None and not headers:
            wait = clamp_wait(error.retry_after)
        return self.error_of(kind_of(status, text, known), _message(error), retry_after=wait, status=status)

    def error_of(
        self, kind: FaultKind, detail: str, *, retry_after: float | None = None, status: int | None = None
    ) -> ProviderError:
        """Return an error of this kind, without the key of the model."""
        return provider_error(kind, self._model, self._safe(detail), retry_after=retry_after, status=status)

    def _safe(self, text: str) -> str:
        return text.replace(self.secret, "…") if self.secret else text


def _message(error: Any) -> str:
    """Return the provider's error message from the body of its answer."""
    body = error.body
    while isinstance(body, Mapping):
        body = body.get("error") or body.get("message") or body.get("detail")
    return body if isinstance(body, str) else str(error.message or "")


Prices = Mapping[str, float]


def checked(prices: Prices | None, base_url: str | None) -> Prices | None:
    """Return the prices of a million tokens; None means the prices that pydantic-ai knows.

    A server on this machine is free unless prices are given for it.

    Raises: ConfigError for other keys than `input`, `output` and `cached`, and for negative prices.
    """
    if prices is None:
        is_here = base_url is not None and _is_here(base_url)
        return {"input": 0.0, "output": 0.0} if is_here else None
    if not ({"input", "output"} <= prices.keys() <= {"input", "output", "cached"} and min(prices.values()) >= 0):
        raise ConfigError(
            f"prices of a model are 'input', 'output' and perhaps 'cached', from 0, found {dict(prices)!r:.200}",
            path=("prices",),
        )
    return prices


def _is_here(url: str) -> bool:
    """Return whether the host of a URL is this machine."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def usage_of(name: str, model: Model, response: ModelResponse, prices: Prices | None) -> Usage | None:
    """Return the usage in a response; None if the provider did not report it."""
    used = response.usage
    if used.unmeasured_requests or not used.has_values():
        return None
    cost = cost_of(model, prices, used.input_tokens, used.output_tokens, used.cache_read_tokens, response)
    return Usage(name, used.input_tokens, used.output_tokens, used.cache_read_tokens, cost,
                 response.model_name or "", response.finish_reason or "")  # fmt: skip


def cost_of(
    model: Model,
    prices: Prices | None,
    read: int,
    written: int,
    cached: int = 0,
    response: ModelResponse | None = None,
) -> int | None:
    """Return the costs of these tokens, in millionths of the currency's unit; None if no price is known.

    Args: read, written, cached: tokens; `cached` are those of `read` that the provider had stored; prices: None for
        those that pydantic-ai knows.
    """
    if prices is not None:
        full = (read - cached) * prices["input"] + cached * prices.get("cached", prices["input"])
        return ceil(full + written * prices["output"])
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.usage import RequestUsage

    if response is None:
        used = RequestUsage(input_tokens=read, output_tokens=written)
        response = ModelResponse(parts=[], usage=used, model_name=model.model_name, provider_name=model.system)
    try:
        return ceil(response.cost().total_price * 1_000_000)
    except (LookupError, ValueError, AssertionError):
        return None
