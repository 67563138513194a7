"""Table of all operations.

The order is that of the routes: of two paths that fit a request, the first one is taken.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from spar.operations.operation import Operation

#: The module of each noun. A command imports only that of its own noun.
MODULES: Final = {
    "status": "agent", "pause": "agent", "resume": "agent", "reload": "agent", "stop": "agent", "step": "agent",
    "shadow": "agent", "events": "agent", "parts": "setup.parts", "config": "setup.settings",
    "services": "setup.services", "nodes": "setup.nodes", "runs": "runs", "cost": "runs", "sessions": "sessions",
    "memory": "memory", "why": "knowledge.reasons", "why-not": "knowledge.rules",
    "next": "history", "cycles": "history", "changes": "history", "audit": "history",
    "rules": "knowledge.rules", "abilities": "knowledge.abilities", "incidents": "perceived", "sensors": "perceived",
    "examples": "knowledge.examples",
    "approvals": "review", "calls": "review", "dead": "review", "channels": "channels", "notifiers": "channels",
    "senders": "access", "tokens": "access", "break": "debugging.breakpoints",
    "stops": "debugging.stops", "configurations": "debugging.configurations",
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
