"""The store of an agent without its service: asked beside a running one, and in place of one that does not run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import msgspec

from spar.cli.context import Options, fail, refusals
from spar.decoding import encode
from spar.errors import ConflictError, DamagedError, DamagedRowError, SparError
from spar.net.control_socket import name_of
from spar.operations.operation import Caller, Operation, StoreAlone
from spar.records.audit import auditing
from spar.service import exit_codes as exits

#: The settings that a command needs to open the store.
STORE: Final = ("memory", "vectors", "agent.name", "service.state_dir", "service.workspace", "acting.workspace")


def from_store(options: Options, question: Callable[[Any], Awaitable[Any]], *, read_only: bool = True) -> Any:
    """Open the store, ask it a question, and return the answer as JSON values.

    A store that is damaged ends the command with code 65, one that cannot be opened or read now with code 69.
    Args: read_only: open the store for reading only, which is possible beside a running service.
    """
    from spar.parts.factory import Parts

    loaded = options.load(*STORE)
    with refusals():
        memory = Parts(loaded).memory(read_only=read_only)

    async def ask() -> Any:
        async with memory as store:
            return await question(store)

    try:
        return msgspec.json.decode(encode(asyncio.run(ask())))
    except (DamagedError, DamagedRowError) as error:
        fail(str(error), exits.DAMAGED)
    except SparError as error:
        fail(str(error), exits.UNAVAILABLE)
    except LookupError as error:
        fail(str(error.args[0]))


def ask_store(options: Options, operation: Operation[Any, Any], given: Any, other: Path | None) -> Any:
    """Return the answer of an operation from the store of an agent that does not run; a change is audited there."""
    name, who = options.load(*STORE).settings.agent.name, name_of(os.getuid())
    loaded = options.by(other).load

    async def question(memory: Any) -> Any:
        store = StoreAlone(memory, name, loaded, other is not None)
        entry = operation.audit
        try:
            with nullcontext() if entry is None else auditing(entry.draft(who, "shell", given, name)):
                return await operation.run(store, given, Caller(who))
        except ConflictError as error:
            fail(str(error))
        except ValueError as error:
            fail(str(error), exits.USAGE)

    with refusals():
        return from_store(options, question, read_only=operation.is_read)
