"""Operation: one thing that people and programs can do with an agent, said once.

The control API, the client, the audit log, the commands and the reference pages are made from it. The signature of its
function defines its input and its answer: `async def work(service, given, caller) -> Answer`, of which `given` (a
structure) and `caller` may be absent. A field of `given` that the path names is read from the path; the others come
from the query of a GET, and from the body of every other request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, Literal, Protocol, TypeVar, get_type_hints, overload
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Meta, Struct

from spar.errors import ConflictError

if TYPE_CHECKING:
    from spar.agent.parts import AgentParts
    from spar.config.tables.settings import Loaded
    from spar.records.audit import AuditDraft
    from spar.service.changes import ChangeRecord
    from spar.service.token_rows import Scope
    from spar.service.tokens import Tokens

In = TypeVar("In", bound=Struct)
Out = TypeVar("Out")
Row = TypeVar("Row")

Method = Literal["GET", "POST", "PATCH", "DELETE"]
#: The place where an operation runs: in the event loop of the agent, or in the thread of the server, both with the
#: service; or in the loop with nothing but the store, which has one thread.
Where = Literal["agent", "service", "store"]
#: When an operation is served: while the agent takes work; also while it stops; at any time.
Served = Literal["open", "stopping", "always"]
#: State of a part while no service runs.
NOT_RUNNING: Final = "not running"
#: Seconds that an operation may take that should be immediate.
PATIENCE: Final = 10.0


class GoneError(ConflictError):
    """Error of an answer to something that nobody waits for any more."""


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """Input without fields."""


#: The field of a list's input with the time from which on its rows are.
Since = Annotated[datetime | None, Meta(description="Only from this time on.")]


class RowsChoice(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Choice of the rows of a list that is read whole, because it is bounded."""

    limit: Annotated[int, Meta(ge=1, le=10_000, description="How many at most; default: all.")] | None = None


