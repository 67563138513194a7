"""References and output paths: `†state.disks.0.name || †input.name`, parsed and followed. Pure.

A whole-string value that begins with † is a reference, anywhere inside a parameter; `††` stands for a literal †; text
that merely contains † is text. The first word of a path is the kind of data, the other segments lead into the data;
digits index arrays. `&&` binds tighter than `||`, blanks around the two are optional, there are no parentheses.

Reading takes the leftmost alternative whose paths are all present (null and false are present), and returns the value
of its last path. Writing chooses one alternative and writes the value to each of its paths.

A write at a path changes the values at, above and below this path: which call depends on which. `PathNode` is a tree
of segments, so a look-up costs as much as the path is long, however many other paths there are. The graph of calls,
taint and parking use the tree; `PathIndex` is for a caller that needs only a summary.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice, pairwise
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar, cast

from msgspec import Struct, field

from spar.checks import SCALARS, shorten
from spar.types.slotted import slotted

MARK: Final = "†"
MAX_DEPTH: Final = 128  # deeper values exhaust the stack of encoders
MAX_SEGMENTS: Final = 64
MAX_PATHS: Final = 256  # in one expression
MAX_VALUES: Final = 1_000_000  # a value that contains itself many times has no end
MISSING: Final[Any] = type("Missing", (), {"__repr__": lambda self: "MISSING"})()

#: Segments of a path: the kind of data, then those that lead into it: `("state", "disks", "0", "name")`.
Path = tuple[str, ...]

_FORM = re.compile(r"†[^\W\d][\w-]*(?:\.[^\s.|&†]+)*\Z")


class BadReferenceError(ValueError):
    """Error of a string that begins with † and cannot be parsed, or refers to nothing."""


class ValueTooLargeError(ValueError):
    """Error of a value that is nested too deeply, or holds too many values."""


class Expression:
    """Parsed reference or output path: alternatives, each of them a tuple of paths.

    `only` is the path if there is exactly one, as most expressions have; else None.
    """

    __slots__ = ("alternatives", "only")

    def __init__(self, alternatives: tuple[tuple[Path, ...], ...]) -> None:
        self.alternatives = alternatives
        self.only = alternatives[0][0] if len(alternatives) == 1 and len(alternatives[0]) == 1 else None

    @property
    def paths(self) -> list[Path]:
        """Return the paths of all alternatives."""
        return [path for paths in self.alternatives for path in paths]

    def __repr__(self) -> str:
        return " || ".join(" && ".join(map(render, paths)) for paths in self.alternatives)


def parse_read(text: str) -> Expression:
    """Return the parsed reference, which begins with one †. Raises: BadReferenceError that says what is wrong."""
    return _parse_cached(text) if len(text) <= _CACHED else _parse(text)


def parse_write(text: str) -> Expression:
    """Return the parsed output path. Raises: BadReferenceError, also for one value that would go to one place twice."""
    expression = _parse_cached(text) if len(text) <= _CACHED else _parse(text)
    if expression.only is None:
        for paths in expression.alternatives:
            ordered = sorted(paths)  # after sorting, a prefix stands right before its paths
            for one, other in pairwise(ordered):
                if overlaps(one, other):
                    raise BadReferenceError(
                        f"{render(one)!r} && {render(other)!r} would write to one place twice: name places apart"
                    )
    return expression


def parse(text: str) -> Path:
    """Return the only path of a reference: `†kind.a.b` becomes `("kind", "a", "b")`.

    Raises: BadReferenceError, also if it names more than one path.
    """
    expression = parse_read(text)
    if expression.only is None:
        raise BadReferenceError(f"{shorten(text)} names several paths: one is wanted here")
    return expression.only


def _parse(text: str) -> Expression:
    if "||" not in text and "&&" not in text:
        return Expression(((_parse_path(text, text),),))
    if text[-1].isspace():
        raise _unreadable(text)
    if text.count("||") + text.count("&&") >= MAX_PATHS:
        raise BadReferenceError(f"{shorten(text)} names more paths than the {MAX_PATHS} that are allowed")
    alternatives = dict.fromkeys(
        tuple(_distinct(_parse_path(piece.strip(), text) for piece in alternative.split("&&")))
        for alternative in text.split("||")
    )
    return Expression(tuple(alternatives))


def _distinct(paths: Iterable[Path]) -> Iterable[Path]:
    # The value of the last path counts, so the last mention of a path stays.
    return reversed(dict.fromkeys(reversed(tuple(paths))))


def _parse_path(piece: str, text: str) -> Path:
    """Return one path of the expression `text`."""
    if _FORM.match(piece) is None:
        if piece is text:
            raise _unreadable(text)
        if not piece:
            raise BadReferenceError(f"{shorten(text)} names nothing beside one of its signs: write †one || †other")
        if piece[:1] != MARK:
            raise BadReferenceError(f"{shorten(piece)} in {shorten(text)} does not begin with †, as each path does")
        raise BadReferenceError(f"{shorten(piece)} in {shorten(text)} is not a path: write †kind.path")
    if not piece[1:].isascii() and any("\ud800" <= character <= "\udfff" for character in piece):
        raise BadReferenceError(f"{shorten(text)} holds a lone surrogate, which no encoder takes")
    path = tuple(piece[1:].split("."))
    if len(path) > MAX_SEGMENTS:
        raise BadReferenceError(f"{shorten(text)} has {len(path)} segments: {MAX_SEGMENTS} are allowed")
    return path


def _unreadable(text: str) -> BadReferenceError:
    return BadReferenceError(
        f"{shorten(text)} is not a reference: write †kind.path, or †† for a text that begins with †"
    )


_CACHED: Final = 256  # characters; longer texts are rare and would take much memory
_parse_cached = lru_cache(16_384)(_parse)


def render(path: Path) -> str:
    """Return the path as it is written in a call."""
    return MARK + ".".join(path)


#: Tells whether a text is a reference and not plain text: it begins with one dagger.
is_reference: Callable[[str], object] = re.compile(f"{MARK}(?!{MARK})").match


def references(params: Mapping[str, Any], names: Collection[str] | None = None) -> dict[str, tuple[Expression, ...]]:
    """Return the parameters that contain a string with a leading †, each with its references (none if all are `††`
    literals).

    Args: names: those of the parameters to look at; None: all.
    Raises: BadReferenceError for a string that begins with † and cannot be parsed; ValueTooLargeError.
    """
    expressions: dict[str, tuple[Expression, ...]] = {}
    for name in params if names is None else names:
        value = params[name]
        if type(value) is str:
            if value[:1] == MARK:
                expressions[name] = () if value[:2] == "††" else (parse_read(value),)
        elif type(value) not in SCALARS:
            texts = marked(value)
            if texts:
                expressions[name] = tuple(parse_read(text) for text in texts if is_reference(text))
    return expressions


def distinct(expressions: Iterable[Expression]) -> Sequence[Expression]:
    """Return the expressions in order, without those that equal an earlier one."""
    items = tuple(expressions)
    return items if len(items) < 2 else tuple({item.alternatives: item for item in items}.values())


def marked(value: Any) -> list[str]:
    """Return every string inside `value` that begins with †, in order. Raises: ValueTooLargeError."""
    texts: list[str] = []
    level, depth, count = [value], 0, 0
    while level:
        count += len(level)
        if depth > MAX_DEPTH:
            raise ValueTooLargeError(f"a parameter is nested more than {MAX_DEPTH} levels deep")
        if count > MAX_VALUES:
            raise ValueTooLargeError(f"a parameter holds more than {MAX_VALUES} values")
        below: list[Any] = []
        for item in level:
            if isinstance(item, str):
                if item[:1] == MARK:
                    texts.append(item)
            elif type(item) in SCALARS:
                continue
            elif isinstance(item, Mapping):
                below.extend(islice(item.values(), MAX_VALUES))
            elif isinstance(item, (list, tuple)):
                below.extend(item)
            elif isinstance(item, Iterator):
                raise ValueTooLargeError("a parameter holds an iterator, which may have no end: give a list")
        level, depth = below, depth + 1
    return texts


def resolve(value: Any, look: Callable[[Expression], Any]) -> Any:
    """Return `value` with every reference replaced by the result of `look(expression)`; containers are copied.

    The value must have passed `references`. Raises: what `look` raises.
    """
    if isinstance(value, str):
        if value[:1] != MARK:
            return value
        return value[1:] if value[:2] == "††" else look(parse_read(value))
    if type(value) in SCALARS:
        return value
    if isinstance(value, Mapping):
        return {key: resolve(item, look) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [resolve(item, look) for item in value]
    return value


def copied(value: Any) -> Any:
    """Return the value with its containers copied; strings in it are not read as references."""
    if isinstance(value, Mapping):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, (list, tuple)) else value


def escape(value: Any, texts: Collection[str] | None = None) -> Any:
    """Return the value with `texts` inside it escaped, as they are data and must not become references.

    Args: texts: the texts to escape; None: every text that begins with †.
    """
    if isinstance(value, str):
        return MARK + value if value[:1] == MARK and (texts is None or value in texts) else value
    if isinstance(value, Mapping):
        return {key: escape(item, texts) for key, item in value.items()}
    return [escape(item, texts) for item in value] if isinstance(value, (list, tuple)) else value


def get(value: Any, path: Path) -> Any:
    """Return the value at `path` inside `value`, or MISSING; null is a value like any other."""
    for segment in path:
        if isinstance(value, dict):
            value = value.get(segment, MISSING)
        elif isinstance(value, list):
            index = _index(segment)
            value = value[index] if index is not None and index < len(value) else MISSING
        else:
            return MISSING
        if value is MISSING:
            return MISSING
    return value


def put(root: Any, path: Path, value: Any) -> Any:
    """Write `value` at `path` inside `root`, in place, and return the root.

    Missing objects on the way are created, and a scalar on the way is replaced by an object. A digit writes to an
    existing item of an array or appends to its end. Raises: ValueError for any other place in an array.
    """
    if not path:
        return value
    if not isinstance(root, (dict, list)):
        root = {}
    here, last = root, len(path) - 1
    for at, segment in enumerate(path):
        if isinstance(here, dict):
            if at == last:
                here[segment] = value
                break
            below = here.get(segment)
            if not isinstance(below, (dict, list)):
                below = here[segment] = {}
        else:
            index = _index(segment)
            if index is None or index > len(here):
                raise ValueError(f"cannot write {segment!r} to an array of {len(here)}")
            if index == len(here):
                here.append({})
            if at == last:
                here[index] = value
                break
            below = here[index]
            if not isinstance(below, (dict, list)):
                below = here[index] = {}
        here = below
    return root


def reaches(root: Any, path: Path) -> None:
    """Check that `put` could write at `path`. Raises: the ValueError that `put` would raise."""
    here = root
    for segment in path:
        if isinstance(here, list):
            index = _index(segment)
            if index is None or index > len(here):
                raise ValueError(f"cannot write {segment!r} to an array of {len(here)}")
            here = here[index] if index < len(here) else None
        elif isinstance(here, dict):
            here = here.get(segment)
        else:
            return


def nest(path: Path, value: Any) -> Any:
    """Return `value` wrapped in one object for each segment of the path, as in the message about a write."""
    for segment in reversed(path):
        value = {segment: value}
    return value


def merge(old: Any, new: Any) -> Any:
    """Return `old` with `new` merged in: objects recursively and in place, any other value replaced."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    pairs = [(old, new)]
    while pairs:
        left, right = pairs.pop()
        for key, value in right.items():
            before = left.get(key)
            if isinstance(before, dict) and isinstance(value, dict):
                pairs.append((before, value))
            else:
                left[key] = value
    return old


