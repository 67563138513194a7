"""The answer of an operation for a command: of the running service, or of the store without one.

An error of the client ends the command with a sentence and an exit code.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from spar import __version__
from spar.cli.context import STORE, Options, fail, from_store, refusals
from spar.client.client import Client, MisfitError, NotRunningError, RefusedError, ServiceError, TimedOutError
from spar.decoding import convert_leniently
from spar.operations.operation import AgentStore, Operation
from spar.service import exit_codes as exits

if TYPE_CHECKING:
    from spar.operations.agent import Status

#: The exit code for each HTTP status of a refusal.
CODE_OF: Final = {
    400: exits.CONFIG,
    403: exits.NO_PERMISSION,
    422: exits.USAGE,
    429: exits.UNFINISHED,
    503: exits.UNAVAILABLE,
    504: exits.TIMED_OUT,
}
#: The advice for an answer of another version.
RESTART: Final = "restart the service to have both of one version: systemctl restart spar, or spar stop and spar run"


class StoreAlone(Struct):
    """Store and configuration of an agent without a running service, as operations use them.

    `loaded` returns the configuration, of which only the tables of some keys are read.
    """

    memory: Any
    agent_name: str
    loaded: Callable[..., Any]

    @property
    def tokens(self) -> Any:
        """Return the access tokens in the store."""
        from spar.clock import SystemClock
        from spar.service.tokens import Tokens

        return Tokens(lambda: self.memory, SystemClock.now)


@contextmanager
def service(options: Options, timeout: float | None = None, *, may_be_absent: bool = False) -> Iterator[Client]:
    """Yield a client of the running service. An error of it ends the command with a sentence and its code.

    Args:
        timeout: Seconds for each part of an answer; default: what the operation may take.
        may_be_absent: Raise NotRunningError if no service runs, instead of ending the command.
    """
    client = Client(options.state_dir(), timeout=timeout)
    try:
        yield client
    except ServiceError as error:
        if may_be_absent and isinstance(error, NotRunningError):
            raise
        fail(*ending(client, error))


def ask(options: Options, operation: Operation[Any, Any], given: Any, *, is_typed: bool = False) -> Any:
    """Return the answer of an operation: from the running service, without one from the store. An error ends the
    command.

    Args: is_typed: as a value of its type; otherwise as JSON values, also those that this version does not know.
    """
    client = Client(options.state_dir())
    try:
        try:
            return (client.call if is_typed else client.answer)(operation, given)
        except NotRunningError:
            if operation.stored is None:
                raise
        answer = _ask_store(options, operation, given)
        return client.typed(operation, answer) if is_typed else answer
    except ServiceError as error:
        fail(*ending(client, error))


def _ask_store(options: Options, operation: Operation[Any, Any], given: Any) -> Any:
    """Return the answer of an operation from the store of an agent that does not run; a change is audited there."""
    from spar.errors import ConflictError
    from spar.net.control_socket import name_of
    from spar.operations.operation import Caller
    from spar.records.audit import AuditDraft, auditing

    name, who = options.load(*STORE).settings.agent.name, name_of(os.getuid())

    async def question(memory: Any) -> Any:
        store: AgentStore = StoreAlone(memory, name, options.load)
        entry = operation.audit
        if entry is None:
            return await operation.from_store(store, given, Caller(who))
        draft = AuditDraft(who, "shell", entry.action, entry.subject_of(given), agent=name, rows=entry.rows)
        draft.detail |= entry.detail_of(given)
        try:
            with auditing(draft):
                return await operation.from_store(store, given, Caller(who))
        except ConflictError as error:
            fail(str(error))
        except ValueError as error:
            fail(str(error), exits.USAGE)

    with refusals():
        return from_store(options, question, read_only=operation.is_read)


def ending(client: Client, error: ServiceError) -> tuple[str, int]:
    """Return the sentence and the exit code of a command that an error of the client ends."""
    match error:
        case NotRunningError():
            return f"{error}; start it with: spar run", exits.UNAVAILABLE
        case MisfitError():
            what = f"the service's answer has no {error.field!r}" if error.field else str(error)
            return f"{what}: {versions(version_of(client))}", exits.UNAVAILABLE
        case RefusedError(is_of_route=True):
            return f"the service has no {error.request}: {versions(version_of(client))}", exits.UNAVAILABLE
        case RefusedError():
            return error.detail, CODE_OF.get(error.status, exits.FAILED)
    return str(error), exits.TIMED_OUT if isinstance(error, TimedOutError) else exits.UNAVAILABLE


def version_of(client: Client) -> str:
    """Return the version of the service; "unknown" if it does not say it."""
    from spar.operations.agent import StatusChoice, status

    try:
        return str(client.answer(status, StatusChoice(lanes=False))["version"])
    except (ServiceError, TypeError):
        return "unknown"


def read_status(answer: Any) -> tuple[Status, list[str]]:
    """Return a status, which may be of another version, and the fields that it does not say."""
    from spar.operations.agent import Status

    match answer:
        case {"agents": [agent, *_], **others} if "agent" not in answer:  # older services have a list of one
            answer = {**others, "agent": agent}
    return convert_leniently(answer, Status)


def unsaid_line(unsaid: list[str], version: str) -> str:
    """Return the sentence about the fields that a status does not say."""
    return f"this service does not say {', '.join(unsaid)}: {versions(version or 'unknown')}"


def versions(of_service: str) -> str:
    """Return the clause that names the versions of service and command, with the advice if they differ."""
    if of_service == __version__:
        return f"it and this command are of version {__version__}, but of different builds; {RESTART}"
    return f"it runs version {of_service}, this command is of version {__version__}; {RESTART}"
