"""Answers of a service, which may run another version than the command: what it does not say has a known value.

A status is filled from a table of all that commands read of it. In every other answer a field that is absent ends the
command with a sentence that names the field and both versions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from spar import __version__
from spar.service import exit_codes as exits

#: The advice for an answer of another version.
RESTART: Final = "restart the service to have both of one version: systemctl restart spar, or spar stop and spar run"

#: All that commands read of a status, with the values for a service that does not say it. A list has the value of each
#: entry, a mapping with the key "*" that of each value. None stands for any type, a type for null or a value of it.
STATUS: Final[dict[str, Any]] = {
    "version": "?", "pid": 0, "started_at": "", "config": None, "addresses": {}, "agent": {
        "name": "", "state": "unknown", "failure": "", "loop_interval": None, "senders_waiting": 0, "open_runs": 0,
        "blocked_by": "", "waiting_for_models": 0, "calls": {}, "warnings": [],
        "lanes": [{"session": "", "waiting": 0, "cycle": str, "phase": str, "phase_seconds": float,
                   "waits_for_model": False}],
        "alerts": [{"kind": "", "severity": "", "message": "", "since": "", "session": ""}],
        "approvals": {"pending": 0, "oldest_age_seconds": float},
        "recovery": {"in_doubt": 0, "dead_letters": 0, "in_hand": 0, "to_be_retried": 0},
        "models": [{"model": "", "state": "", "reason": "", "wait": 0.0}],
        "budgets": [{"budget": "", "used": 0, "limit": 0, "ratio": 0.0, "refused": 0, "ends_at": str}],
        "modules": {"*": {"use": ""}, "sense": {}, "act": {}},
        "channels": {"*": {"receiving": {"state": "", "last_error": None}, "sending": {"state": "", "last_error": None},
                           "waiting": 0, "undelivered": 0}},
        "health": {"degraded": False, "steps": [{"at": "", "step": "", "part": "", "reason": ""}]},
        "kept": {"stored": 0, "waiting": 0, "lost": 0},
        "stats": {"total_cycles": 0, "error_rate": 0.0, "outcomes": {"*": 0}, "cycle_mean_seconds": 0.0,
                  "cycle_p99_seconds": 0.0, "errors_by_phase": {"*": 0},
                  "phase_mean_seconds": {"*": 0.0}},
    },
}  # fmt: skip

#: Fields that a service sends only where they were asked for.
ON_REQUEST: Final = ("agent.lanes",)


class UnsaidError(click.ClickException, KeyError):
    """Error: an answer lacks a field that every service of this version sends.

    Args: field: the name of the field; version: returns the version of the service.
    """

    exit_code = exits.UNAVAILABLE

    def __init__(self, field: str, version: Callable[[], str]) -> None:
        super().__init__(f"the service's answer has no {field!r}")
        self._version = version

    def format_message(self) -> str:
        return f"{self.message}: {versions(self._version())}"

    __str__ = click.ClickException.__str__


class ServiceAnswer(dict[str, Any]):
    """JSON object of an answer. Reading a field that it lacks raises UnsaidError."""

    __slots__ = ("version",)
    version: Callable[[], str]

    def __missing__(self, field: str) -> Any:
        raise UnsaidError(field, self.version)


def versions(of_service: str) -> str:
    """Return the clause that names the versions of service and command, with the advice if they differ."""
    if of_service == __version__:
        return f"it and this command are of version {__version__}, but of different builds; {RESTART}"
    return f"it runs version {of_service}, this command is of version {__version__}; {RESTART}"


def filled(answer: Any) -> tuple[dict[str, Any], list[str]]:
    """Return a status with all fields of `STATUS`, and the names of those that the service did not say in their form.

    Fields that no command reads stay. `answer` is not changed.
    """
    absent: dict[str, None] = {}
    status: dict[str, Any] = _filled(_of_one_agent(answer), STATUS, "", absent)
    return status, list(absent)


def agent_of(answer: Any) -> dict[str, Any]:
    """Return the agent of a status, with all fields of `STATUS`."""
    return dict(filled(answer)[0]["agent"])


def _of_one_agent(answer: Any) -> Any:
    """Return a status with its agent, which older services have in a list of one."""
    match answer:
        case {"agents": [agent, *_], **others} if "agent" not in answer:
            return {**others, "agent": agent}
    return answer


def unsaid_line(absent: list[str], version: str) -> str:
    """Return the sentence about the fields that a status does not say."""
    return f"this service does not say {', '.join(absent)}: {versions(version)}"


def _filled(value: Any, default: Any, name: str, absent: dict[str, None]) -> Any:
    """Return a value with the form of `default`: what it lacks is added, what has another type is replaced, noted."""
    expected = default if isinstance(default, type) else type(default)
    if default is None or (expected is default and value is None):
        return value
    if not isinstance(value, int | float if expected in (int, float, bool) else expected):
        if name not in ON_REQUEST:
            absent[name] = None
        value = None if expected is default else expected() if isinstance(default, dict | list) else default
    if isinstance(default, dict):
        defaults = {**dict.fromkeys(value, default.get("*")), **default}
        defaults.pop("*", None)
        return {**value, **{field: _field(value, field, inner, name, absent) for field, inner in defaults.items()}}
    if isinstance(default, list):
        return [_filled(item, default[0], name, absent) if default else item for item in value]
    return value


def _field(value: dict[str, Any], field: str, default: Any, name: str, absent: dict[str, None]) -> Any:
    name = f"{name}.{field}" if name else field
    if field not in value and (default is None or isinstance(default, type)):
        absent[name] = None
    return _filled(dict.get(value, field), default, name, absent)
