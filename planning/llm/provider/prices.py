"""Usage and costs of requests: tokens, and money in millionths of the currency's unit."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from planning.ports import Usage
from spar.errors import ConfigError

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model

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
