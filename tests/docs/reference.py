"""The pages of `docs/reference/` that are drawn from the code; `make docs` writes them, a test compares them.

Each page is a function without arguments that returns its text. Nothing here is cached or formatted by hand: a page
that differs from its function is out of date.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin

import click
import msgspec
from annotated_types import Ge, Gt, Le, Len
from prometheus_client.core import Metric
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from starlette.routing import Route

from spar import __version__, events
from spar.cli.lazy import SUMMARIES
from spar.cli.main import COMMANDS, cli
from spar.config.amounts import Capped, Counted, Paid
from spar.config.fields import Duration
from spar.config.load import Settings, reloads
from spar.config.registry import Registry
from spar.config.signature import Signature
from spar.server.problems import STATUS_OF
from spar.server.routes.control import control
from spar.server.routes.probes import probes
from spar.service import exit_codes as exits
from spar.service.app import Service
from spar.service.health_metrics import HEALTH
from spar.service.metrics import PER_AGENT, Metrics

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
NOTE = "This page is written by `make docs` from the code. Do not edit it.\n"

#: The title and the first paragraph of each page.
INTROS = {
    "settings": """# Settings

Every key of `config.toml`, with its type, its default and its meaning. Durations are numbers of seconds, or texts
like `"500ms"`, `"30s"`, `"5m"`, `"1h"`, `"2d"`. `spar reload` puts a *live* key in force between two cycles; a key
that says *restart* takes effect at the next start. [How to configure](../how-to/configure.md) says where values come
from.
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
    "exit codes": """# Exit codes

The codes are those of `sysexits.h`, in the sense in which systemd units use them.
""",
    "command line": """# The command line

The options of `spar` itself may stand before or behind the command.
""",
    "http": """# HTTP

The control API under `/v1` is served on the control socket `state/control.sock`, for its owner only. Probes and
metrics are served at `service.host` and `service.port`. Bodies and answers are JSON. A refusal is a problem of RFC 9457
with a status and a `detail`; `Retry-After` says after how many seconds the same may be asked again.
""",
}


def begin(page: str) -> list[str]:
    """Return the first lines of a page."""
    title, _, text = INTROS[page].partition("\n\n")
    return [title, "", NOTE, *text.splitlines(), ""]


