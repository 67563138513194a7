"""A table in general, and how what is wrong inside one is said."""

from __future__ import annotations

from typing import Annotated, Any

from annotated_types import Len
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

Name = Annotated[str, Len(1, 64), Field(pattern=r"^[\w][\w.@:+-]*$")]
Text = Annotated[str, Len(1)]
Options = dict[str, Any]


class Section(BaseModel):
    """One table.

    What judges its values is made when there are some; so tables are their own defaults by `model_construct`, and an
    agent that is made without settings needs none of it. What stands below a setting describes it; it is read when
    somebody shows it (`spar.config.tables.descriptions`).
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


def refuse(path: tuple[str | int, ...], value: Any, sentence: str) -> None:
    """Say of a place inside what is validated that it is wrong."""
    problem = PydanticCustomError("allowed", "{sentence}", {"sentence": sentence})
    raise ValidationError.from_exception_data("settings", [InitErrorDetails(type=problem, loc=path, input=value)])
