"""Types of arguments and options: times, durations, JSON and words."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click


class Time(click.ParamType[datetime]):
    """Parameter type of a time as people write it, local without a zone, or of how long ago it is."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        from spar.config.tables.section import seconds

        try:
            return datetime.fromisoformat(value).astimezone()
        except (ValueError, OverflowError):
            if value.isdigit() or (ago := seconds(value)) is None:
                sentence = "must be a time (2026-01-31, 2026-11-22T18:00) or a duration (15m), up to a hundred years"
                self.fail(f"{value!r}: {sentence}", param, ctx)
        return datetime.now(UTC) - timedelta(seconds=ago)


class Duration(click.ParamType[float]):
    """Parameter type of a number of seconds, or of a duration as people write it."""

    name = "DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from spar.config.tables.section import seconds

        if not (length := seconds(value)):
            self.fail(f'{value!r}: must be a number of seconds > 0, or a duration like "30s", "5m", "1h"', param, ctx)
        return length


class Json(click.ParamType[Any]):
    """Type of a JSON value; `kind` is what it must be."""

    name = "JSON"

    def __init__(self, kind: Any) -> None:
        self._kind, self._words = kind, "JSON, a text in quotation marks" if kind is Any else "a JSON object"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from spar.decoding import decode

        try:
            return decode(value.encode(), self._kind)
        except (ValueError, RecursionError) as error:
            self.fail(f"{value!r:.200}: must be {self._words}: {error}", param, ctx)


class Words(click.Choice[Any]):
    """Type of a value that is typed as a word."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(list(values), case_sensitive=False)
        self._values = values

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self._values[super().convert(value, param, ctx)]


#: Option that names another configuration.
other_configuration = click.option(
    "--config", "other", metavar="FILE", type=click.Path(path_type=Path),
    help="By this configuration; default: by the present one.",
)  # fmt: skip
