"""The pages of `docs/reference/` that are drawn from the code; `make docs` writes them, a test compares them.

Each page is a function without arguments that returns its text; a page that differs from its function is out of date.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import NoneType
from typing import Any, cast, get_origin

import click
import msgspec
from prometheus_client.core import Metric
from starlette.routing import Route

from spar import __version__, events
from spar.cli.main import GROUPS, PLACES, cli
from spar.operations.fields import accepted_values, meaning
from spar.operations.operation import Operation
from spar.server.access.access import Access
from spar.server.access.browsers import HostNames
from spar.server.api.openapi import PATH_PARAMETERS, has_body, plain_path, query_fields, summary_of
from spar.server.problems import STATUS_OF
from spar.server.routes.control import served
from spar.server.routes.probes import probes
from spar.service import exit_codes as exits
from spar.service.agent_metrics import PER_AGENT
from spar.service.app import Service
from spar.service.health_metrics import HEALTH
from spar.service.metrics import Metrics
from tests.docs.live_events_part import live_events_part
from tests.docs.page_parts import begin, code, one_line, table
from tests.docs.profiles import write as write_profiles
from tests.docs.settings_page import settings

FOLDER = Path(__file__).parents[2] / "docs" / "reference"


def main() -> None:
    """Write all pages, and the profiles of `spar init`."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page())
    write_profiles()


def difference(name: str, text: str) -> str:
    """Return the first line at which a page is not what the code says now; "" when there is none."""
    ours, theirs = PAGES[name]().splitlines(), text.splitlines()
    for number in range(max(len(ours), len(theirs))):
        code, file = (lines[number] if number < len(lines) else "(end of the page)" for lines in (ours, theirs))
        if code != file:
            return f"docs/reference/{name}:{number + 1} is out of date, run `make docs`\n  file: {file}\n  code: {code}"
    return ""


# -- events


def event_classes() -> list[type[events.Event]]:
    """Return every class of `spar.events`: its modules as its tour names them, the classes as they stand there."""
    tour = [line.split()[0] for line in (events.__doc__ or "").splitlines() if "  " in line]
    found = [each for name in tour for each in vars(getattr(events, name)).values() if isinstance(each, type)]
    return list(dict.fromkeys(each for each in found if issubclass(each, events.Event)))


def events_page() -> str:
    bases = {events.Event, events.BudgetEvent, events.CallEvent}
    lines = begin("events")
    for each in event_classes():
        own = {field.name for field in msgspec.structs.fields(events.Event)} if each is not events.Event else set()
        base = next((b for b in each.__mro__[1:] if b in bases and b is not events.Event), None)
        lines += [f"## {each.__name__}", "", one_line(each.__doc__) + (f" A `{base.__name__}`." if base else ""), ""]
        rows = [(code(field.name), code(_short(field.type)), _of_field(field))
                for field in msgspec.structs.fields(each) if field.name not in own]  # fmt: skip
        lines += [*table(("field", "type", "default"), rows), ""] if rows else []
    return "\n".join(lines)


def _short(annotation: Any) -> str:
    """Return a type as it is written in the source, without modules."""
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return "None" if annotation is NoneType else annotation.__name__
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", str(annotation)).replace("NoneType", "None")


def _of_field(field: msgspec.structs.FieldInfo) -> str:
    if field.default is not msgspec.NODEFAULT:
        default = field.default
        return code(f"{type(default).__name__}()" if isinstance(default, msgspec.Struct) else repr(default))
    if field.default_factory is not msgspec.NODEFAULT:
        return code(repr(field.default_factory()))
    return "always given"


# -- metrics

#: What the end of a name says about the unit.
UNITS = {"_seconds": "seconds", "_timestamp_seconds": "Unix time in seconds", "_bytes": "bytes", "_ratio": "ratio"}


def metrics_page() -> str:
    lines = begin("metrics")
    labels = {name: names for _, name, _, names, _ in (*PER_AGENT, *HEALTH)}
    rows = []
    for name, family in sorted(_families().items()):
        known = labels.get(name, list(vars(family).get("_labelnames", ())))
        unit = next((UNITS[end] for end in sorted(UNITS, key=len, reverse=True) if name.endswith(end)), "count")
        rows.append((code(name), family.type, unit, ", ".join(map(code, known)), family.documentation))
    return "\n".join([*lines, *table(("metric", "kind", "unit", "labels", "meaning"), rows)]) + "\n"


def _families() -> dict[str, Metric]:
    """Return the metrics of a service by the names under which they are scraped."""
    families = [each for each in Metrics(lambda: (), __version__).registry.collect() if each.name.startswith("spar_")]
    return {each.name + ("_total" if each.type == "counter" else ""): each for each in families}


# -- exit codes, command line, HTTP


def exit_codes() -> str:
    lines = begin("exit codes")
    rows = [(str(number), code(name), exits.MEANINGS[number]) for name, number in exit_names()]
    return "\n".join([*lines, *table(("code", "name", "meaning"), rows)]) + "\n"


def exit_names() -> list[tuple[str, int]]:
    return [(name, value) for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)]


