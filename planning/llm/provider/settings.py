"""Options of a model, with its settings for pydantic-ai: how much it thinks, its temperature, and settings that only
its provider has.

The library silently leaves out settings that a model does not accept. `refusal` finds them before a request.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_type_hints

from msgspec import Struct

from planning.llm.provider.messages import MODES, Mode
from planning.prompt.token_budget import answer_room
from spar.checks import shorten
from spar.errors import ConfigError
from spar.records.run_options import Thinking

if TYPE_CHECKING:
    from pydantic_ai.models import Model

#: Tokens for thoughts, beside those for the answer, by how much a model thinks. These are the numbers of the providers
#: that publish some.
THOUGHTS: Final[Mapping[Thinking, int]] = {"off": 0, "low": 2_048, "medium": 10_000, "high": 16_384}
#: The library's values for how much a model thinks.
_EFFORT: Final[Mapping[Thinking, bool | str]] = {"off": False, "low": "low", "medium": "medium", "high": "high"}
#: Settings that are refused because spar has its own option for them, and the advice for each.
_OWN: Final[Mapping[str, str]] = {
    "max_tokens": "write max_tokens beside it",
    "temperature": "write temperature beside it",
    "thinking": "write thinking beside it",
    "timeout": "write first_byte and idle beside it",
    "request_timeout": "write first_byte and idle beside it",
    "first_event_timeout": "write first_byte beside it",
    "max_retries": "who asks again, and when, is decided by spar",
    "tool_choice": "which tools a request offers is decided by spar",
}
#: Settings of a provider for sampling, like the temperature.
_SAMPLING: Final = frozenset({"top_p", "top_k", "presence_penalty", "frequency_penalty", "logit_bias"})


def cache_settings(model: Model, session: str) -> dict[str, Any]:
    """Return the settings by which a provider keeps the beginning of a session's requests.

    Anthropic, Bedrock and others get marks behind the tools, the instructions and the last message; OpenAI gets a key,
    by which it sends the requests of a session to the same machine. Gemini keeps beginnings by itself.
    """
    settings: dict[str, Any] = {"cache": True}
    if "openai_prompt_cache_key" in _known_settings(type(model)):
        settings["openai_prompt_cache_key"] = blake2b(session.encode("utf-8", "replace"), digest_size=16).hexdigest()
    return settings


class Refusal(NamedTuple):
    """Setting that a model does not accept, and the reason."""

    setting: str
    why: str


def refusals(model: Model, wanted: ModelOptions) -> Iterator[Refusal]:
    """Yield the settings that a model does not accept."""
    profile: Any = model.profile
    unsupported = frozenset(getattr(model, "_unsupported_settings", lambda: model.unsupported_settings)())
    is_fixed = bool(profile.get("thinking_always_enabled", False))
    can_think = is_fixed or bool(profile.get("supports_thinking", False))
    if wanted.thinking not in (None, "off") and not can_think:
        yield Refusal("thinking", f"{model.model_name} does not think, as far as is known")
    if wanted.thinking == "off" and is_fixed:
        yield Refusal("thinking", f"{model.model_name} always thinks; the least is 'low'")
    if wanted.temperature is not None and (why := _no_sampling(model, wanted, unsupported, "temperature")):
        yield Refusal("temperature", why)
    yield from _foreign(model, wanted, unsupported)


def _no_sampling(model: Model, wanted: ModelOptions, unsupported: frozenset[str], setting: str) -> str:
    """Return why a model does not accept a sampling setting beside these settings; "" if it does."""
    profile: Any = model.profile
    name, thinks = model.model_name, wanted.thinking not in (None, "off")
    if setting in unsupported or profile.get("anthropic_disallows_sampling_settings", False):
        return f"{name} takes no {setting}"
    if wanted.thinking is None:
        thinks = bool(profile.get("thinking_enabled_by_default", False))
    is_bound = profile.get("openai_supports_reasoning", False) or any(key.startswith("anthropic_") for key in profile)
    return f"{name} takes no {setting} while it thinks" if thinks and is_bound else ""


def _foreign(model: Model, wanted: ModelOptions, unsupported: frozenset[str]) -> Iterator[Refusal]:
    """Yield the settings of a provider that its models do not have, or whose value they do not accept."""
    known = _known_settings(type(model))
    usable = known.keys() - _OWN.keys() - unsupported
    for name, value in (wanted.settings or {}).items():
        if name in _OWN:
            yield Refusal(f"settings.{name}", f"{name} is no setting of the provider's: {_OWN[name]}")
        elif name not in known:
            near = get_close_matches(name, usable, 3) or sorted(usable)[:60]
            yield Refusal(
                f"settings.{name}", f"{type(model).__name__} has no setting {name!r}; known: {', '.join(near)}"
            )
        elif name in unsupported or (name in _SAMPLING and _no_sampling(model, wanted, unsupported, name)):
            why = _no_sampling(model, wanted, unsupported, name)
            yield Refusal(f"settings.{name}", why or f"{model.model_name} takes no {name}")
        elif why := _misfit(known[name], value):
            yield Refusal(f"settings.{name}", f"{name} is {shorten(value, 80)}: {why}")


@cache
def _known_settings(model_type: type[Model]) -> dict[str, Any]:
    """Return the settings of a class of models, each with its type."""
    from pydantic_ai.models import Model as Base
    from pydantic_ai.settings import ModelSettings

    known: dict[str, Any] = dict(ModelSettings.__annotations__)
    for kind in model_type.__mro__:
        if kind is Base:
            break
        for member in vars(sys.modules[kind.__module__]).values():
            own = getattr(member, "__annotations__", {})
            if hasattr(member, "__total__") and ModelSettings.__annotations__.keys() <= own.keys():
                known |= _hints(member)
    return known


def _hints(kind: Any) -> dict[str, Any]:
    try:
        return get_type_hints(kind)
    except Exception:  # a type that is imported for type checkers only
        return dict(kind.__annotations__)


def _misfit(kind: Any, value: Any) -> str:
    """Return what is wrong with a value; "" if nothing is, or if its type cannot be checked."""
    from pydantic import TypeAdapter, ValidationError

    try:
        TypeAdapter(kind).validate_python(value, strict=True)
    except ValidationError as error:
        return str(error.errors()[0]["msg"])
    except Exception:
        return ""
    return ""


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
    def of_answers(self) -> dict[str, Any]:
        """Return the settings of a model's answers, without those that are left to the provider."""
        values = {"thinking": self.thinking, "temperature": self.temperature, "settings": self.settings or None}
        return {name: value for name, value in values.items() if value is not None}

    def in_library(self, max_tokens: int) -> dict[str, Any]:
        """Return the settings in the form of the library. Args: max_tokens: tokens of the answer without thoughts."""
        most = max_tokens + THOUGHTS[self.thinking or "off"]
        options = {**(self.settings or {}), "max_retries": 0, "max_tokens": most}
        if self.temperature is not None:
            options["temperature"] = self.temperature
        if self.thinking is not None:
            options["thinking"] = _EFFORT[self.thinking]
        return options
