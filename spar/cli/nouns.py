"""Commands that follow from the table of operations: a command for each operation that has one.

Fields that the path names are arguments, the others options. A command asks the running service; without one, a read
is answered from the store in the same words, and so is a change that needs nothing but the store.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from inspect import cleandoc
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args, get_origin

import click
import msgspec
from msgspec import NODEFAULT, UNSET
from msgspec.structs import FieldInfo

from spar.cli.blocks import Block, listing, record
from spar.cli.client import service
from spar.cli.context import Duration, Json, Options, Time, Words, fail, other_configuration, show
from spar.client.client import NotRunningError
from spar.data.text import printable
from spar.errors import ConflictError
from spar.operations.fields import accepted_values, is_list, meaning, plain_type, value_of
from spar.operations.operation import CommandForm, Operation, Review, TimedChoice

#: Function that returns the answer of an operation for people, from its input and its answer.
View: TypeAlias = Callable[[Any, Any], Sequence[Block]]
Completion: TypeAlias = Callable[..., list[Any]] | None


class FieldType(click.ParamType[Any]):
    """Type of an argument or option: the text is read as the field of the operation is."""

    def __init__(self, field: FieldInfo) -> None:
        self._field = field
        self.name = "words" if is_list(field) else "text"

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:
        return f"It must be {accepted_values(self._field)}."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return value_of("", value, self._field)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def command_of(
    operation: Operation[Any, Any], verb: str, command: CommandForm, view: View | None = None
) -> click.Command:
    """Return a command of an operation. Args: view: returns its answer for people; default: as its form says."""
    arguments = operation.path_fields if command.arguments is None else command.arguments
    fields = {field.name: field for field in msgspec.structs.fields(operation.given)}
    params: list[click.Parameter] = [
        _argument(fields[name], command, completion(operation, name)) for name in arguments
    ]
    params += [_option(field, command, completion(operation, name)) for name, field in fields.items()
               if name not in (*arguments, *command.hidden)]  # fmt: skip
    if command.confirm:
        params.append(click.Option(["--yes", "-y", "is_sure"], is_flag=True, help="Do not ask for confirmation."))
    run = partial(_run, operation, command, view)
    result = click.Command(verb, callback=run, params=params, help=_help(operation, command))
    return other_configuration(result) if command.by_other else result


def blocks_of(operation: Operation[Any, Any], command: CommandForm, given: Any, answer: Any) -> Sequence[Block]:
    """Return the answer of an operation for people."""
    blocks: list[Block] = [] if command.sentence is None else [command.sentence(given, answer)]
    if command.fields:
        title = command.title if isinstance(command.title, str) else command.title(answer)
        blocks.append(record(command.fields, answer, title))
    if command.columns:
        rows = command.rows(answer) if command.rows is not None else answer
        empty = command.empty if isinstance(command.empty, str) else command.empty(given)
        if isinstance(given, TimedChoice) and given.since is not None:
            empty = "none since then"
        blocks.append(listing(command.columns, rows) if rows else empty)
        if command.more is not None and rows and (more := command.more(given, answer)):
            blocks.append(f"more: spar {operation.name} {more}")
    for form in command.also:
        if more_blocks := [block for block in blocks_of(operation, form, given, answer) if block]:
            blocks += ["", *more_blocks]
    return blocks


def _run(operation: Operation[Any, Any], command: CommandForm, view: View | None, /, **values: Any) -> None:
    """Carry out a command of an operation."""
    options: Options = click.get_current_context().obj
    is_sure, other = values.pop("is_sure", True), values.pop("other", None)
    chosen = {name: value for name, value in values.items() if value not in (None, ())}
    try:
        given = operation.given(**{**command.default, **chosen})
        given = given if command.read is None else command.read(given)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    for name in operation.path_fields:
        if not str(getattr(given, name)).strip():
            raise click.UsageError(f"{name.upper()} is empty")
    is_asked = not (is_sure or options.as_json)
    if command.review is not None:
        given, is_open = _reviewed(options, command.review, given)
        is_asked &= is_open and sys.stdin.isatty()
    if is_asked and not click.confirm(command.confirm.format_map(msgspec.structs.asdict(given)), err=True):
        fail("not answered; nothing has changed")
    answer = ask(options, operation, given, other, is_typed=not options.as_json)
    if command.failure and (why := answer[command.failure] if options.as_json else getattr(answer, command.failure)):
        fail(why)
    blocks = partial(blocks_of, operation, command) if view is None else view
    show(options, answer, *(() if options.as_json else blocks(given, answer)))


def ask(options: Options, operation: Operation[Any, Any], given: Any, other: Path | None = None, *,
        is_typed: bool = False) -> Any:  # fmt: skip
    """Return the answer of an operation: from the running service, without one from the store. An error ends the
    command.

    Args:
        other: Another configuration by which the store is asked.
        is_typed: As a value of its type; otherwise as JSON values, also those that this version does not know.
    """
    with service(options) as client:
        try:
            if other is None:
                return (client.call if is_typed else client.answer)(operation, given)
        except NotRunningError:
            if not operation.is_stored:
                raise
        from spar.cli.offline import ask_store  # a running service answers most commands

        answer = ask_store(options, operation, given, other)
        return client.typed(operation, answer) if is_typed else answer


def _reviewed(options: Options, review: Review, given: Any) -> tuple[Any, bool]:
    """Show the record that is decided about; return the decision about exactly this one, and whether it is open."""
    try:
        given.check()
        shown = review.operation()
        record = ask(options, shown, shown.given(given.id), is_typed=True)
        given, text = review.about(record, given)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except ConflictError as error:
        fail(str(error))
    if is_open := review.is_open(record):
        click.echo(printable(text), err=True)
    return given, is_open


def _argument(field: FieldInfo, command: CommandForm, complete: Completion) -> click.Argument:
    usual = command.default.get(field.name, field.default)
    default = {} if usual is NODEFAULT else {"default": usual, "required": False}
    (shown,) = command.spelled.get(field.name, (None,))
    if usual is UNSET:  # typed as assignments
        return click.Argument([field.name], nargs=-1, required=True, metavar=shown)
    return click.Argument([field.name], type=_kind(field, command), metavar=shown, shell_complete=complete, **default)


def _kind(field: FieldInfo, command: CommandForm) -> click.ParamType[Any]:
    """Return the type of an argument or option."""
    if field.type is str:
        return click.STRING
    plain, metas = plain_type(field.type)
    if any("duration" in (meta.extra or ()) for meta in metas):
        return Duration()
    if field.name in command.words:
        return Words(command.words[field.name])
    if plain is Any or get_origin(plain) is dict:
        return Json(plain)
    if get_origin(plain) is Literal:
        return click.Choice(list(get_args(plain)))
    return Time() if plain is datetime else FieldType(field)


def _option(field: FieldInfo, command: CommandForm, complete: Completion) -> click.Option:
    """Return the option of a field."""
    plain, _ = plain_type(field.type)
    is_changes = get_origin(plain) is dict  # typed as texts that change the parameters of a call
    name, described = f"--{field.encode_name.replace('_', '-')}", meaning(field)
    usual = command.default.get(field.name, field.default)
    absent = None if usual in (NODEFAULT, UNSET) else usual
    if plain is bool and absent is not False:
        name = f"{name}/--no-{name[2:]}"
    names = [*command.spelled.get(field.name, (name,)), field.name]
    if plain is bool:
        return click.Option(names, is_flag=True, default=absent, help=described)
    more = {} if absent is None else {"default": absent, "show_default": absent != ""}
    kind = click.STRING if is_changes else _kind(field, command)
    shown = {int: "NUMBER", float: None if isinstance(kind, Duration) else "NUMBER", datetime: "TIME"}.get(plain)
    return click.Option(names, type=kind, multiple=is_changes, required=field.required and absent is None,
                        help=described, metavar="KEY=VALUE" if is_changes else shown,
                        shell_complete=complete, **more)  # fmt: skip


def completion(operation: Operation[Any, Any], name: str) -> Completion:
    """Return the completion of a field by what the service knows, which is imported when a shell asks for it."""

    def complete_it(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
        from spar.cli.complete import names

        return names(context, incomplete, operation, name)

    return complete_it if name == "session" or name in operation.path_fields else None


def _help(operation: Operation[Any, Any], command: CommandForm) -> str:
    does = cleandoc(command.does or operation.does)
    if not command.examples:
        return does
    head = "Example:" if len(command.examples) == 1 else "Examples:"
    return f"{does}\n\n\b\n{head}\n" + "\n".join(f"  {line}" for line in command.examples)