def overlaps(one: Path, other: Path) -> bool:
    """Return whether a write to one path changes the value at the other: equal, or one leads to the other."""
    return all(a == b for a, b in zip(one, other, strict=False))


def _index(segment: str) -> int | None:
    # Not int(): it also reads "+1", "1_0" and digits of other scripts. Nine digits are more than any array has.
    return int(segment) if segment.isascii() and segment.isdigit() and len(segment) < 10 else None


T = TypeVar("T")
N = TypeVar("N", bound="PathNode")

NOTHING: Final[Any] = MappingProxyType({})  # the children of a leaf: most nodes are leaves


class PathNode(Struct, eq=False):
    """Segment of a path, as the node of a tree."""

    up: Any = None
    children: dict[str, Any] = NOTHING


def child(node: N, segment: str) -> N:
    """Return the node of a segment below; create it if there is none."""
    node_below: N | None = node.children.get(segment)
    if node_below is None:
        node_below = type(node)(node)
        if node.children is NOTHING:
            node.children = {segment: node_below}
        else:
            node.children[segment] = node_below
    return node_below


def descend(node: N, path: Iterable[str]) -> N:
    """Return the node of a path below this one; create it if there is none."""
    for segment in path:
        node = child(node, segment)
    return node


def upwards(node: N | None) -> Iterator[N]:
    """Yield the node and those above it."""
    while node is not None:
        yield node
        node = node.up