def main() -> None:
    """Write all pages."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page())


def difference(name: str, text: str) -> str:
    """Return the first line at which a page is not what the code says now; "" when there is none."""
    ours, theirs = PAGES[name]().splitlines(), text.splitlines()
    for number in range(max(len(ours), len(theirs))):
        code, file = (lines[number] if number < len(lines) else "(end of the page)" for lines in (ours, theirs))
        if code != file:
            return f"docs/reference/{name}:{number + 1} is out of date, run `make docs`\n  file: {file}\n  code: {code}"
    return ""


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


# -- settings


def settings() -> str:
    lines = begin("settings")
    for name, field in Settings.model_fields.items():
        lines += list(_section(name, field))
    lines += list(_options_of_parts())
    return "\n".join(lines) + "\n"


def _section(path: str, field: FieldInfo) -> Iterator[str]:
    """Yield a table of the configuration, then the tables inside it."""
    model = _model_in(field.annotation)
    if model is None:
        yield from (f"## `{path}`", "", one_line(field.description), "")
        yield from table(("type", "default", "change"), [(_type(field), _default(field), reloads(path))])
        yield ""
        return
    is_list = model is not field.annotation
    yield from (f"## `[[{path}]]`" if is_list else f"## `[{path}]`", "", one_line(field.description), "")
    plain, inner = [], []
    for name, each in model.model_fields.items():
        (plain if _model_in(each.annotation) is None else inner).append((name, each))
    if plain:
        rows = [(code(name), _type(each), _default(each), one_line(each.description), reloads(f"{path}.{name}"))
                for name, each in plain]  # fmt: skip
        yield from table(("key", "type", "default", "meaning", "change"), rows)
        yield ""
    for name, each in inner:
        yield from _section(f"{path}.{name}", each)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return annotation if issubclass(annotation, BaseModel) else None
    inner = get_args(annotation)[0] if get_origin(annotation) is tuple else None
    return _model_in(inner) if inner is not None else None


#: Types as a person who writes TOML calls them.
NAMES = {str: "text", bool: "true or false", int: "whole number", float: "number", Decimal: "number", dict: "table"}


def _type(field: FieldInfo) -> str:
    """Return the type of a setting in words, with its bounds."""
    for mark in field.metadata:
        if isinstance(mark, Duration):
            words = [*mark.words, *(["off"] if mark.off_is_zero else [])]
            return " or ".join(["seconds above 0" if mark.above_zero else "seconds", *(code(f'"{w}"') for w in words)])
        if isinstance(mark, Capped):
            return 'whole number above 0 or `"auto"`'
        if isinstance(mark, Paid):
            return 'amount of money or `"off"`'
        if isinstance(mark, Counted):
            return 'whole number or `"off"`'
    return _in_words(field.annotation) + _bounds(field.metadata)


def _bounds(marks: Iterable[Any]) -> str:
    words = []
    for mark in marks:
        match mark:
            case Ge():
                words.append(f"at least {mark.ge}")
            case Gt():
                words.append(f"above {mark.gt}")
            case Le():
                words.append(f"at most {mark.le}")
            case Len(min_length=1, max_length=int()):
                words.append(f"at most {mark.max_length} characters")
    return "".join(f", {word}" for word in words)


def _in_words(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(code(f'"{word}"' if isinstance(word, str) else str(word)) for word in inner)
    if origin in (Union, UnionType):
        return " or ".join(_in_words(each) for each in inner if each is not NoneType)
    if origin is tuple:
        return f"list of {_in_words(inner[0])}"
    if annotation_marks := getattr(annotation, "__metadata__", ()):
        for mark in annotation_marks:
            if isinstance(mark, Duration):
                return "seconds above 0" if mark.above_zero else "seconds"
        return _in_words(inner[0]) + _bounds(annotation_marks)
    return NAMES.get(origin or annotation, str(annotation))


def _default(field: FieldInfo) -> str:
    return "required" if field.is_required() else code(_toml(field.get_default(call_default_factory=True)))


def _toml(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
        case tuple() | list():
            return f"[{', '.join(map(_toml, value))}]"
        case Mapping():
            return (
                "{}" if not value else "{ " + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + " }"
            )
        case float():
            return f"{value:g}" if value < 1e6 else f"{value:.0f}"
        case _:
            return str(value)


#: The groups of parts whose options stand in the configuration, and what the composition root gives them.
GROUPS: tuple[tuple[str, str, frozenset[str]], ...] = (
    ("spar.sensors", "under `[[sensors]]`", frozenset()),
    ("spar.tools", "under `[[tools]]`", frozenset()),
    ("spar.planners", "under `[plan]`", frozenset({"rules", "tools"})),
    ("spar.reflectors", "under `[reflect]`", frozenset()),
    ("spar.stores", "in `[memory]` itself", frozenset({"read_only"})),
    ("spar.notifiers", "in `via` of the tool `notify`", frozenset()),
)


def _options_of_parts() -> Iterator[str]:
    registry = Registry(allow_plugins=False)
    yield from ("# Options of the built-in parts", "", "`spar config schema` prints the same for editors.", "")
    for group, where, given in GROUPS:
        for name in registry.names(group):
            part = registry.resolve(group, name)
            properties = Signature.of(part, name, ()).schema(given).get("properties", {})
            if not properties:
                continue
            parameters = inspect.signature(part).parameters
            text, meanings = _described(part, parameters)
            heads = ("option", "type", "default", *(["meaning"] if meanings else []))
            rows = [(code(key), _of_schema(schema), _of_parameter(parameters[key]), meanings.get(key, ""))[: len(heads)]
                    for key, schema in properties.items()]  # fmt: skip
            yield from (f"## `{name}`, {where}", "", text, "", *table(heads, rows), "")


def _described(part: Any, parameters: Iterable[str]) -> tuple[str, dict[str, str]]:
    """Return the description of a part and the meaning of each option, from "Args: name, name: meaning; …"."""
    text, _, arguments = one_line(part.__doc__).partition(" Args: ")
    arguments = re.split(r" (?:Raises|Returns): ", arguments)[0]
    names = "|".join(parameters)
    pieces = re.split(rf"(?:^|(?<=[;.?)]) )((?:{names})(?:, (?:{names}))*): ", arguments)[1:]
    meanings = zip(pieces[::2], pieces[1::2], strict=True)
    return text, {name: meaning.strip(" ;.") for names, meaning in meanings for name in names.split(", ")}


def _of_parameter(parameter: inspect.Parameter) -> str:
    return "required" if parameter.default is inspect.Parameter.empty else code(_toml(parameter.default))


JSON_NAMES = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false",
              "object": "table", "null": "left out"}  # fmt: skip


def _of_schema(schema: Mapping[str, Any]) -> str:
    """Return in words what a JSON schema of an option takes."""
    if "enum" in schema:
        return " or ".join(code(_toml(value)) for value in schema["enum"])
    if "anyOf" in schema:
        words = (_of_schema(each) for each in schema["anyOf"] if each.get("type") != "null")
        return " or ".join(dict.fromkeys(word for word in words if word))
    if "$ref" in schema:
        return "table"
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if "array" in kinds:
        return f"list of {_of_schema(schema.get('items', {})) or 'values'}"
    bounds = {"minimum": "at least", "ge": "at least", "gt": "above", "exclusiveMinimum": "above", "maximum": "at most",
              "le": "at most"}  # fmt: skip
    said = "".join(f", {word} {schema[key]}" for key, word in bounds.items() if key in schema)
    if set(kinds) == {"number", "string"}:
        return "number" + said
    return " or ".join(JSON_NAMES[kind] for kind in kinds) + said


# -- events


def event_classes() -> list[type[events.Event]]:
    """Return every class of `spar.events`, in the order in which they stand there."""
    classes = [each for each in vars(events).values() if isinstance(each, type) and each.__module__ == events.__name__]
    return list(dict.fromkeys(each for each in classes if issubclass(each, events.Event)))


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
    root = click.Context(cli, info_name="spar")
    lines += list(_command(root, "## `spar`", is_root=True))
    for name in COMMANDS:
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
        yield from (*table(("command", "does"), [(code(name), SUMMARIES[name]) for name in COMMANDS]), "")


def http() -> str:
    lines = begin("http")
    for title, routes in (("The control socket", _control_routes()), ("Probes and metrics", _probe_routes())):
        rows = [(code(f"{method} {_plain(route.path)}"), one_line(route.endpoint.__doc__))
                for route in routes for method in sorted(set(route.methods or ()) - {"HEAD"})]  # fmt: skip
        lines += [f"## {title}", "", *table(("request", "does"), rows), ""]
    refused: dict[int, list[str]] = {}
    for error, status in STATUS_OF:
        refused.setdefault(status, []).append(code(error.__name__))
    rows = [(str(status), ", ".join(names)) for status, names in sorted(refused.items())]
    lines += ["## Statuses of refusals", "", *table(("status", "error of the agent"), rows)]
    return "\n".join(lines) + "\n"


def _control_routes() -> list[Route]:
    return [route for route in control(cast(Service, None)).routes if isinstance(route, Route)]


def _probe_routes() -> list[Route]:
    return [route for route in probes(cast(Service, None)).routes if isinstance(route, Route)]


def _plain(path: str) -> str:
    return re.sub(r"\{(\w+):\w+\}", r"{\1}", path)


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