def command_line() -> str:
    lines = begin("command line")
    root = click.Context(cli, info_name="spar", **cli.context_settings)
    lines += list(_command(root, "## `spar`", is_root=True))
    for name in PLACES:
        command = cli.get_command(root, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=root)
        lines += list(_command(context, f"## `spar {name}`"))
        if isinstance(command, click.Group):
            for sub in command.list_commands(context):
                inner = command.get_command(context, sub)
                assert inner is not None
                lines += list(_command(click.Context(inner, info_name=sub, parent=context), f"### `spar {name} {sub}`"))
    return "\n".join(lines)


def _command(context: click.Context, head: str, *, is_root: bool = False) -> Iterator[str]:
    command = context.command
    words = ("[OPTIONS]", "COMMAND [ARGS]...")
    arguments = " ".join(word for word in command.collect_usage_pieces(context) if word not in words)
    yield from (f"{head[:-1]} {arguments}`" if arguments else head, "")
    text = inspect.cleandoc(command.help or "").split("\f")[0]
    paragraphs = text.split("\n\n")
    for paragraph in paragraphs:
        if paragraph.startswith("\b"):
            yield from ("```text", *paragraph.splitlines()[1:], "```", "")
        else:
            yield from (one_line(paragraph), "")
    rows = []
    for option in command.params:
        record = option.get_help_record(context) if isinstance(option, click.Option) else None
        if record is not None and not record[0].startswith("-h"):
            rows.append((code(record[0]), one_line(record[1])))
    if rows:
        yield from (*table(("option", "meaning"), rows), "")
    if is_root:
        rows = [(title, code(name), place.summary) for title, group in GROUPS.items() for name, place in group.items()]
        yield from (*table(("group", "command", "does"), rows), "")


def http() -> str:
    lines = begin("http")
    operations = served()
    rows = [(code(_request(each)), code(each.scope), _does(each), _answer(each)) for each in operations]
    lines += ["## The API", "", *table(("request", "scope", "does", "answer"), rows), ""]
    in_paths = sorted({name for each in operations for name in each.path_fields})
    rows = [(code(name), PATH_PARAMETERS[name]) for name in in_paths]
    lines += ["## Parameters of the path", "", *table(("parameter", "meaning"), rows), ""]
    rows = [(code(_request(each)), code(field.name), accepted_values(field), _default(field), meaning(field))
            for each in operations for field in query_fields(each)]  # fmt: skip
    lines += [
        "## Parameters of the query",
        "",
        *table(("request", "parameter", "takes", "without it", "meaning"), rows),
        "",
    ]
    bodies = [(code(each.given.__name__), one_line(each.given.__doc__)) for each in operations if has_body(each)]
    lines += ["## Bodies", "", *table(("body", "meaning"), dict.fromkeys(bodies)), ""]
    probe_rows = [(code(f"{method} {route.path}"), one_line(route.endpoint.__doc__))
                  for route in _probe_routes() for method in sorted(set(route.methods or ()) - {"HEAD"})]  # fmt: skip
    lines += ["## Probes, metrics and hooks", "", *table(("request", "does"), probe_rows), ""]
    lines += [*live_events_part(), ""]
    refused: dict[int, list[str]] = {}
    for error, status in STATUS_OF:
        refused.setdefault(status, []).append(code(error.__name__))
    rows = [(str(status), ", ".join(names)) for status, names in sorted(refused.items())]
    lines += ["## Statuses of refusals", "", *table(("status", "error of the agent"), rows)]
    return "\n".join(lines) + "\n"


def _request(operation: Operation[Any, Any]) -> str:
    return f"{operation.method} {plain_path(operation)}"


def _does(operation: Operation[Any, Any]) -> str:
    """Return what an operation does, with the fields of its body: those that may be left out have a question mark."""
    if not has_body(operation):
        return summary_of(operation)
    if operation.is_free:
        return f"{summary_of(operation)} Body: {one_line(operation.given.__doc__)}"
    names = [f"{field.encode_name}{'' if field.required else '?'}" for field in operation.other_fields]
    return f"{summary_of(operation)} Body: `{{{', '.join(names)}}}` ({code(operation.given.__name__)})."


def _answer(operation: Operation[Any, Any]) -> str:
    """Return the type of an operation's answer."""
    kind = operation.answer
    return code(kind.__name__ if isinstance(kind, type) and get_origin(kind) is None else
                re.sub(r"(?:\w+\.)+", "", str(kind)))  # fmt: skip


def _default(field: msgspec.structs.FieldInfo) -> str:
    default = field.default
    if default in (msgspec.NODEFAULT, None, ""):
        return ""
    return code(
        str(int(default))
        if isinstance(default, bool)
        else f"{default:g}"
        if isinstance(default, float)
        else str(default)
    )


def _probe_routes() -> list[Route]:
    return [
        route
        for route in probes(cast(Service, None), HostNames("127.0.0.1"), cast(Access, None)).routes
        if isinstance(route, Route)
    ]


PAGES: dict[str, Callable[[], str]] = {
    "command-line.md": command_line,
    "events.md": events_page,
    "exit-codes.md": exit_codes,
    "http.md": http,
    "metrics.md": metrics_page,
    "settings.md": settings,
}

if __name__ == "__main__":
    main()
    sys.stdout.write(f"written: {', '.join(sorted(PAGES))}\n")
