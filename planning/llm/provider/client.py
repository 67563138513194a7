"""Opening of a model of pydantic-ai: the import of the library, the key, the provider's client and its bounds.

All of it blocks, for half a second the first time: it is called in a thread, and touches no network.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from planning.resilience.timeouts import bound
from spar.data.scrub import know
from spar.errors import ConfigError

if TYPE_CHECKING:
    from pydantic_ai.models import Model


class ProviderKey(Struct, frozen=True):
    """A key of a provider: the environment variable that holds it (None: as the provider usually has it), or itself."""

    env: str | None = None
    value: str = ""

    @property
    def told(self) -> str:
        """Return by what it is known from others, within this process; nothing of the key itself."""
        return f"key {hash(self.value) & 0xFFFFFFFF:08x}" if self.value else self.env or ""

    def read(self, model: str) -> str:
        """Return the key, "" for the provider's usual one. Raises: ConfigError when its variable is not set."""
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
    """Return the model of a name, and the key that it uses ("" if none is known).

    Args: most: bytes of an answer that its client reads; too_long: makes what is raised when there are more; thinks:
        whether a model of a server of one's own is known to think.
    Raises: ConfigError for a library, a provider or a key that is not there.
    """
    was_enabled = gc.isenabled()
    gc.disable()  # what an import makes stays: to look through it again and again takes a fifth of the time
    try:
        model, found = _opened(name, base_url, key)
        know(found)
        if thinks and base_url is not None:
            _let_think(model)
        _bound(model, most, too_long)
        return model, found
    except ImportError as error:
        provider = name.partition(":")[0]
        raise ConfigError(
            f"the provider of model {name!r} needs a library that is not installed; install it with: "
            f"pip install 'pydantic-ai-slim[{provider}]'", path=("model",)
        ) from error  # fmt: skip
    finally:
        if was_enabled:
            if gc.get_freeze_count():  # this process sets apart what stays: let nobody look through this either
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
    except Exception as error:  # each provider's library has its own way to say what it lacks
        why = str(error).replace(key, "…") if key else str(error)
        raise ConfigError(f"model {name!r} cannot be used: {why.partition('. ')[0]}", path=("model",)) from None
    found = getattr(getattr(model, "client", None), "api_key", None)
    return model, found if isinstance(found, str) else key  # also one that the provider found by itself


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
    """Return a model that is not to be asked, only asked about; None where its provider does not make one so."""
    try:
        if base_url is not None:
            model = _compatible(name, base_url, "")
            if thinks:
                _let_think(model)
            return model
        from pydantic_ai import models

        return models.infer_model(name, partial(_provider, "unset"))
    except Exception:  # a library, a region, an address that it lacks: the first request says so
        return None


def is_unknown(name: str) -> bool:
    """Return whether the library knows no provider of a model's name; one whose own library is missing is known.

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
    """Have a model of a server of one's own be told how much to think, in the words of the protocol."""
    profile: Any = model.profile
    profile["supports_thinking"] = True


def _bound(model: Model, most: int, too_long: Callable[[], Exception]) -> None:
    """Bound what a model's client reads of an answer, and import here what it would import later."""
    client = getattr(model, "client", None)
    for way in (("chat", "completions"), ("responses",), ("messages",)):
        part = client  # what it imports when it is first asked for would be imported on the loop
        for name in way:
            part = getattr(part, name, None)
    profile: Any = model.profile
    # A stream that ends without saying why was cut off.
    profile.setdefault("openai_chat_streaming_requires_finish_reason", True)
    bound(getattr(client, "_client", None), most, too_long)
