"""Input of a step as JSON: the output of the step before, or calls in the form that models write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from spar.decoding import convert
from spar.types import Action, ActionResult, Call, Perception, replace

#: The type of each phase's input.
KINDS: Mapping[str, Any] = {"plan": list[Perception], "act": Action, "reflect": ActionResult}


def step_input(phase: str, value: Any) -> Any:
    """Return the input of a phase.

    Args: value: JSON value; for act an action, a list of calls or one call; each call with its fields or in the form
        of models (`{"_tool": …}`).
    Raises: ValueError that names the wrong place.
    """
    try:
        return _action(value) if phase == "act" else convert(value, KINDS[phase])
    except msgspec.ValidationError as error:
        raise ValueError(f"the given value does not fit: {error}") from None


def _action(value: Any) -> Action:
    if isinstance(value, list) or (isinstance(value, Mapping) and "_tool" in value):
        value = {"calls": value if isinstance(value, list) else [value]}
    calls = value.get("calls") if isinstance(value, Mapping) else None
    if not isinstance(calls, list):
        return convert(value, Action)
    decoded = tuple(_call(call, f"calls[{index}]") for index, call in enumerate(calls))
    return replace(convert({**value, "calls": []}, Action), calls=decoded)


def _call(value: Any, where: str) -> Call:
    try:
        is_wire = isinstance(value, Mapping) and "_tool" in value
        return Call.from_wire(value) if is_wire else convert(value, Call)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
