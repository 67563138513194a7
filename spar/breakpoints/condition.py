"""Conditions of breakpoints: expressions over JSON values, in the syntax of Python. Pure.

`tool == "shell" and "/etc" in params.path`: comparisons, `in`, `and`, `or`, `not`, fields (`a.b`, `a[0]`), texts,
numbers, lists, `true`, `false`, `null`. There are no calls, no loops and no arithmetic, so that a condition ends after
as many steps as it has parts. A field that is not there is null; values that have no order are not ordered.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final

#: Characters of a condition.
LONGEST: Final = 1_000
#: The names in a condition. Those that a point does not have are null there.
NAMES: Final = ("session", "run", "cycle", "kind", "source", "subject", "intent", "text", "priority", "trust",
                "attributes", "goal", "output", "tool", "params", "reason", "status", "error", "attempts")  # fmt: skip
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_ORDERS: Final[dict[type[ast.cmpop], Callable[[Any, Any], bool]]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_PARTS: Final = (
    ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.Compare, ast.Eq, ast.NotEq, ast.Is,
    ast.IsNot, ast.In, ast.NotIn, *_ORDERS, ast.Name, ast.Load, ast.Attribute, ast.Subscript, ast.Constant, ast.List,
    ast.Tuple,
)  # fmt: skip
_GRAMMAR: Final = 'use == != < <= > >= in, and, or, not, fields such as params.path, "texts", numbers and lists'


class Condition:
    """Condition that was read once. Raises: ValueError that says what is wrong with its text."""

    __slots__ = ("_tree", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > LONGEST:
            raise ValueError(f"the condition has {len(text)} characters, at most {LONGEST} are allowed")
        try:
            tree = ast.parse(text.strip(), mode="eval")
            parts = list(ast.walk(tree))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = error.msg if isinstance(error, SyntaxError) else str(error) or "it is nested too deeply"
            raise ValueError(f"the condition {text!r:.200} cannot be read: {reason}; {_GRAMMAR}") from None
        for part in parts:
            _check(part, text)
        self._tree = tree.body

    def holds(self, candidates: Iterable[Mapping[str, Any]]) -> bool:
        """Return whether it holds for one of these tables of values. Raises: any error of a value that compares
        itself."""
        return any(_value(self._tree, values) for values in candidates)


def _check(part: ast.AST, text: str) -> None:
    """Check that a part is of the grammar. Raises: ValueError."""
    if not isinstance(part, _PARTS):
        shown = ast.unparse(part) if isinstance(part, ast.expr) else type(part).__name__
        raise ValueError(f"the condition {text!r:.200} cannot have {shown[:60]!r}; {_GRAMMAR}")
    if isinstance(part, ast.Constant) and not isinstance(part.value, (str, int, float, bool, type(None))):
        raise ValueError(f"the condition {text!r:.200} cannot have {part.value!r:.60}; {_GRAMMAR}")
    if isinstance(part, ast.Name) and part.id not in (*NAMES, *_CONSTANTS):
        near = get_close_matches(part.id, NAMES, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"no name {part.id!r} in a condition; known: {', '.join(NAMES)}{hint}")


def _value(part: ast.expr, values: Mapping[str, Any]) -> Any:
    """Return the value of a part."""
    match part:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return _CONSTANTS[name] if name in _CONSTANTS else values.get(name)
        case ast.Attribute(value=inner, attr=name):
            return _at(_value(inner, values), name)
        case ast.Subscript(value=inner, slice=index):
            return _at(_value(inner, values), _value(index, values))
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item, values) for item in items]
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return not _value(inner, values)
        case ast.UnaryOp(operand=inner):
            number = _value(inner, values)
            return -number if isinstance(number, (int, float)) else None
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_value(inner, values) for inner in parts)
        case ast.BoolOp(values=parts):
            return any(_value(inner, values) for inner in parts)
        case ast.Compare(left=first, ops=ops, comparators=others):
            terms = [_value(term, values) for term in (first, *others)]
            return all(_holds(op, left, right) for op, left, right in zip(ops, terms, terms[1:], strict=False))
    raise AssertionError(part)  # `_check` lets no other part pass


def _at(value: Any, name: Any) -> Any:
    if isinstance(value, Mapping):
        return value.get(name) if isinstance(name, str) else None
    is_place = isinstance(value, (list, tuple)) and isinstance(name, int) and -len(value) <= name < len(value)
    return value[name] if is_place else None


def _holds(op: ast.cmpop, left: Any, right: Any) -> bool:
    """Return whether a comparison holds."""
    match op:
        case ast.Eq() | ast.Is():
            return bool(left == right)
        case ast.NotEq() | ast.IsNot():
            return bool(left != right)
        case ast.In() | ast.NotIn():
            is_text = isinstance(left, str) and isinstance(right, str)
            is_in = (is_text or isinstance(right, (list, tuple))) and left in right
            is_in = is_in or (isinstance(right, Mapping) and isinstance(left, str) and left in right)
            return is_in is isinstance(op, ast.In)
    are_numbers = all(isinstance(value, (int, float)) for value in (left, right))
    are_texts = isinstance(left, str) and isinstance(right, str)
    return (are_numbers or are_texts) and _ORDERS[type(op)](left, right)
