"""Descriptions of settings: the docstrings below them, read from the text of their modules when somebody shows them.

pydantic would read them whenever a model is made, a fifth of the time in which a command reads its configuration.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from typing import Any, get_args

from pydantic import BaseModel


def describe(model: type[BaseModel]) -> None:
    """Give the fields of a table, and of the tables inside it, their descriptions."""
    for field in model.model_fields.values():
        for inner in _models_in(field.annotation):
            describe(inner)
    told = {name: text for base in reversed(model.__mro__) for name, text in _docstrings(base).items()}
    for name, field in model.model_fields.items():
        field.description = field.description or told.get(name)
    model.model_rebuild(force=True)


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]


def _docstrings(model: type) -> dict[str, str]:
    return _of_module(model.__module__).get(model.__qualname__, {}) if issubclass(model, BaseModel) else {}


@functools.cache
def _of_module(name: str) -> dict[str, dict[str, str]]:
    """Return the docstrings of attributes, by class, of a module."""
    tree = ast.parse(inspect.getsource(sys.modules[name]))
    return {node.name: _of_class(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _of_class(node: ast.ClassDef) -> dict[str, str]:
    found = {}
    for attribute, text in zip(node.body, node.body[1:], strict=False):
        match attribute, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(said))):
                found[name] = inspect.cleandoc(said)
    return found
