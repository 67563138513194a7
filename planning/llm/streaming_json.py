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
from collections.abc import Callable
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
_SIGN = re.compile(r"\S")
_CLOSES = {"}": "{", "]": "["}
_THINK, _THOUGHT = "<think>", "</think>"
#: A character that is neither a blank nor part of a code fence.
_MORE = re.compile(r"[^\s`]")


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
        self._step: Callable[[str, int, list[Any]], int] = self._begin
        self._lead = ""  # the first characters of the answer
        self._stack: list[str] = []  # brackets that are open
        self._value_text: list[str] = []  # text of the value that is being read
        self._key: str | None = None  # name of the member that is being read
        self._has_begun = False  # whether the value of that member has begun
        self._in_calls = False
        self._is_told = False  # whether the last call was returned and no comma came since
        self._signs = Signs()
        self._calls: list[Any] = []
        self._growing: _StringDecoder | None = None

    @property
    def is_over(self) -> bool:
        """Return whether nothing more of the text can be used."""
        return self._step == self._pass

    @property
    def is_blank(self) -> bool:
        """Return whether nothing was written at all."""
        return not self._lead

    def feed(self, piece: str) -> list[Any]:
        """Read the next piece; return the elements of `calls` that it completes, and a `TextDelta` for text of the
        output."""
        items: list[Any] = []
        self._length += len(piece)
        if self._length > self._longest:
            self._break(f"it is longer than {self._longest} characters")
        at = 0
        while at < len(piece):
            at = self._step(piece, at, items)
        if self._growing is not None and (grown := self._growing.take()):
            items.append(TextDelta(grown))
        return items

    def close(self) -> None:
        """End the text; an object that is not complete becomes a `problem`."""
        if self.problem or self._step in (self._behind, self._pass):
            return
        if self._stack:
            where = f" inside {shorten(self._key)}" if self._key else ""
            self._break(f"it breaks off{where} after {self._length} characters")
        elif not self.is_blank:
            self._break(f"it holds no JSON object, found {shorten(self._lead)}")

    # -- around the object

    def _begin(self, piece: str, at: int, items: list[Any]) -> int:
        """Read the first characters, which may be `<think>`.

        Like each step (`_step`) it reads `piece` from the index `at`, adds what is complete to `items`, and returns the
        index up to which it has read.
        """
        sign = _SIGN.search(piece, at) if not self._lead else None
        if not self._lead and sign is None:
            return len(piece)
        at = sign.start() if sign is not None else at
        more = piece[at : at + len(_THINK) - len(self._lead)]
        if (self._lead + more) == _THINK:
            self._lead, self._step = "", self._think
            return at + len(more)
        if _THINK.startswith(self._lead + more):
            self._lead += more
            return at + len(more)
        self._step = self._seek
        return self._seek(piece, at, items)

    def _think(self, piece: str, at: int, items: list[Any]) -> int:
        """Skip thoughts; `_lead` holds the last characters, which may be the beginning of `</think>`."""
        rest = self._lead + piece[at:]
        end = rest.find(_THOUGHT)
        if end < 0:
            self._lead = rest[-len(_THOUGHT) + 1 :]
            return len(piece)
        after = at + end + len(_THOUGHT) - len(self._lead)
        self._lead, self._step = "", self._seek
        return after

    def _seek(self, piece: str, at: int, items: list[Any]) -> int:
        """Skip text up to a brace."""
        brace = piece.find("{", at)
        end = len(piece) if brace < 0 else brace + 1
        if len(self._lead) < 100:
            self._lead = (self._lead + piece[at:end]).lstrip()[:100]
        if brace >= 0:
            self._step = self._open
        return end

    def _open(self, piece: str, at: int, items: list[Any]) -> int:
        """Read the first character behind a brace, which tells whether an object begins or the brace is prose."""
        sign = _SIGN.search(piece, at)
        if sign is None:
            return len(piece)
        if sign[0] in '"}':
            self._stack, self._step = ["{"], self._between
        else:
            self._step = self._seek
        return sign.start()

    def _behind(self, piece: str, at: int, items: list[Any]) -> int:
        """Skip the end of a fence behind the object; any other text there is a remark."""
        sign = _MORE.search(piece, at)
        if sign is not None:
            self._note(f"there is more behind the solution, which was not read: {shorten(piece[sign.start() :])}")
            self._step = self._pass
        return len(piece)

    def _pass(self, piece: str, at: int, items: list[Any]) -> int:
        """Skip all text: nothing more can be used."""
        return len(piece)

    # -- inside it

    def _between(self, piece: str, at: int, items: list[Any]) -> int:
        """Read up to the next bracket, comma or quote, outside of strings."""
        depth = len(self._stack)
        pattern = _BREAK if depth == 1 or (depth == 2 and self._in_calls) else _BREAK_DEEP
        sign, end = self._signs.next(piece, at, pattern)
        self._value_text.append(piece[at : end - len(sign)])
        if sign == ",":
            self._separate(items)
        elif sign and sign in "}]":
            self._shut(sign, items)
        elif sign:
            self._enter(sign, depth)
        return end

    def _enter(self, sign: str, depth: int) -> None:
        """Begin a string, list or object."""
        is_value = depth == 1 and self._key is not None and not self._has_begun
        if is_value:
            self._has_begun = True
            if sign == "[" and self._key == "calls" and "".join(self._value_text).strip() == ":":
                self._in_calls, self._calls, self._value_text = True, [], []
                self.solution["calls"] = self._calls
                self._stack.append(sign)
                return
        if sign == '"':
            if is_value and self._key == "output" and self._growing is None:
                self._growing = _StringDecoder()
            self._step = self._string
        elif len(self._stack) >= MAX_DEPTH:
            self._break(f"it is nested more than {MAX_DEPTH} levels deep")
        else:
            self._stack.append(sign)
        self._value_text.append(sign)

    def _shut(self, sign: str, items: list[Any]) -> None:
        """End a list or object."""
        if self._stack[-1] != _CLOSES[sign]:
            self._break(f"{sign!r} closes a {self._stack[-1]!r} after about {self._length} characters")
            return
        depth = len(self._stack)
        if depth == 1:
            self._separate(items)
            if not self.problem:
                self._stack, self._step = [], self._behind
        elif depth == 2 and self._in_calls:
            self._separate(items)
            self._in_calls = False
            self._stack.pop()
        else:
            self._value_text.append(sign)
            self._stack.pop()
            if depth == 3 and self._in_calls:
                self._separate(items)
                self._is_told = True

    def _separate(self, items: list[Any]) -> None:
        """End an element of `calls` or a member: decode it and keep it."""
        written = "".join(self._value_text).strip()
        self._value_text = []
        if self._in_calls and len(self._stack) > 1:
            self._element(written, items)
            return
        key, self._key, self._has_begun = self._key, None, False
        if key == "calls" and not written and "calls" in self.solution:
            return  # its elements are in `solution` already
        if key is None and not written:
            return  # nothing, or a comma too many
        if key is None or not written.startswith(":"):
            self._break(f"it expects a name and a value, found {shorten(written if key is None else key + written)}")
            return
        value = self._read(written[1:], shorten(key))
        if not self.problem:
            if key in self.solution:
                self._note(f"{shorten(key)} is there twice, the last counts")
            self.solution[plain(key)] = value

    def _element(self, written: str, items: list[Any]) -> None:
        """Decode an element of `calls` and add it to `items`."""
        was_told, self._is_told = self._is_told, False
        if not written:
            return
        if was_told:
            self._break(f"two calls have no comma between them, found {shorten(written)}")
            return
        value = self._read(written, f"calls.{len(self._calls)}", is_call=True)
        if not self.problem:
            self._calls.append(value)
            items.append(value)

    def _read(self, written: str, where: str, *, is_call: bool = False) -> Any:
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

    def _string(self, piece: str, at: int, items: list[Any]) -> int:
        """Read a string up to its end, or to the end of the piece."""
        sign, end = self._signs.next(piece, at, _BREAK)
        self._value_text.append(piece[at:end])
        if self._growing is not None:
            self._growing.feed(piece[at : end - len(sign)], is_over=bool(sign))
        if sign:
            self._step = self._between
            if len(self._stack) == 1 and self._key is None:
                self._name()
        return end

    def _name(self) -> None:
        """End the name of a member."""
        written = "".join(self._value_text)
        self._value_text = []
        name = self._read(written, "a name")
        if not self.problem:
            self._key = name

    def _break(self, why: str) -> None:
        """Set the `problem` and skip the rest of the text."""
        self.problem = self.problem or why
        self._value_text, self._step = [], self._pass


# -- the text of a string while it grows

#: Characters and escapes that are complete. The first half of a surrogate pair is complete once something follows that
#: cannot be the second half.
_COMPLETE = re.compile(
    r"(?:[^\\]++|\\[^u]|\\u(?!d[89ab])[0-9a-f]{4}|\\ud[89ab][0-9a-f]{2}(?=[^\\]|\\[^u]|\\u[0-9a-f]{4}))*+",
    re.IGNORECASE | re.DOTALL,
)


_LONGEST_ESCAPE: Final = 12  # two escapes of six characters; a longer unfinished text is not an escape


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
        match = None if self._is_over or "\\" not in raw else _COMPLETE.match(raw)
        complete = len(raw) if match is None or len(raw) - match.end() > _LONGEST_ESCAPE else match.end()
        self._raw = raw[complete:]
        try:
            return text(parse_lenient(f'"{raw[:complete]}"')) if complete else ""
        except ValueError:  # an invalid escape, which is reported once the whole string is decoded
            return text(raw[:complete])