@slotted
class _Entry(PathNode, eq=False):
    """Segment with two summaries: of the values added exactly here (`own`), and of these with all below (`sum`)."""

    own: Any = None
    sum: Any = None


class PathIndex(Struct, Generic[T], eq=False):
    """Values by path; `over(path)` is the summary of those at, above and below it. The path () is above every path.

    Args: merge: makes one summary of an earlier and a later value.
    """

    _merge: Callable[[T, T], T]
    _root: _Entry = field(default_factory=_Entry)

    def add(self, path: Path, value: T) -> None:
        """Add a value, which is not None, at a path."""
        merge, node = self._merge, self._root
        node.sum = value if node.sum is None else merge(node.sum, value)
        for segment in path:
            node = child(node, segment)
            node.sum = value if node.sum is None else merge(node.sum, value)
        node.own = value if node.own is None else merge(node.own, value)

    def over(self, path: Path) -> T | None:
        """Return the summary of all values whose paths overlap with this one; None if there are none."""
        merge = self._merge
        node, summary = self._root, cast("T | None", None)
        for segment in path:
            if node.own is not None:
                summary = node.own if summary is None else merge(summary, node.own)
            below: _Entry | None = node.children.get(segment)
            if below is None:
                return summary
            node = below
        if summary is None or node.sum is None:
            return summary if node.sum is None else node.sum
        return merge(summary, node.sum)

    def at(self, path: Path) -> T | None:
        """Return the summary of the values at exactly this path; None if there are none."""
        node: _Entry | None = self._root
        for segment in path:
            node = node.children.get(segment) if node is not None else None
        return node.own if node is not None else None
