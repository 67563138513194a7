"""Lines about ended calls, for people who follow a run: tool, parameters, status, duration. Pure.

files op="read" path="notes.txt" ✓ 12 ms
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from spar.data.text import cut, one_line, visible
from spar.events.table import payload
from spar.types import CallResult

#: The sign of a call's status. Other statuses are shown by name.
SIGNS: Final[Mapping[str, str]] = {
    "ok": "✓", "failed": "✗", "timeout": "✗", "denied": "✗", "skipped": "–", "cancelled": "–"
}  # fmt: skip
#: The most parameters; the most characters of a name, of a value, and of the reason of a failure.
_NAMED: Final = 6
_NAME: Final = 30
_VALUE: Final = 60
_WHY: Final = 160


def line_of(result: CallResult) -> str:
    """Return one line about a call that has ended, with secrets masked."""
    call = result.call
    params = payload(dict(islice(call.params.items(), _NAMED)))
    named = params.items() if isinstance(params, dict) else ()
    shown = [f"{cut(visible(str(name)), _NAME)}={_value(value)}" for name, value in named]
    if len(call.params) > _NAMED:
        shown.append(f"(and {len(call.params) - _NAMED} more)")
    sign = SIGNS.get(result.status, result.status)
    if result.status in ("timeout", "denied"):
        sign = f"{sign} {result.status}"
    why = result.fault.message if result.fault is not None else result.reason
    reason = [f": {cut(visible(one_line(str(payload(why)))), _WHY)}"] if why and result.status != "ok" else []
    took = [] if result.status == "skipped" else [_duration(result.duration)]
    return " ".join([visible(call.tool), *shown, sign, *took]) + "".join(reason)


def _value(value: Any) -> str:
    return cut(visible(json.dumps(value, ensure_ascii=False, default=str)), _VALUE)


def _duration(seconds: float) -> str:
    """Return a duration in the units that people use."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60)} s"
