"""The first paragraphs of the pages that come from the code, and the Markdown that these pages share."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence

NOTE = "This page is written by `make docs` from the code. Do not edit it.\n"

#: The title and the first paragraph of each page.
INTROS = {
    "settings": """# Settings

Every key of `config.toml` stands here as it is written, with its default; in brackets is what else it takes. A key
without a default can be left out unless it is *required*. No number is below 0, and 0 is refused where it makes no
sense. Seconds are a number, or a text like `"500ms"`, `"30s"`, `"5m"`, `"1h"`, `"2d"`. `spar reload` puts a key in
force between two cycles; *Restart* means: at the next start. [How to configure](../how-to/configure.md) says where
values come from.
""",
    "events": """# Events

Every event has the fields of `Event`, and those of the class in italics, whose subscribers receive it, too ([how to use
events](../how-to/events-and-hooks.md)). A field without a type is a text, "" for none.
""",
    "metrics": """# Metrics

`GET /metrics` shows these in Prometheus' text format, besides the usual metrics of the process and of Python. Labels
stand in braces; values beyond a bound are counted as `other`. A name that ends in `_total` is a counter, another one a
gauge unless it says more. [How to monitor](../how-to/monitor.md) says which ones to watch.
""",
    "states": """# States

An arrow leads from a state to the one that may follow it, and names the [facts](how-it-works.md#words) that are told
together then. `[*]` is the beginning, or the end. Agents and approvals have a table of their transitions; the other
pictures show what followed what in some hundred histories that were drawn at random.
""",
    "cases": """# Cases

The keys of a case of `spar eval`, whose files are YAML lists of cases. [Evaluate a model](../how-to/evaluate.md) shows
one. A key without a default can be left out.
""",
    "exit codes": """# Exit codes

The codes are those of `sysexits.h`, in the sense in which systemd units use them.
""",
    "command line": """# The command line

The options of `spar` itself may stand before or behind a command. An option without a meaning is one of [several
commands](#options-of-several-commands). `--help` shows examples of each.
""",
    "http": """# HTTP

On the control socket `state/control.sock` the owner of the process needs no token and may do everything. At
`service.host` and `service.port` each request needs a [token](../how-to/http.md) with the scope of its route, or
`admin`; else it is answered 401, or 403 with the `scope` that is missing.

Bodies and answers are JSON; `GET /v1/openapi.json` describes them. A refusal is a problem of RFC 9457 with a status and
a `detail`; `Retry-After` says after how many seconds the same may be asked again. The answer to a GET has an `ETag`;
with that in `If-None-Match`, the same answer is a 304 without a body. A change with an `Idempotency-Key` is made once,
and answered as the first time, for a day; if nobody knows whether it was made, the answer is 409. An unknown parameter
is refused with 422. Each line says the request with its parameters or its body (a field with a question mark may be
left out), the scope, the type of the answer, and what it does. The [command](command-line.md) that does the same says
more; its options are the parameters. A switch is 1 or 0, a time is written as `2026-11-22T18:00:00+00:00`; without
`limit` a list has all rows, if no line below says otherwise.
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
