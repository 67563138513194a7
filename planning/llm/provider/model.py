"""One model of any provider, through pydantic-ai, which nobody else knows but the two modules beside it.

    model = ProviderModel("openai:gpt-5", clock=clock)
    model = ProviderModel("qwen3", base_url="http://127.0.0.1:8080/v1", key_env="LOCAL_KEY", clock=clock)
    pieces = await model(request)

It makes one HTTP request for one `Request` and hands out the answer as it comes: calls as soon as each is complete,
text as people read it, what it took. What the provider does wrong is raised as a `ProviderError`. Nothing is asked
twice here, not by the provider's own client either: who asks again, when and whom is `planning.resilience.failover`'s
affair.

The library takes a second to be imported: that happens in a thread, at the start (`load`) or with the first request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

import anyio

from planning.llm.provider.client import open_model
from planning.llm.provider.messages import absorb, messages_of, parameters_of, texts_of
from planning.llm.provider.native_tools import Calls, NativeFunction, native_functions
from planning.ports import Piece, Request, TextDelta, Usage
from planning.resilience.provider_errors import (
    FaultKind,
    ProviderError,
    clamped,
    kind_of,
    kind_of_class,
    provider_error,
    wait_asked,
)
from planning.resilience.timeouts import Watch
from spar.clock import Clock, SystemClock
from spar.errors import ConfigError, SparError
from spar.threads import Threads

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model

Mode = Literal["auto", "native", "structured"]
MODES: Final[tuple[Mode, ...]] = ("auto", "native", "structured")
#: Bytes of a token at the least, on the average of a whole request, in any language that a tokenizer was made for.
_LEAST_BYTES: Final = 2
#: Bytes on the wire for each character of an answer: an event of 250 bytes for a token of four.
_BYTES_A_CHAR: Final = 100
#: What a connection that fails means once the answer has begun.
_AMID: Final[Mapping[FaultKind | None, FaultKind]] = {"unreachable": "truncated", "silent": "idle"}
#: What surrounds a request: roles, separators, what the provider adds to describe functions.
_AROUND: Final = 500


def _is_here(url: str) -> bool:
    """Return whether an address is this machine's own."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


