"""The running service as a command asks it: an error of its client ends the command with a sentence and a code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from spar import __version__
from spar.cli.context import Options, fail
from spar.client.client import Client, MisfitError, NotRunningError, RefusedError, ServiceError, TimedOutError
from spar.service import exit_codes as exits

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


@contextmanager
def service(options: Options, *, may_be_absent: bool = False) -> Iterator[Client]:
    """Yield a client of the running service. An error of it ends the command with a sentence and its code.

    Args: may_be_absent: raise NotRunningError if no service runs, instead of ending the command.
    """
    client = Client(options.state_dir())
    try:
        yield client
    except ServiceError as error:
        if may_be_absent and isinstance(error, NotRunningError):
            raise
        fail(*ending(client, error))


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


def versions(of_service: str) -> str:
    """Return the clause that names the versions of service and command, with the advice if they differ."""
    if of_service == __version__:
        return f"it and this command are of version {__version__}, but of different builds; {RESTART}"
    return f"it runs version {of_service}, this command is of version {__version__}; {RESTART}"
