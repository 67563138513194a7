"""Options of one model of a provider, with their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from planning.llm.provider.messages import MODES, Mode
from planning.llm.provider.settings import GenerationSettings
from planning.prompt.token_budget import answer_room
from spar.errors import ConfigError
from spar.records.run_options import Thinking


class ModelOptions(Struct, frozen=True, kw_only=True):
    """Options of one model.

    Args:
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

    Raises: ConfigError for options that make no sense.
    """

    base_url: str | None = None
    key_env: str | None = None
    api_key: str | None = None
    mode: Mode = "auto"
    first_byte: float = 120.0
    idle: float = 60.0
    longest: float = 600.0
    max_chars: int = 1_000_000
    max_calls: int = 100
    context_tokens: int | None = None
    max_tokens: int | None = None
    prices: Mapping[str, float] | None = None
    cache: bool | None = None
    thinking: Thinking | None = None
    temperature: float | None = None
    settings: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        bounds = {"first_byte": self.first_byte, "idle": self.idle, "longest": self.longest,
                  "max_chars": self.max_chars, "max_calls": self.max_calls, "max_tokens": self.answer}  # fmt: skip
        for name, value in bounds.items():
            if not value > 0:
                raise ConfigError(f"{name} of a model must be greater than 0, found {value!r}", path=(name,))
        if self.mode not in MODES:
            raise ConfigError(f"no mode {self.mode!r} of a model; known: {', '.join(MODES)}", path=("mode",))

    @property
    def answer(self) -> int:
        """Return the tokens of an answer, for requests that set no limit."""
        return answer_room(self.context_tokens) if self.max_tokens is None else self.max_tokens

    @property
    def is_cached(self) -> bool:
        return self.base_url is None if self.cache is None else self.cache

    @property
    def generation(self) -> GenerationSettings:
        return GenerationSettings(self.thinking, self.temperature, self.settings or {})
