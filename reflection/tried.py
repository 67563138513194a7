"""Calls in the form that an experience stores: bounded parameters without secrets, status and cause; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from reflection.causes import kind_of
from reflection.outcome import has_failed
from spar.data.json_safe import plain
from spar.data.scrub import scrubbed
from spar.data.text import safe_line
from spar.types import CallFailure, CallResult, TriedCall

#: Calls of one experience (the first ones), and bytes of the parameters of one call.
MOST_CALLS = 20
LARGEST_PARAMS = 2_000
_NAME_LIMIT = 160


def tried_of(
    results: Sequence[CallResult], failures: Iterable[CallFailure], unsure: Iterable[str], *, has_params: bool = True
) -> list[TriedCall]:
    """Return the calls that were tried, in order.

    Args: unsure: the ids of calls that ended well and whose effect is not known yet; has_params: whether the
    parameters may be stored: parameters that follow from recalled text are not learnt again.
    """
    by_id = {failure.call.id: failure for failure in failures}
    unsure_ids = set(unsure)
    tried = []
    for item in results[:MOST_CALLS]:
        failure, has_ended_well = by_id.get(item.call.id), item.status == "ok" and item.reason != "detached"
        success = True if has_ended_well else False if has_failed(item) else None
        tried.append(
            TriedCall(
                tool=safe_line(item.call.tool, _NAME_LIMIT),
                params=bounded_params(item.call.params) if has_params else {},
                status=item.status,
                success=None if success and item.call.id in unsure_ids else success,
                verified=item.verified,
                cause="" if has_ended_well else kind_of(item),
                remedy=None if failure is None else failure.advice,
                trust="untrusted" if item.call.meta.get("_trust") == "untrusted" else "trusted",
                latency=item.duration if 0 <= item.duration < math.inf else 0.0,
            )
        )
    return tried


def bounded_params(params: dict[str, Any]) -> dict[str, Any]:
    """Return parameters in the form that may be stored: secrets are masked, long values are shortened."""
    shortened = scrubbed(plain(params, LARGEST_PARAMS), named=str)
    return shortened if isinstance(shortened, dict) else {}
