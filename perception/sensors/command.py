"""Sensor that runs a program repeatedly and reports its output: lines, JSON lines, or the whole.

There is no shell: the words reach the program unchanged. It runs in the same sandbox as tools, and after its timeout
it is ended with all processes that it started. A failed run is a failure of the sensor, with the last line of its
stderr. The output is untrusted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from annotated_types import Ge, Gt, Le, Len
from msgspec import Struct, field

from spar.data.json_safe import is_bounded
from spar.data.scrub import mask
from spar.data.text import bounded, decoded, safe_line
from spar.errors import ConfigError, TransientError
from spar.ports.services import Level, ProgramEnd, Programs, ProgramTerms, objection_to_words
from spar.protocols import SensorContext
from spar.threads import Threads
from spar.types import Perception

Form = Literal["lines", "json", "whole"]

#: Bound of the characters of a subject, key or severity from JSON.
_LONGEST_NAME: Final = 500


class Item(Struct, frozen=True):
    """One item of an output: its content, its attributes, and a digest that equal items share."""

    content: Any
    digest: str
    key: str | None = None
    subject: str | None = None
    attributes: dict[str, Any] = field(default_factory=dict)


#: Variables for the language and the time zone of a program.
_NAMES: Final = ("LANG", "LC_ALL", "LC_CTYPE", "TZ")


class CommandSensor:
    """Output of a program, as `command.output`.

    Args: argv: the program and its words; every: seconds between two runs; timeout: seconds of a run, the sensor's own
    `timeout` is longer; output: each line is a perception, each line is JSON, or the whole output is one perception;
    tell: everything, or only output that the run before did not have; kind: of its perceptions; ok_codes: exit codes
    of a successful run; env: names of the service's variables that the program gets; variables: further variables,
    where secrets may stand; sandbox: the lowest sandbox level at which it may run, 0 for none; readable: paths that it
    may read besides the workspace; network: whether it may use the network; most: lines that are reported; longest:
    characters of each line; max_output: bytes that are read of each of its streams.
    """

    def __init__(
        self,
        argv: Annotated[Sequence[str], Len(1, 1000)],
        *,
        programs: Programs,
        every: Annotated[float, Gt(0)] = 60.0,
        timeout: Annotated[float, Gt(0), Le(3600)] = 20.0,
        output: Form = "lines",
        tell: Literal["all", "changed"] = "all",
        kind: str = "command.output",
        ok_codes: Annotated[Sequence[Annotated[int, Ge(0), Le(255)]], Len(1)] = (0,),
        env: Sequence[str] = _NAMES,
        variables: Mapping[str, str] | None = None,
        sandbox: Level = "auto",
        readable: Sequence[str] = (),
        network: bool = False,
        most: Annotated[int, Ge(1), Le(10_000)] = 500,
        longest: Annotated[int, Ge(80), Le(1 << 20)] = 64 * 1024,
        max_output: Annotated[int, Ge(1024), Le(64 << 20)] = 1 << 20,
    ) -> None:
        if why := objection_to_words("argv", argv):
            raise ConfigError(why, path=("argv",))
        _demand_names("env", env)
        _demand_names("variables", variables or {})
        programs.refuse(readable)
        self.every = every
        self._programs, self._output, self._tell, self._kind = programs, output, tell, kind
        self._ok_codes, self._most, self._longest = frozenset(ok_codes), most, longest
        self._has_secrets = bool(variables)
        self._terms = ProgramTerms(
            tuple(argv), timeout, max_output, tuple(env), dict(variables or {}), tuple(readable), network, sandbox,
        )  # fmt: skip

    async def open(self, ctx: SensorContext) -> None:
        """Load the digests of the last run's output."""
        self._ctx, self._threads = ctx, Threads(f"sensor {ctx.name}", ctx.clock, limit=2)
        cursor = ctx.cursor if isinstance(ctx.cursor, dict) else {}
        digests = cursor.get("said") if cursor.get("argv") == list(self._terms.argv) else None
        digests = digests if isinstance(digests, list) else ()
        self._line_digests = frozenset(digest for digest in digests if isinstance(digest, str))

    async def poll(self) -> list[Perception]:
        """Run the program and return its output. Raises: PermanentError when it cannot be started, TransientError when
        it failed or took too long."""
        run = self._ctx.clock.now().isoformat()
        with self._ctx.clock.working():
            end = await self._programs.run(self._terms)
        self._demand_success(end)
        items, more = await self._threads.run(self._read, end.stdout)
        digests = frozenset(item.digest for item in items)
        reported = items if self._tell == "all" else [item for item in items if item.digest not in self._line_digests]
        if self._tell == "changed" and digests != self._line_digests:
            self._line_digests = digests
            self._ctx.checkpoint({"argv": list(self._terms.argv), "said": sorted(digests)})
        about: dict[str, Any] = {"program": self._terms.argv[0], "exit": end.exit, "sandbox": end.sandbox}
        if complaint := self._line(end.stderr):
            about["stderr"] = complaint
        noticed = [self._perception(item, about, f"{run} {number}") for number, item in enumerate(reported)]
        if left_out := self._left_out(end, more):
            noticed.append(self._perception(Item(left_out, run), about, run, kind="command.left_out"))
        return noticed

    def _read(self, stdout: bytes) -> tuple[list[Item], int]:
        """Return the items of an output. It runs in a thread."""
        if self._has_secrets:
            stdout = mask(stdout.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        return items_of(stdout, self._output, longest=self._longest, most=self._most)

    def _demand_success(self, end: ProgramEnd) -> None:
        """Check that a run succeeded. Raises: TransientError."""
        if not end.timed_out and end.exit in self._ok_codes:
            return
        name = self._terms.argv[0]
        last_words = self._line(end.stderr) or self._line(end.stdout)
        tail = f": {last_words}" if last_words else " and said nothing"
        ok = f" (ok_codes: {', '.join(map(str, sorted(self._ok_codes)))})" if end.exit is not None else ""
        raise TransientError(end.sentence(name, self._terms.timeout) + ok + tail)

    def _line(self, stream: bytes) -> str:
        """Return the last line of a stream, safe for a log."""
        return safe_line(mask(last_line(stream)), 300)

    def _left_out(self, end: ProgramEnd, more: int) -> str:
        parts = [f"{more} more lines (most = {self._most})"] if more else []
        parts += [f"{end.omitted} bytes (max_output = {self._terms.max_output})"] if end.omitted else []
        return f"{' and '.join(parts)} of {self._terms.argv[0]!r} were left out" if parts else ""

    def _perception(self, item: Item, about: Mapping[str, Any], place: str, kind: str = "") -> Perception:
        key = f"{self._ctx.name} {item.key or place}"
        attributes = {**about, **item.attributes}
        return self._ctx.perception(item.content, kind or self._kind, key=key, subject=item.subject,
                                    attributes=attributes)  # fmt: skip


def _demand_names(option: str, names: Iterable[str]) -> None:
    """Check that the names can be names of variables. Raises: ConfigError."""
    for name in names:
        if not name or "=" in name or "\0" in name:
            raise ConfigError(f"{name!r:.100} is no name of a variable", path=(option,))


# -- the output as lines, as JSON values or as one text, within bounds; pure. Omitted text is counted and mentioned,
# bytes that are not UTF-8 become `\xNN`, and a line that is not JSON is a text.


def items_of(output: bytes, form: Form, *, longest: int, most: int) -> tuple[list[Item], int]:
    """Return the items of an output, and the number of further lines beyond `most`.

    Args: longest: characters of each item. Empty lines are left out.
    """
    if form == "whole":
        return ([_text(output, longest)] if output.strip() else []), 0
    lines = [line for line in output.split(b"\n") if line.strip()]
    read = _value if form == "json" else _text
    return [read(line, longest) for line in lines[:most]], max(len(lines) - most, 0)


def last_line(stream: bytes) -> str:
    """Return the last line that is not blank, with bytes that are not UTF-8 as `\\xNN`; "" for none."""
    line = next((line for line in reversed(stream[-4096:].split(b"\n")) if line.strip()), b"")
    return decoded(line)[0].strip()


def _digest_of(raw: bytes) -> str:
    return hashlib.blake2b(raw, digest_size=12).hexdigest()


def _text(raw: bytes, longest: int) -> Item:
    whole, is_utf8 = decoded(raw)
    text, left_out = bounded(whole.rstrip(), longest)
    attributes = ({} if is_utf8 else {"binary": True}) | ({"left_out": left_out} if left_out else {})
    return Item(text, _digest_of(raw.rstrip()), attributes=attributes)


def _value(line: bytes, longest: int) -> Item:
    """Return the item of a line of JSON; `text subject key severity value` of an object are read."""
    try:
        value = msgspec.json.decode(line)
        problem = "" if len(line) <= longest and is_bounded(value, longest) else "JSON that is too large or too deep"
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        problem = "no JSON"
    if problem:
        text_item = _text(line, longest)
        return msgspec.structs.replace(text_item, attributes={**text_item.attributes, "problem": problem})
    table = value if isinstance(value, dict) else {"value": value}
    attributes: dict[str, Any] = {}
    number = table.get("value")
    if isinstance(number, (int, float)) and not isinstance(number, bool):
        attributes["value"] = number
    if isinstance(severity := table.get("severity"), str):
        attributes["severity"] = severity[:_LONGEST_NAME]
    content = value
    if isinstance(value, dict) and isinstance(value.get("text"), str):
        content, attributes["payload"] = value["text"], value
    return Item(content, _digest_of(line.strip()), _name(table, "key"), _name(table, "subject"), attributes)


def _name(table: dict[str, Any], name: str) -> str | None:
    value = table.get(name)
    return value[:_LONGEST_NAME] if isinstance(value, str) and value else None
