"""The pages of `docs/reference/` that are drawn from the code; `make docs` writes them, a test compares them.

Each page is a function without arguments that returns its text; a page that differs from its function is out of date.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import Any, cast, get_origin

import click
import msgspec
from prometheus_client.core import Metric
from starlette.routing import Route

from spar import __version__, events
from spar.cli.main import cli
from spar.operations.fields import accepted_values, meaning
from spar.operations.operation import Operation
from spar.server.access import Access, HostNames
from spar.server.api.openapi import PATH_PARAMETERS, has_body, plain_path, query_fields, summary_of
from spar.server.problems import STATUS_OF
from spar.server.routes.applications import probes, served
from spar.service import exit_codes as exits
from spar.service.agent_metrics import HEALTH, PER_AGENT
from spar.service.app import Service
from spar.service.metrics import Metrics
from tests.docs.live_events_part import live_events_part
from tests.docs.page_parts import begin, code, one_line
from tests.docs.profiles import write as write_profiles
from tests.docs.settings_page import cases, settings

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
    found = [
        each for name in tour for each in vars(import_module(f"spar.events.{name}")).values() if isinstance(each, type)
    ]
    return list(dict.fromkeys(each for each in found if issubclass(each, events.Event)))


def events_page() -> str:
    bases = {events.Event, events.BudgetEvent, events.CallEvent}
    lines = begin("events")
    for each in event_classes():
        base = next(b for b in each.__mro__[1:] if b in bases) if each is not events.Event else None
        inherited = {field.name for field in msgspec.structs.fields(base)} if base else set()
        fields = [f"*{base.__name__}*"] if base and base is not events.Event else []
        own = [field for field in msgspec.structs.fields(each) if field.name not in inherited]
        fields += [code(field.name if field.type is str else f"{field.name}: {_short(field.type)}") for field in own]
        lines.append(f"- **{each.__name__}** ({', '.join(fields)}): {one_line(each.__doc__)}")
    return "\n".join([*lines, ""])


def _short(annotation: Any) -> str:
    """Return a type as it is written in the source, without modules."""
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return "None" if annotation is NoneType else annotation.__name__
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", str(annotation)).replace("NoneType", "None")


# -- metrics


def metrics_page() -> str:
    lines = begin("metrics")
    labels = {name: ["agent", *names] for _, name, _, names, _ in (*PER_AGENT, *HEALTH)}
    for name, family in sorted(_families().items()):
        known = ",".join(labels.get(name, list(vars(family).get("_labelnames", ()))))
        kind = f" ({family.type})" if family.type not in ("counter", "gauge") else ""
        lines.append(f"- {code(name + (f'{{{known}}}' if known else ''))}{kind}: {family.documentation}")
    return "\n".join(lines) + "\n"


def _families() -> dict[str, Metric]:
    """Return the metrics of a service by the names under which they are scraped."""
    families = [each for each in Metrics(lambda: (), __version__).registry.collect() if each.name.startswith("spar_")]
    return {each.name + ("_total" if each.type == "counter" else ""): each for each in families}


# -- exit codes, command line, HTTP


def exit_codes() -> str:
    rows = [f"- {number} {code(name)}: {meaning}" for name, number, meaning in exit_meanings()]
    return "\n".join([*begin("exit codes"), *rows]) + "\n"


def exit_names() -> list[tuple[str, int]]:
    return [(name, value) for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)]


def exit_meanings() -> list[tuple[str, int, str]]:
    """Return the exit codes with the text behind each."""
    body = ast.parse(inspect.getsource(exits)).body
    return [(name, number, str(behind.value.value)) for name, number in exit_names() for at, behind in pairwise(body)
            if isinstance(at, ast.Assign) and ast.unparse(at.targets[0]) == name
            and isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant)]  # fmt: skip


def command_line() -> str:
    root = click.Context(cli, info_name="spar", **cli.context_settings)
    contexts = [each for each in commands(root) if not isinstance(each.command, click.Group)]
    records = Counter(record for context in contexts for record in _records(context))
    usual = {name: (name, text) for (name, text), _ in reversed(records.most_common())}
    common = sorted(record for record in usual.values() if records[record] > 1)
    lines = [*begin("command line"), "## `spar`", "", *_items(_records(root))]
    lines += ["", "## Options of several commands", "", *_items(common), ""]
    for context in contexts:
        words = ("[OPTIONS]", "COMMAND [ARGS]...")
        usage = [word for word in context.command.collect_usage_pieces(context) if word not in words]
        lines += [f"## {code(' '.join([context.command_path, *usage]))}", "", *_text(context)]
        own = _records(context)
        shared = ", ".join(code(re.findall(r"--?[\w-]+", name)[-1]) for name, text in own if (name, text) in common)
        items = [*_items(record for record in own if record not in common), *([f"- {shared}"] if shared else [])]
        lines += [*items, ""] if items else []
    return "\n".join(lines)


def commands(root: click.Context) -> Iterator[click.Context]:
    """Yield each command, and after a group its commands."""
    for name in cli.list_commands(root):
        command = cli.get_command(root, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=root)
        yield context
        if isinstance(command, click.Group):
            for sub in command.list_commands(context):
                inner = command.get_command(context, sub)
                assert inner is not None
                yield click.Context(inner, info_name=sub, parent=context)


def _text(context: click.Context) -> Iterator[str]:
    """Yield the description of a command, and its examples if they are many."""
    for paragraph in inspect.cleandoc(context.command.help or "").split("\f")[0].split("\n\n"):
        if not paragraph.startswith("\b"):
            yield from (one_line(paragraph), "")
            continue
        examples = [line.strip() for line in paragraph.splitlines()[2:]]
        if len(examples) > 6:
            yield from ("```text", *(each for each in examples if each != context.command_path), "```", "")


def _records(context: click.Context) -> list[tuple[str, str]]:
    """Return the options of a command with their meanings."""
    options = (option for option in context.command.params if isinstance(option, click.Option))
    records = (option.get_help_record(context) for option in options)
    return [
        (name.replace(" RANGE", ""), one_line(text))
        for name, text in filter(None, records)
        if not name.startswith("-h")
    ]


def _items(records: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield from (f"- {code(name)}: {text}" for name, text in records)


def http() -> str:
    operations = served()
    lines = [*begin("http"), "## The API", "", *map(_line, operations)]
    in_paths = sorted({name for each in operations for name in each.path_fields})
    lines += ["", "## Parameters of the path", "", *_items((name, PATH_PARAMETERS[name]) for name in in_paths), ""]
    lines += ["## Parameters of the query", "", *_parameters(operations), ""]
    kinds = dict.fromkeys(each.given for each in operations if has_body(each))
    # The names of most fields say all.
    bodies = [(kind.__name__, text) for kind in kinds if "`" in (text := one_line(kind.__doc__)) or "null" in text]
    lines += ["## Bodies", "", *_items(bodies), ""]
    probes_of = [(f"{method} {route.path}", one_line(route.endpoint.__doc__))
                 for route in _probe_routes() for method in sorted(set(route.methods or ()) - {"HEAD"})]  # fmt: skip
    lines += ["## Probes, metrics and hooks", "", *_items(probes_of), "", *live_events_part(), ""]
    refused: dict[int, list[str]] = {}
    for error, status in STATUS_OF:
        refused.setdefault(status, []).append(code(error.__name__))
    rows = [f"- {status}: {', '.join(names)}" for status, names in sorted(refused.items())]
    return "\n".join([*lines, "## Statuses of refusals", "", "By the error of the agent:", "", *rows]) + "\n"


def _parameters(operations: Iterable[Operation[Any, Any]]) -> Iterator[str]:
    """Yield a line for each parameter that is no option of a command, and for other bounds and defaults of one."""
    root = click.Context(cli, info_name="spar", **cli.context_settings)
    options = {(context.command_path, option.name) for context in commands(root) for option in context.command.params}
    ways: dict[tuple[str, str, str, str], list[str]] = {}
    for each in operations:
        for field in query_fields(each):
            takes, default, text = accepted_values(field), _default(field), meaning(field)
            if (f"spar {each.name}", field.name) in options:
                if not default or " to " not in takes:
                    continue
                text = ""
            ways.setdefault((field.name, takes, default, text), []).append(_request(each))
    for (name, takes, default, text), requests in sorted(ways.items()):
        words = ", ".join(filter(None, ("" if takes == "a text" else takes, default and f"else {default}")))
        said = (code(name), "of", ", ".join(map(code, requests)), words and f"({words})")
        yield "- " + " ".join(filter(None, said)) + (f": {text}" if text else "")


def _request(operation: Operation[Any, Any]) -> str:
    return f"{operation.method} {plain_path(operation)}"


def _line(operation: Operation[Any, Any]) -> str:
    """Return what an operation takes, needs and answers, and what it does; one with a command names that instead."""
    query = "&".join(field.name for field in query_fields(operation))
    request = code(_request(operation) + (f"?{query}" if query else ""))
    if has_body(operation):
        names = [f"{field.encode_name}{'' if field.required else '?'}" for field in operation.other_fields]
        request += f" `{operation.given.__name__}{'' if operation.is_free else '{' + ','.join(names) + '}'}`"
    text = summary_of(operation)
    noun = operation.name.split()[0]
    named = [f"spar {noun}" if verb == noun else f"spar {noun} {verb}" for verb in operation.commands]
    if named and _known_commands().issuperset(named):
        text = ", ".join(map(code, named))
    kind = operation.answer
    name = kind.__name__ if isinstance(kind, type) and get_origin(kind) is None else str(kind)
    answer = code(re.sub(r"(?:\w+\.)+", "", name).replace(" ", ""))
    return f"- {request} ({code(operation.scope)}, {answer}): {text}"


@cache
def _known_commands() -> frozenset[str]:
    """Return the commands with the words before their parameters."""
    root = click.Context(cli, info_name="spar", **cli.context_settings)
    return frozenset(context.command_path for context in commands(root))


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
    "cases.md": cases,
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