class TimedChoice(RowsChoice, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Choice of the rows of such a list whose rows have a time."""

    since: Since = None


def chosen(given: Any, rows: Iterable[Row], at: Callable[[Row], datetime | None] | None = None) -> list[Row]:
    """Return the first `limit` rows; with `at`, which returns the time of a row, those from `since` on."""
    since, limit = given.since if at is not None else None, given.limit
    if at is not None and since is not None:
        rows = (row for row in rows if (time := at(row)) is not None and time >= since)
    return list(islice(rows, limit))


class Caller(Struct, frozen=True):
    """Client of an operation, as the server determined it; the content of its request has no part in this.

    `by` is the name of the user or token, `is_token` tells which; the others are headers of the request.
    """

    by: str
    is_token: bool = False
    idempotency_key: str = ""
    traceparent: str = ""
    last_event_id: str = ""


class AuditRule(Struct, frozen=True):
    """Entry of an operation in the audit log.

    `action` is its name; `rows` are the kinds of rows of the store with which the entry is written in one transaction
    ("": the first row of any kind; none: it is written when the operation has succeeded). `subject` and `detail` are
    names of fields of the input. `is_first` returns whether a service writes it before the operation with an input,
    because the memory may be closed afterwards; it raises ValueError for an input that the operation refuses.
    """

    action: str
    rows: tuple[str, ...] = ()
    subject: str = ""
    detail: tuple[str, ...] = ()
    is_first: Callable[[Any, Any], bool] = lambda service, given: False

    def draft(self, by: str, origin: str, given: Struct, agent: str) -> AuditDraft:
        """Return the entry of a request with an input. Args: by: who made it; origin: by way of what."""
        from spar.records.audit import AuditDraft

        subject = str(getattr(given, self.subject)) if self.subject else ""
        values = {name: getattr(given, name) for name in self.detail}
        detail = {name: None if value is msgspec.UNSET else value for name, value in values.items()}
        return AuditDraft(by, origin, self.action, subject, agent=agent, rows=self.rows, detail=detail)


class AgentStore(Protocol):
    """Data of one agent, as a running service or a store that a command has opened provides them.

    `agent` is the agent, and `changes` records what changes; None if it does not run. `configuration(*keys)` returns
    its configuration, of which a command reads only the tables of these keys.
    """

    @property
    def agent(self) -> AgentParts | None: ...
    @property
    def changes(self) -> ChangeRecord | None: ...

    @property
    def memory(self) -> Any: ...
    @property
    def agent_name(self) -> str: ...
    @property
    def tokens(self) -> Tokens: ...
    def configuration(self, *keys: str) -> Loaded: ...


class StoreAlone(Struct):
    """Data of an agent that does not run: its store and its configuration.

    `is_other` says whether the configuration is another one than the agent's own.
    """

    memory: Any
    agent_name: str
    configuration: Callable[..., Loaded]
    is_other: bool = False
    agent: None = None
    changes: None = None

    @property
    def tokens(self) -> Tokens:
        """Return the access tokens in the store."""
        from spar.clock import SystemClock
        from spar.service.tokens import Tokens

        return Tokens(lambda: self.memory, SystemClock.now)


async def records_in(store: AgentStore, kind: str, of: type[Row]) -> list[Row]:
    """Return the records of a kind in a store; those of another version are left out, as a service does."""
    from spar.ports.any_part import offers
    from spar.protocols import Records

    records = await store.memory.records(kind) if offers(store.memory, Records) else ()
    return readable((record.value for record in records), of)


def readable(values: Iterable[Any], of: type[Row]) -> list[Row]:
    """Return the values that are rows of this version."""
    from spar.decoding import converted

    return [row for value in values if (row := converted(value, of)) is not None]


def demanded(part: Any, member: Callable[[Any], Out], sentence: str) -> Out:
    """Return the value of an optional property of a part. Raises: LookupError with the sentence if it has none."""
    from spar.ports.any_part import has

    if not has(part, member):
        raise LookupError(sentence)
    described: Any = member
    value: Out = getattr(part, described.fget.__name__)
    return value


class Column(Struct, frozen=True):
    """Column of a list for people.

    `head` is its header, aligned to the right after a ">"; `cell` the name of the field of each row, or a function that
    returns the value. `form` is how a value is written: a time in the zone of the reader, one line (JSON, unless it is
    text), a list with commas, a duration; in a record also each text of a list under the same label. `absent`
    stands for a value that is empty, or returns what does.
    `style` returns the style of a row's cell on a terminal.
    """

    head: str
    cell: str | Callable[[Any], Any]
    form: Literal["text", "time", "line", "list", "took", "each"] = "text"
    absent: str | Callable[[Any], str] = ""
    style: Callable[[Any], str] | None = None


class Review(Struct, frozen=True):
    """The look at a record before a decision about it: its text is shown first, if it still waits.

    `operation` returns the operation that returns the record by its id. `about` returns the decision about exactly this
    record, and the text to show; `is_open` whether it still waits, so that a person at a terminal must confirm.
    """

    operation: Callable[[], Operation[Any, Any]]
    about: Callable[[Any, Any], tuple[Any, str]]
    is_open: Callable[[Any], bool]


class CommandForm(Struct, frozen=True):
    """The form of an operation on the command line; the rest follows from the operation.

    Attributes:
        arguments: The fields of the input that are given without a name; default: those of the path.
        hidden: Fields that only programs give.
        columns: The columns of an answer that is a list, or of the list that `rows` returns.
        empty: The sentence for an empty list.
        more: The options that show the next page, from the input and the answer; "" for the last page.
        fields: The labelled values of an answer that is one record, under `title`; empty values are left out.
        sentence: The sentence for another answer, from the input and the answer.
        also: What an answer has besides, under an empty line.
        failure: The field of the answer that says what is wrong; if it does, the command ends with that and code 1.
        confirm: The question that a person must answer first, with the fields of the input; "" for none.
        read: Returns the input from one whose fields hold what was typed; None: that is the input. Raises: ValueError.
        review: The look at the record that is decided about.
        examples: Lines that show its use.
        default: Fields whose default differs from that of a program.
        spelled: The options, and the arguments in the help, that are not spelled as the names of their fields.
        words: The words for the values of fields that are typed as one of them.
        does: What it does; default: what the operation does.
        by_other: Whether it takes another configuration (--config FILE), by which the store alone is asked.
    """

    arguments: tuple[str, ...] | None = None
    hidden: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    rows: Callable[[Any], Sequence[Any]] | None = None
    empty: str | Callable[[Any], str] = "none"
    more: Callable[[Any, Any], str] | None = None
    fields: tuple[Column, ...] = ()
    title: str | Callable[[Any], str] = ""
    sentence: Callable[[Any, Any], str] | None = None
    also: tuple[CommandForm, ...] = ()
    failure: str = ""
    confirm: str = ""
    read: Callable[[Any], Any] | None = None
    review: Review | None = None
    examples: tuple[str, ...] = ()
    default: Mapping[str, Any] = {}
    spelled: Mapping[str, tuple[str, ...]] = {}
    words: Mapping[str, Mapping[str, Any]] = {}
    does: str = ""
    by_other: bool = False


def effect_form(done: str, subject: Callable[[Any], str], *examples: str, **more: Any) -> CommandForm:
    """Return the command of a change: it says what is done, and to which row. Args: more: fields of the form."""
    return CommandForm(sentence=lambda given, row: f"{done}: {subject(row)}", examples=examples, **more)


class Operation(Generic[In, Out]):
    """One thing that people and programs can do; `operation` makes one of a function.

    Args:
        name: Its noun and its verb, as on the command line: "tokens revoke".
        request: The method and the path of its request; parameters in the path stand in braces.
        scope: The scope that a token needs for it.
        where: The place where it runs.
        audit: Its entry in the audit log; None: it changes nothing, or what it changes has an entry of its own.
        served: In which states of the agent it is served.
        patience: Seconds that it may take; or a function that returns them from the input.
        status: The HTTP status of a successful answer.
        streams: How many clients may read its stream of events at once, and what they do; None: it is no stream.
        ends: Returns whether an event is the last one of its stream; before it, the stream goes on in the next process
            of the service.
        repeatable: Returns whether a change with an input may be requested twice, since it is made only once.
        knows_key: Whether it recognizes an `Idempotency-Key` itself; the server does for all other changes.
        is_masked: Whether secrets are masked in its answer.
        command: Its command; None: it has one of its own, or none; several commands by their verbs.
        is_stored: Whether its function also answers from the store alone, for a command without a running service; it
            takes `AgentStore` instead of `Service`.
    """

    def __init__(self, work: Callable[..., Coroutine[Any, Any, Out]], name: str, request: str, scope: Scope, *,
                 where: Where = "agent", audit: AuditRule | None = None, served: Served = "open",
                 patience: float | Callable[[In], float] = PATIENCE, status: int = 200,
                 streams: tuple[int, str] | None = None, ends: Callable[[Any], bool] = lambda event: False,
                 repeatable: Callable[[In], bool] = lambda given: False, knows_key: bool = False,
                 is_masked: bool = False,
                 command: CommandForm | Mapping[str, CommandForm] | None = None,
                 is_stored: bool = False) -> None:  # fmt: skip
        method, _, path = request.partition(" ")
        self.work, self.name, self.path, self.scope, self.where = work, name, path, scope, where
        self.method: Method = method  # type: ignore[assignment]
        self.audit, self.served, self.patience, self.status, self.streams = audit, served, patience, status, streams
        self.does = work.__doc__ or ""
        self.ends, self._repeatable, self.knows_key, self.is_masked = ends, repeatable, knows_key, is_masked
        self.commands = command if isinstance(command, Mapping) else {name.split()[-1]: command} if command else {}
        #: Whether it changes nothing, so that it ends when its caller leaves.
        self.is_read = method == "GET" or scope == "read"
        self.is_stored = is_stored or where == "store"

    def may_repeat(self, given: In) -> bool:
        """Return whether a request whose answer is not known may be sent again."""
        return self.is_read or self._repeatable(given)

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self.work, localns={"Service": Any, "Tokens": Any}, include_extras=True)

    @cached_property
    def given(self) -> type[In]:
        """Return the structure of the input."""
        kind: type[In] = self._hints.get("given", Nothing)
        return kind

    @cached_property
    def answer(self) -> Any:
        """Return the type of the answer."""
        return self._hints["return"]

    @cached_property
    def path_fields(self) -> tuple[str, ...]:
        """Return the fields of the input that the path has."""
        return tuple(part.partition("}")[0].partition(":")[0] for part in self.path.split("{")[1:])

    @cached_property
    def other_fields(self) -> tuple[msgspec.structs.FieldInfo, ...]:
        """Return the fields of the input that the query or the body has."""
        return tuple(field for field in msgspec.structs.fields(self.given) if field.name not in self.path_fields)

    @cached_property
    def is_free(self) -> bool:
        """Return whether the whole body is one value of any form."""
        return any(field.type is msgspec.Raw for field in self.other_fields)

    def request(self, given: In) -> tuple[str, bytes | None]:
        """Return the target of a request for this operation, and its body, None for none.

        Surrogates, from arguments that were no UTF-8, become question marks."""
        if self.is_free:
            (field,) = self.other_fields
            return self.path, bytes(getattr(given, field.name)) or None
        values = msgspec.to_builtins(given)
        words = {name: quote(values.pop(name), safe="", errors="replace") for name in self.path_fields}
        target = re.sub(r"\{(\w+)[^}]*\}", lambda name: words[name[1]], self.path)
        usual = {field.encode_name: field.default for field in self.other_fields}
        values = {name: value for name, value in values.items() if value != usual[name]}
        if self.method != "GET":
            return target, json.dumps(values, ensure_ascii=False).encode("utf-8", "replace") if values else None
        asked = {name: _as_text(value) for name, value in values.items() if value is not None}
        return (f"{target}?{urlencode(asked, doseq=True, errors='replace')}" if asked else target), None

    def seconds(self, given: In) -> float:
        """Return the seconds that it may take."""
        return self.patience(given) if callable(self.patience) else self.patience

    def run(self, first: Any, given: In, caller: Caller) -> Coroutine[Any, Any, Out]:
        """Return the work of the operation. Args: first: the service, or the store for an operation of that."""
        names = self.work.__annotations__
        return self.work(first, *(value for name, value in (("given", given), ("caller", caller)) if name in names))


def _as_text(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value


class _Makes(Protocol):
    """Decorator that makes an operation of a function."""

    @overload
    def __call__(self, work: Callable[[Any, In, Caller], Coroutine[Any, Any, Out]], /) -> Operation[In, Out]: ...
    @overload
    def __call__(self, work: Callable[[Any, In], Coroutine[Any, Any, Out]], /) -> Operation[In, Out]: ...


def operation(name: str, request: str, scope: Scope, **more: Any) -> _Makes:
    """Make an operation of a function; the arguments are those of `Operation`."""

    def decorate(work: Callable[..., Coroutine[Any, Any, Any]]) -> Operation[Any, Any]:
        return Operation(work, name, request, scope, **more)

    return decorate


#: The field of a stream's input with the position of the client.
After = Annotated[str | None, Meta(description="The number of the last event that was seen; 0: from the beginning.")]


class EventSource(Protocol):
    """EventSource of a stream: `some` waits for the next events and returns them, or none at the end."""

    async def some(self) -> Sequence[Any]: ...


class Stream(Struct, frozen=True):
    """Events of a source, each with its number `seq`.

    `name_of` returns the name of an event. `position` returns the number up to which the client has received all
    events, which heartbeats send, so that a client that reconnects skips what its filter left out. `close` is called
    in the event loop of the agent when the client has left.
    """

    source: EventSource
    name_of: Callable[[Any], str]
    position: Callable[[], int | None] = lambda: None
    close: Callable[[], object] = lambda: None


def after_of(caller: Caller, parameter: str | None) -> int | None:
    """Return the number of the last event that the client has seen, None without one. Raises: ValueError."""
    text = caller.last_event_id or parameter
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise ValueError(f"after = {text[:40]!r}: must be the seq of an event, or 0 for all")
    return int(text)


# -- the table of all operations

#: The module of each noun. A command imports only that of its own noun.
MODULES: Final = {
    "status": "agent", "pause": "agent", "resume": "agent", "reload": "agent", "stop": "agent", "step": "agent",
    "shadow": "agent", "events": "agent", "parts": "setup", "config": "setup",
    "services": "setup", "nodes": "setup", "runs": "runs", "cost": "runs", "sessions": "sessions",
    "memory": "memory", "why": "knowledge.reasons", "why-not": "knowledge.rules",
    "next": "history", "cycles": "history", "changes": "history", "audit": "history",
    "rules": "knowledge.rules", "abilities": "knowledge.abilities", "incidents": "perceived", "sensors": "perceived",
    "examples": "knowledge.examples",
    "approvals": "review", "calls": "review", "dead": "review", "channels": "access", "notifiers": "access",
    "senders": "access", "tokens": "access", "break": "breakpoints",
    "stops": "breakpoints", "configurations": "history",
}  # fmt: skip


def operations() -> list[Operation[Any, Any]]:
    """Return all operations, in the order of the routes."""
    return [operation for module in dict.fromkeys(MODULES.values()) for operation in _in_module(module)]


def commands_of(noun: str) -> dict[str, Operation[Any, Any]]:
    """Return the operations of a noun that have commands, by the verb of each; one of a single word by its name."""
    operations = (operation for operation in _in_module(MODULES[noun]) if operation.name.split()[0] == noun)
    return {verb: operation for operation in operations for verb in operation.commands}


def _in_module(module: str) -> list[Operation[Any, Any]]:
    names = vars(import_module(f"spar.operations.{module}"))
    return [value for value in names.values() if isinstance(value, Operation)]
