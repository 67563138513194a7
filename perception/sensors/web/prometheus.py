"""Sensor that sends an instant query to a Prometheus repeatedly: each series is a perception with its value.

It reports once that a series has vanished, a warning of the server, and that there are more series than it reads. A
value that is not finite (NaN, infinities) is reported as text, without `attributes.value`. The cursor holds the last
series.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

import msgspec
from annotated_types import Ge, Gt, Le, Len

from perception.sensors.web.asking import Question, Terms, Version, joined
from spar.errors import ConfigError, PermanentError, TransientError
from spar.protocols import SensorContext
from spar.threads import Threads
from spar.types import Perception

#: Bound of the characters of a label's name or value.
_LONGEST: Final = 500


class PrometheusSensor:
    """Values of a query, as `metric.value`.

    Args: url: of the server, without `/api/v1/query`; query: an instant query in PromQL; every: seconds between two
    requests; most: series that are read; subject: the subject of the values, for people; kind: of its perceptions;
    tell: every value, or only those that the pipeline finds rare; terms: hosts, headers, token and bounds.
    """

    def __init__(
        self,
        url: str,
        query: Annotated[str, Len(1, 4000)],
        *,
        every: Annotated[float, Gt(0)] = 30.0,
        most: Annotated[int, Ge(1), Le(10_000)] = 500,
        subject: str = "",
        kind: str = "metric.value",
        tell: Literal["all", "rare"] = "all",
        terms: Terms | None = None,
    ) -> None:
        if "?" in url or "#" in url:
            raise ConfigError(f"{url!r:.200} must be the server's address without a query", path=("url",))
        self.every = every
        self._question = Question(url.rstrip("/"), terms or Terms(), accept="application/json")
        self._query, self._most, self._subject, self._kind = query, most, subject or query, kind
        self._is_reading = tell == "rare"

    async def open(self, ctx: SensorContext) -> None:
        """Load the last series."""
        self._ctx, self._threads = ctx, Threads(f"sensor {ctx.name}", ctx.clock, limit=2)
        self._question.open(ctx.clock)
        cursor = ctx.cursor if isinstance(ctx.cursor, dict) and ctx.cursor.get("query") == self._query else {}
        series = cursor.get("series")
        self._series: dict[str, str] = dict(series) if isinstance(series, dict) else {}
        self._warnings = str(cursor.get("told", ""))

    async def poll(self) -> list[Perception]:
        """Return a perception for each series. Raises: the errors of the request; PermanentError for a query that the
        server refuses or that is not an instant one, TransientError for an answer of another form."""
        news = await self._question.ask(Version(), path=f"/api/v1/query?query={quote(self._query, safe='')}")
        assert news is not None  # it is None only for a known version
        payload = await self._threads.run(_decoded, news[0].body)
        noticed, self._series, self._warnings = self._read(payload)
        self._ctx.checkpoint({"query": self._query, "series": self._series, "told": self._warnings})
        return noticed

    def _read(self, payload: Mapping[str, Any]) -> tuple[list[Perception], dict[str, str], str]:
        rows = _rows(payload, self._query)
        noticed: list[Perception] = []
        series: dict[str, str] = {}
        for labels, value in rows[: self._most]:
            name = _name_of(labels)
            series[joined([name])[:16]] = name[:_LONGEST]
            noticed.append(self._value(name, labels, value))
        if len(rows) <= self._most:  # else a missing series may be one of those that are not read
            noticed += [self._gone(self._series[mark]) for mark in sorted(self._series.keys() - series.keys())]
        warnings = [str(warning)[:_LONGEST] for warning in payload.get("warnings") or ()]
        if len(rows) > self._most:
            warnings.append(f"{len(rows)} series answer {self._query!r:.200}, {self._most} are read (most)")
        words = "; ".join(warnings)
        if words and words != self._warnings:
            noticed.append(self._perception(words, "metric.warning", f"warning {self._subject}", {}))
        return noticed, series, words

    def _value(self, name: str, labels: Mapping[str, str], text: str) -> Perception:
        attributes: dict[str, Any] = {"labels": dict(labels), "series": name, "query": self._query}
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if math.isfinite(number):
            attributes["value"] = number
            if self._is_reading:
                attributes["reading"] = True
        else:
            attributes["problem"] = text[:_LONGEST]
        host = labels.get("host") or labels.get("instance", "").rpartition(":")[0] or labels.get("instance", "")
        attributes |= {key: value for key, value in (("host", host), ("service", labels.get("job", ""))) if value}
        return self._perception(f"{name} is {text[:_LONGEST]}", self._kind, name, attributes)

    def _gone(self, name: str) -> Perception:
        return self._perception(f"{name} has no value any more", "metric.gone", name, {"series": name})

    def _perception(self, text: str, kind: str, subject: str, attributes: dict[str, Any]) -> Perception:
        key = f"{subject} {kind} {self._ctx.clock.now().isoformat()}"
        return self._ctx.perception(text, kind, key=key, subject=subject, attributes=attributes)


def _decoded(body: bytes) -> dict[str, Any]:
    """Return the answer of the server. Blocks. Raises: PermanentError, TransientError."""
    try:
        payload = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        payload = None
    if not isinstance(payload, dict) or payload.get("status") not in ("success", "error"):
        raise TransientError("the server does not answer as a Prometheus does: is the address right?")
    if payload["status"] == "error":
        error = f"{payload.get('errorType', 'error')}: {payload.get('error', '')}"
        raise PermanentError(f"the server refuses the query: {error:.500}")
    return payload


def _rows(payload: Mapping[str, Any], query: str) -> list[tuple[dict[str, str], str]]:
    """Return the labels and the value of each series, in the order of their names. Raises: PermanentError,
    TransientError."""
    data = payload.get("data")
    data = data if isinstance(data, dict) else {}
    kind, result = data.get("resultType"), data.get("result")
    if kind == "matrix":
        raise PermanentError(f"query {query!r:.200} gives ranges; ask for instants, such as rate(…[5m])")
    try:
        if kind in ("scalar", "string"):
            return [({}, str(list(result or ())[1]))]
        rows = [({str(key)[:_LONGEST]: str(value)[:_LONGEST] for key, value in row["metric"].items()},
                 str(row["value"][1])) for row in result or () if "value" in row]  # fmt: skip
    except (TypeError, KeyError, IndexError, ValueError, AttributeError):
        raise TransientError("the server does not answer as a Prometheus does: is the address right?") from None
    return sorted(rows, key=lambda row: _name_of(row[0]))


def _name_of(labels: Mapping[str, str]) -> str:
    inside = ", ".join(f'{key}="{labels[key]}"' for key in sorted(labels) if key != "__name__")
    return f"{labels.get('__name__', '')}{{{inside}}}" if inside else labels.get("__name__", "") or "value"
