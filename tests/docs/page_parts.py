"""The first paragraphs of the pages that come from the code, and the Markdown that these pages share."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence

NOTE = "This page is written by `make docs` from the code. Do not edit it.\n"

#: The title and the first paragraph of each page.
INTROS = {
    "settings": """# Settings

Every key of `config.toml`, with its type, its default and its meaning. Durations are numbers of seconds, or texts
like `"500ms"`, `"30s"`, `"5m"`, `"1h"`, `"2d"`. A key without a default can be left out. `spar reload` puts a *live*
key in force between two cycles; a key that says *restart* takes effect at the next start. [How to
configure](../how-to/configure.md) says where values come from.
""",
    "events": """# Events

Every event has `agent`, `seq` (strictly increasing for one agent) and `at` (UTC). `BudgetEvent` and `CallEvent` are
bases; a subscription to a base receives all events below it. [How to use events](../how-to/events-and-hooks.md) shows
subscriptions.
""",
    "metrics": """# Metrics

`GET /metrics` shows these in Prometheus' text format, besides the usual metrics of the process and of Python. Labels
take values from bounded sets: values beyond a bound are counted as `other`. [How to monitor](../how-to/monitor.md) says
which ones to watch.
""",
    "states": """# States

An arrow leads from a state to the one that may follow it, and names the [facts](facts.md) that are told together then.
`[*]` is the beginning, or the end: what has ended is no part of a state. Agents and approvals have a table of their
transitions. The other pictures are measured: they show what followed what in some hundred histories that were drawn at
random, of messages in each mode, cycles, calls, retries, doubts, aborts and interruptions.
""",
    "exit codes": """# Exit codes

The codes are those of `sysexits.h`, in the sense in which systemd units use them.
""",
    "command line": """# The command line

The options of `spar` itself may stand before or behind the command.
""",
    "http": """# HTTP

The API under `/v1` is served in two places. On the control socket `state/control.sock` the owner of the process needs
no token and may do everything. At `service.host` and `service.port` each request needs a token with the scope of its
route, or `admin`; without one it is answered 401, with another scope 403, and `scope` of the problem names the right.
Until somebody creates a token, every request is refused ([the API over the network](../how-to/http.md)).
A HEAD is answered as a GET.

Probes, metrics and hooks are served at the port, too: probes need no token, hooks have secrets of their own, and
`service.metrics` says who reads the metrics.

Bodies and answers are JSON; `GET /v1/openapi.json` describes them. A refusal is a problem of RFC 9457 with a status and
a `detail`; `Retry-After` says after how many seconds the same may be asked again. A parameter of the query that is not
listed here is refused with 422.
""",
}


def begin(page: str) -> list[str]:
    """Return the first lines of a page."""
    title, _, text = INTROS[page].partition("\n\n")
    return [title, "", NOTE, *text.splitlines(), ""]


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, with what Markdown would misread escaped."""
    yield "| " + " | ".join(heads) + " |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def one_line(text: str | None) -> str:
    return re.sub(r"\s+", " ", inspect.cleandoc(text or "")).strip()


def code(text: str) -> str:
    return f"`{text}`" if text else ""