class ProviderModel:
    """A model by its name, e.g. `openai:gpt-5`, `anthropic:claude-sonnet-4-5`, or a model object of pydantic-ai.

    Args:
        name: provider and model; with `base_url` the model's name on that server.
        base_url: any server that speaks OpenAI's chat completions.
        key_env: the environment variable that holds the key; None: the one that the provider usually reads.
        mode: `native` offers the tools as functions, `structured` asks for the solution as JSON text, `auto` chooses by
            what the request asks for and the model is known to support.
        first_byte: seconds until the answer begins; idle: seconds without anything of it after that, keep-alives are
            nothing; longest: seconds for all of it. max_chars: of one answer; max_calls: in one answer; max_tokens: of
            an answer, for requests that do not say.
        prices: `input`, `output` and perhaps `cached`, per million tokens; None: as pydantic-ai knows them, and
            nothing for a server on this machine.

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
        mode: Mode = "auto",
        first_byte: float = 120.0,
        idle: float = 60.0,
        longest: float = 600.0,
        max_chars: int = 1_000_000,
        max_calls: int = 100,
        max_tokens: int = 4_096,
        prices: Mapping[str, float] | None = None,
    ) -> None:
        bounds = {"first_byte": first_byte, "idle": idle, "longest": longest, "max_chars": max_chars,
                  "max_calls": max_calls, "max_tokens": max_tokens}  # fmt: skip
        for option, value in bounds.items():
            if not value > 0:
                raise ConfigError(f"{option} of a model must be greater than 0, found {value!r}", path=(option,))
        if mode not in MODES:
            raise ConfigError(f"no mode {mode!r} of a model; known: {', '.join(MODES)}", path=("mode",))
        if prices is not None and not (
            {"input", "output"} <= prices.keys() <= {"input", "output", "cached"} and min(prices.values()) >= 0
        ):
            raise ConfigError(
                f"prices of a model are 'input', 'output' and perhaps 'cached', from 0, found {dict(prices)!r:.200}",
                path=("prices",),
            )
        self.name = name if isinstance(name, str) else name.model_name
        if not self.name or (isinstance(name, str) and base_url is None and ":" not in name):
            raise ConfigError(
                f"model {self.name!r} names no provider: write one such as 'openai:gpt-5', or say where its server is "
                "(base_url)", path=("model",)
            )  # fmt: skip
        #: Whose model it is, and by which key: what is wrong with one of them may be so with all.
        self.provider = " ".join(filter(None, (base_url or self.name.partition(":")[0], key_env)))
        self._given, self._base_url, self._key_env, self._mode = name, base_url, key_env, mode
        self._first_byte, self._idle, self._longest = first_byte, idle, longest
        self._max_chars, self._max_calls = max_chars, max_calls
        if prices is None and base_url is not None and _is_here(base_url):
            prices = {"input": 0.0, "output": 0.0}
        self._max_tokens, self._prices = max_tokens, prices
        self._clock: Clock = clock or SystemClock()
        self._threads = Threads("model", self._clock)
        self._loading = anyio.Lock()
        self._model: Model | None = None
        self._secret = ""

    async def __call__(self, request: Request) -> AsyncIterator[Piece]:
        """The pieces of its answer. Nothing is sent until they are asked for; closing them ends the request."""
        return self._pieces(request, await self._ready())

    async def most(self, request: Request) -> dict[str, int | None]:
        """The most that this request can take, as `Budgets.reserve` wants it; money is None where no price is known."""
        model = await self._ready()
        parts = [request.instructions, *(turn.text for turn in request.turns), *texts_of(request), str(request.schema)]
        size = sum(len(part.encode("utf-8", "surrogatepass")) for part in parts)
        tokens, answer = size // _LEAST_BYTES + _AROUND, request.max_tokens or self._max_tokens
        return {"requests": 1, "tokens": tokens + answer, "money": self._cost_of(model, tokens, answer)}

    async def load(self) -> None:
        """Import the library and make the model, in a thread, before anybody asks. Raises: as the first request."""
        await self._ready()

    async def aclose(self) -> None:
        """Close its connections; it may be asked again afterwards. Idempotent."""
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
        too_long = partial(self._error, "endless", f"more than {most} bytes")
        if not isinstance(self._given, str):
            return self._given
        model, self._secret = open_model(self._given, self._base_url, self._key_env, most, too_long)
        return model

    # -- asking it

    async def _pieces(self, request: Request, model: Model) -> AsyncIterator[Piece]:
        from pydantic_ai.direct import model_request_stream

        functions = self._functions(request, model)
        calls = Calls(functions or ())
        watch = Watch(self._clock, self._first_byte, self._idle, self._longest)
        parameters = parameters_of(request, model, functions)
        settings: Any = {"max_retries": 0, "max_tokens": request.max_tokens or self._max_tokens}
        settings = {key: value for key, value in settings.items() if key not in model.unsupported_settings}
        messages = messages_of(request, functions, sees=bool(model.profile.get("supports_image_input", False)))
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
                text, size = absorb(event, calls)
                if not size:
                    continue
                watch.progress()
                chars += size
                if chars > self._max_chars:
                    raise self._error("endless", f"more than {self._max_chars} characters")
                if calls.count > self._max_calls:
                    raise self._error("endless", f"more than {self._max_calls} calls")
                if text and functions is None:
                    yield text
                elif text:
                    texts.append(text)
                    yield TextDelta(text)
                for part in calls.ready():
                    yield part
            response = stream.get()
        except SparError:
            raise
        except Exception as error:
            # Not chained: what the libraries raise may hold the key.
            raise self._fault(error, watch) from None
        finally:
            watch.stop()
            await stack.aclose()
        fault = self._ending(response)
        if fault is None:
            for part in calls.ready(is_over=True):
                yield part
            if texts and not calls.count:
                yield {"output": "".join(texts)}
        if (usage := self._usage(model, response)) is not None:
            yield usage
        if fault is not None:
            raise fault

    def _functions(self, request: Request, model: Model) -> list[NativeFunction] | None:
        """Return the functions that the model is offered; None: it is to write the solution itself."""
        if self._mode == "structured":
            return None
        profile = model.profile
        can_write = bool(profile.get("supports_json_schema_output", False))
        asked = set(request.schema.get("properties", ()))
        # Thoughts about itself and advice have no place among calls; an answer alone needs none.
        better_written = bool(asked - {"calls", "output"}) or ("calls" not in asked and request.answer is not None)
        if self._mode == "auto" and (not profile.get("supports_tools", True) or (can_write and better_written)):
            return None
        return native_functions(request.schema, request.answer)

    # -- what came of it

    def _ending(self, response: ModelResponse) -> ProviderError | None:
        """Return the error that the end of the answer means, if any."""
        details = response.provider_details or {}
        match response.finish_reason:
            case "content_filter":
                return self._error("refused", str(details.get("refusal", "")))
            case "length":
                return self._error("length", "")
            case "error":
                return self._error("server", str(details.get("finish_reason", "")))
        if response.state != "complete":
            return self._error("truncated", "")
        return None

    def _usage(self, model: Model, response: ModelResponse) -> Usage | None:
        """Return the usage; None when the provider did not say."""
        used = response.usage
        if used.unmeasured_requests or not used.has_values():
            return None
        cost = self._cost_of(model, used.input_tokens, used.output_tokens, used.cache_read_tokens, response)
        return Usage(self.name, used.input_tokens, used.output_tokens, used.cache_read_tokens, cost)

    def _cost_of(
        self, model: Model, read: int, written: int, cached: int = 0, response: ModelResponse | None = None
    ) -> int | None:
        """Millionths that so many tokens cost; None where no price is known."""
        if (prices := self._prices) is not None:
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

    # -- what went wrong

    def _fault(self, error: Exception, watch: Watch) -> ProviderError:
        """The error as one of the closed kinds."""
        from pydantic_ai import exceptions

        if watch.is_over:
            if watch.is_too_long:
                return self._error("endless", f"not over after {self._longest:g} s")
            if watch.has_begun:
                return self._error("idle", f"nothing for {self._idle:g} s")
            return self._error("silent", f"nothing for {self._first_byte:g} s")
        known = kind_of_class(error)
        if watch.has_begun:
            known = _AMID.get(known, known)
        if not isinstance(error, exceptions.ModelAPIError):
            # An adapter stumbled over what it was sent: an unexpected shape, not JSON, no UTF-8.
            return self._error(known or "garbage", str(error) or type(error).__name__)
        status = getattr(error, "status_code", None)
        headers = getattr(error, "headers", None) or {}
        words = (error.provider_error_code, error.provider_error_type, error.body or error.message)
        text = " ".join(str(word) for word in words if word)
        if known is None and status is None and not error.in_stream:
            known = "truncated" if "finish_reason" in error.message else "garbage"
        wait = wait_asked(headers, self._clock.now())
        if wait is None and error.retry_after is not None and not headers:
            wait = clamped(error.retry_after)
        return self._error(kind_of(status, text, known), _message(error), retry_after=wait, status=status)

    def _error(
        self, kind: FaultKind, detail: str, *, retry_after: float | None = None, status: int | None = None
    ) -> ProviderError:
        return provider_error(kind, self.name, self._safe(detail), retry_after=retry_after, status=status)

    def _safe(self, text: str) -> str:
        return text.replace(self._secret, "…") if self._secret else text


def _message(error: Any) -> str:
    """The provider's own sentence, without what surrounds it."""
    body = error.body
    while isinstance(body, Mapping):
        body = body.get("error") or body.get("message") or body.get("detail")
    return body if isinstance(body, str) else str(error.message or "")
