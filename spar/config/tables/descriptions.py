"""Descriptions of settings: the docstrings below them, read from the source of their modules when they are
displayed."""

from __future__ import annotations

import ast
import functools
import inspect
import sys


def describe(table: type) -> dict[str, str]:
    """Return the descriptions of a table's settings by name."""
    return {
        name: text
        for base in reversed(table.__mro__)
        if base.__module__.startswith("spar.")
        for name, text in _of_module(base.__module__).get(base.__qualname__, {}).items()
    }


@functools.cache
def _of_module(name: str) -> dict[str, dict[str, str]]:
    """Return the docstrings of attributes, by class, in a module."""
    tree = ast.parse(inspect.getsource(sys.modules[name]))
    return {node.name: _of_class(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _of_class(node: ast.ClassDef) -> dict[str, str]:
    descriptions = {}
    for attribute, text in zip(node.body, node.body[1:], strict=False):
        match attribute, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(docstring))):
                descriptions[name] = inspect.cleandoc(docstring)
    return descriptions
