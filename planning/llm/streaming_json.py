"""Parser of a solution's JSON text that comes in pieces, which may be cut anywhere.

Each element of the top-level list `calls` is returned once its closing brace has come. The text of a top-level string
`output` is returned as it grows. The other members are decoded once they are complete, and kept in `solution`. Each
character is read twice, once to find where a value ends and once to decode the value, however small the pieces are.

Models write more than the object: prose and code fences before it, a fence behind it, and thoughts between `<think>`
and `</think>`. All of these are skipped. Text that is no JSON ends the parsing and sets `problem`, a clause for the
model; nothing is raised. A call that has a key twice, or NaN for a number, is returned as a call with the reason in
`_bad`, with which the executor refuses it. `remark` names anything else that was changed or skipped, such as a second
solution. A Unicode surrogate without the other half of its pair is replaced.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any, Final

from planning.ports import TextDelta
from planning.strict_json import Signs, parse_lenient, parse_strict
from spar.checks import shorten
from spar.data.json_safe import UNBOUNDED, plain, text
from spar.data.paths import MAX_DEPTH

#: Most characters of one answer; models answer with some tens of thousands at most.
LONGEST: Final = 4_000_000

_BREAK = re.compile(r'["{}\[\],]')
_BREAK_DEEP = re.compile(r'["{}\[\]]')  # inside a nested value: a comma there ends no call and no member
_CLOSES = {"}": "{", "]": "["}
_THINK, _THOUGHT = "<think>", "</think>"
#: Begin of the object; a brace before anything else is prose.
_OBJECT = re.compile(r'\{\s*+(?=["}])')
#: Name of a member, and the begins of the two members that are returned as they come.
_NAME = re.compile(r'\s*("(?:[^"\\]++|\\.)*+")\s*', re.DOTALL)
_CALLS, _OUTPUT = re.compile(r'\s*"calls"\s*:\s*\['), re.compile(r'\s*"output"\s*:\s*"')
#: Text that stands for `calls` until the comma behind it: its elements are decoded already.
_CALLS_READ: Final = '"calls":[]'
#: A character that is neither a blank nor part of a code fence.
_MORE = re.compile(r"[^\s`]")

#: Reading that gets the next piece at each `yield`.
_Reading = Generator[None, str, Any]


class PartialSolution:
    """Reads one solution. `feed` it pieces, `close` it at the end; `solution` holds the members that are complete.

    Args: longest: characters after which an answer is refused.
    """

    def __init__(self, longest: int = LONGEST) -> None:
        #: The members by name; of two with one name the last. `calls` grows with each element.
        self.solution: dict[str, Any] = {}
        #: A clause about an error for which the solution cannot be used; "" if there is none.
        self.problem = ""
        #: A clause about what was changed or skipped in a solution that can be used; "" for nothing.
        self.remark = ""
        self._longest, self._length = longest, 0
        self._lead = ""  # the first characters of the answer
        self._stack: list[str] = []  # brackets that are open
        self._text: list[str] = []  # text of the member, or of the element of `calls`, that is being read
        self._begun = 0  # strings, lists and objects that have begun in it; of a member the first is its name
        self._in_calls = False
        self._is_told = False  # whether the last call was returned and no comma came since
        self._is_whole = self._is_read = False
        self._signs = Signs()
        self._items: list[Any] = []
        self._growing: _StringDecoder | None = None
        self._reading = self._read()
        next(self._reading)

    @property
    def is_over(self) -> bool:
        """Return whether nothing more of the text can be used."""
        return self._is_read or bool(self.problem)

    @property
    def is_blank(self) -> bool:
        """Return whether nothing was written at all."""
        return not self._lead

    def feed(self, piece: str) -> list[Any]:
        """Read the next piece; return the elements of `calls` that it completes, and a `TextDelta` for text of the
        output."""
        self._length += len(piece)
        if self._length > self._longest:
            self._break(f"it is longer than {self._longest} characters")
        if not self.is_over:
            try:
                self._reading.send(piece)
            except StopIteration:
                self._is_read = True
        items, self._items = self._items, []
        if self._growing is not None and (grown := self._growing.take()):
            items.append(TextDelta(grown))
        return items

    def close(self) -> None:
        """End the text; an object that is not complete becomes a `problem`."""
        if self._stack:
            name = _NAME.match("".join(self._text))
            key = "calls" if self._in_calls else name and self._decoded(name[1], "a name")
            where = f" inside {shorten(key)}" if key else ""
            self._break(f"it breaks off{where} after {self._length} characters")
        elif not self.is_blank and not self._is_whole:
            self._break(f"it holds no JSON object, found {shorten(self._lead)}")

    def _read(self) -> _Reading:
        """Read the whole text: what stands before the object, the object, what stands behind it."""
        piece, at = (yield from self._before()), 0
        self._stack.append("{")
        while self._stack and not self.problem:
            if at >= len(piece):
                piece, at = (yield), 0
            is_string, depth = self._signs.is_inside, len(self._stack)
            pattern = _BREAK if depth == 1 or (depth == 2 and self._in_calls) else _BREAK_DEEP
            sign, end = self._signs.next(piece, at, pattern)
            written, at = piece[at : end - len(sign)], end
            self._text.append(written)
            if is_string:
                self._text.append(sign)
                if self._growing is not None:
                    self._growing.feed(written, is_over=bool(sign))
            elif sign == ",":
                self._separate()
            elif sign in _CLOSES:
                self._shut(sign, depth)
            elif sign:
                self._enter(sign, depth)
        if self.problem:
            return
        self._is_whole = True
        while (more := _MORE.search(piece, at)) is None:
            piece, at = (yield), 0
        self._note(f"there is more behind the solution, which was not read: {shorten(piece[more.start() :])}")

    def _before(self) -> _Reading:
        """Skip thoughts and prose up to the brace of the object; return the text behind the brace."""
        while len(self._lead) < len(_THINK) and _THINK.startswith(self._lead):
            self._lead = (self._lead + (yield)).lstrip()
        behind = self._lead
        if behind.startswith(_THINK):
            self._lead = behind[len(_THINK) :]
            while (end := self._lead.find(_THOUGHT)) < 0:
                self._lead = self._lead[1 - len(_THOUGHT) :] + (yield)
            behind = self._lead[end + len(_THOUGHT) :]
        self._lead = behind.lstrip()[:100]
        while (begin := _OBJECT.search(behind)) is None:
            piece = yield
            behind = f"{'{' if behind.rstrip().endswith('{') else ''}{piece}"
            if len(self._lead) < 100:
                self._lead = (self._lead + piece).lstrip()[:100]
        return behind[begin.end() :]

    def _enter(self, sign: str, depth: int) -> None:
        """Begin a string, list or object."""
        self._begun += 1
        if depth == 1 and self._begun == 2:
            begin = "".join((*self._text, sign))
            if _CALLS.fullmatch(begin):
                self._in_calls, self._text, self.solution["calls"] = True, [], []
                self._stack.append(sign)
                return
            if self._growing is None and _OUTPUT.fullmatch(begin):
                self._growing = _StringDecoder()
        self._text.append(sign)
        if sign != '"' and depth >= MAX_DEPTH:
            self._break(f"it is nested more than {MAX_DEPTH} levels deep")
        elif sign != '"':
            self._stack.append(sign)

    def _shut(self, sign: str, depth: int) -> None:
        """End a list or object."""
        if self._stack[-1] != _CLOSES[sign]:
            self._break(f"{sign!r} closes a {self._stack[-1]!r} after about {self._length} characters")
        elif depth == 1 or (depth == 2 and self._in_calls):
            self._separate()
            if self._in_calls:
                self._in_calls, self._text, self._begun = False, [_CALLS_READ], 2
            self._stack.pop()
        else:
            self._text.append(sign)
            self._stack.pop()
            if depth == 3 and self._in_calls:
                self._separate()
                self._is_told = True

    def _separate(self) -> None:
        """End a member, or an element of `calls`: decode it and keep it. There may be a comma too many."""
        written, self._text, self._begun = "".join(self._text).strip(), [], 0
        was_told, self._is_told = self._is_told, False
        if not written or written == _CALLS_READ:
            return
        if not self._in_calls:
            self._member(written)
        elif was_told:
            self._break(f"two calls have no comma between them, found {shorten(written)}")
        else:
            calls = self.solution["calls"]
            value = self._decoded(written, f"calls.{len(calls)}", is_call=True)
            if not self.problem:
                calls.append(value)
                self._items.append(value)

    def _member(self, written: str) -> None:
        head = _NAME.match(written)
        if head is None or written[head.end() : head.end() + 1] != ":":
            self._break(f"it expects a name and a value, found {shorten(written)}")
            return
        name = self._decoded(head[1], "a name")
        value = self._decoded(written[head.end() + 1 :].strip(), shorten(name))
        if name in self.solution:
            self._note(f"{shorten(name)} is there twice, the last counts")
        if not self.problem:
            self.solution[name] = value

    def _decoded(self, written: str, where: str, *, is_call: bool = False) -> Any:
        """Return a decoded value; None, and a `problem`, where it is no JSON. `where` names it in sentences."""
        try:
            return plain(parse_strict(written), UNBOUNDED)
        except (ValueError, RecursionError) as error:  # also an integer of more digits than Python reads
            why = str(error)
        try:
            value = plain(parse_lenient(written), UNBOUNDED)
        except (ValueError, RecursionError):
            self._break(f"{where} is no JSON: {why.lower()}, found {shorten(written)}")
            return None
        if is_call and isinstance(value, dict) and isinstance(value.get("_tool"), str):
            known = {name: value[name] for name in ("_tool", "_id") if isinstance(value.get(name), str)}
            return {**known, "_bad": f"{why}: {shorten(written)}"}
        self._note(f"{where} was not taken as it is written: {why}")
        return value

    def _note(self, remark: str) -> None:
        self.remark = self.remark or remark

    def _break(self, why: str) -> None:
        """Set the `problem`; the rest of the text is not read."""
        self.problem = self.problem or why


#: Most characters of an unfinished escape: two of six characters, for the halves of a surrogate pair.
_LONGEST_ESCAPE: Final = 12


class _StringDecoder:
    """Decoder of the first string that it is fed; it holds back an escape whose rest has not come."""

    __slots__ = ("_is_over", "_raw")

    def __init__(self) -> None:
        self._is_over, self._raw = False, ""

    def feed(self, raw: str, *, is_over: bool) -> None:
        """Take the next part of the string as it is written; `is_over`: the string ends here."""
        if not self._is_over:
            self._raw, self._is_over = self._raw + raw, is_over

    def take(self) -> str:
        """Return the text that is complete and was not returned before."""
        raw = self._raw
        held = 0 if self._is_over else min(len(raw), _LONGEST_ESCAPE)
        for end in range(len(raw), len(raw) - held - 1, -1):
            try:
                complete = parse_lenient(f'"{raw[:end]}"')
            except ValueError:
                continue
            if self._is_over or not "\ud800" <= complete[-1:] <= "\udbff":  # else the other half may come
                self._raw = raw[end:]
                return text(complete)
        self._raw = ""
        return text(raw)  # an invalid escape, which is reported once the whole string is decoded
