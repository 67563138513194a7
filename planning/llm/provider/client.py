"""Opening of a model of pydantic-ai: the import of the library, the key, the provider's client and its bounds.

All of this blocks, for about half a second the first time, so it must be called in a thread. It uses no network.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from planning.resilience.timeouts import limit_bytes
from spar.data.scrub import know
from spar.errors import ConfigError

if TYPE_CHECKING:
    from pydantic_ai.models import Model


class ProviderKey(Struct, frozen=True):
    """Key of a provider: its `value`, or the environment variable `env` that holds it.

    Without both, the provider's client reads the variable that is usual for the provider.
    """

    env: str | None = None
    value: str = ""

    @property
    def label(self) -> str:
        """Return a name that differs from those of other keys in this process and does not reveal the key."""
        return f"key {hash(self.value) & 0xFFFFFFFF:08x}" if self.value else self.env or ""

    def read(self, model: str) -> str:
        """Return the key; "" if the provider's client reads it itself. Raises: ConfigError if `env` is not set."""
        if self.value or self.env is None:
            return self.value
        if key := os.environ.get(self.env, ""):
            return key
        raise ConfigError(
            f"the environment variable {self.env!r}, which is to hold the key of model {model!r}, is not set",
            path=("key_env",),
        )


def open_model(
    name: str,
    base_url: str | None,
    key: ProviderKey,
    most: int,
    too_long: Callable[[], Exception],
    *,
    thinks: bool = False,
) -> tuple[Model, str]:
    """Return the model with this name, and the key that it uses ("" if none is known).

    Args: most: most bytes of an answer that its client reads; too_long: makes the exception for more bytes; thinks:
        whether a model at a `base_url` is known to think before it answers.
    Raises: ConfigError for a library, a provider or a key that is not there.
    """
    was_enabled, modules = gc.isenabled(), len(sys.modules)
    gc.disable()  # imported objects are never freed, and collections would take a fifth of the time
    try:
        model, key_in_use = _opened(name, base_url, key)
        know(key_in_use)
        if thinks and base_url is not None:
            _let_think(model)
        _bound(model, most, too_long)
        return model, key_in_use
    except ImportError as error:
        provider = name.partition(":")[0]
        raise ConfigError(
            f"the provider of model {name!r} needs a library that is not installed; install it with: "
            f"pip install 'pydantic-ai-slim[{provider}]'", path=("model",)
        ) from error  # fmt: skip
    finally:
        if was_enabled:
            # Counted is what this process excludes from collections, as these: asked once, the count takes long.
            if len(sys.modules) > modules and gc.get_freeze_count():
                gc.freeze()
            gc.enable()


def _opened(name: str, base_url: str | None, given: ProviderKey) -> tuple[Model, str]:
    try:
        from pydantic_ai import models
    except ImportError as error:
        raise ConfigError(
            f"model {name!r} needs a library that is not installed ({error}); install it with: "
            "pip install 'spar-agent[llm]'"
        ) from error
    key = given.read(name)
    try:
        if base_url is not None:
            model = _compatible(name, base_url, key)
        else:
            model = models.infer_model(name, *([partial(_provider, key)] if key else []))
    except ImportError:
        raise
    except Exception as error:  # each provider's library raises errors of its own
        why = str(error).replace(key, "…") if key else str(error)
        raise ConfigError(f"model {name!r} cannot be used: {why.partition('. ')[0]}", path=("model",)) from None
    client_key = getattr(getattr(model, "client", None), "api_key", None)
    return model, client_key if isinstance(client_key, str) else key  # the client may have read a key by itself


def _provider(key: str, name: str) -> Any:
    from pydantic_ai.providers import infer_provider_class

    return infer_provider_class(name)(api_key=key)  # type: ignore[call-arg]  # of most of them


def _compatible(name: str, base_url: str, key: str) -> Model:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    name = name.removeprefix("openai-chat:").removeprefix("openai:")
    provider = OpenAICompatibleProvider("openai-compatible", base_url=base_url, api_key=key or None)
    return OpenAIChatModel(name, provider=provider)


def model_without_key(name: str, base_url: str | None, *, thinks: bool = False) -> Model | None:
    """Return a model without a key, to find out which settings it accepts; None if it cannot be made without one."""
    try:
        if base_url is not None:
            model = _compatible(name, base_url, "")
            if thinks:
                _let_think(model)
            return model
        from pydantic_ai import models

        return models.infer_model(name, partial(_provider, "unset"))
    except Exception:  # a library, a region or an address is missing: the first request says so
        return None


def is_unknown(name: str) -> bool:
    """Return whether pydantic-ai knows no provider of a model's name; a provider whose library is missing is known.

    Imports the library, which blocks.
    """
    from pydantic_ai.providers import infer_provider_class

    try:
        infer_provider_class(name.partition(":")[0])
    except ImportError:
        return False
    except ValueError:
        return True
    return False


def _let_think(model: Model) -> None:
    """Tell the library that a model at a `base_url` can think, so that it sends the setting for that."""
    profile: Any = model.profile
    profile["supports_thinking"] = True


def _bound(model: Model, most: int, too_long: Callable[[], Exception]) -> None:
    """Limit the bytes that a model's client reads of an answer, and import now what it would import later."""
    client = getattr(model, "client", None)
    for way in (("chat", "completions"), ("responses",), ("messages",)):
        part = client  # reading these attributes imports modules; later that would block the event loop
        for name in way:
            part = getattr(part, name, None)
    profile: Any = model.profile
    # A stream that ends without a finish reason was cut off.
    profile.setdefault("openai_chat_streaming_requires_finish_reason", True)
    limit_bytes(getattr(client, "_client", None), most, too_long)
