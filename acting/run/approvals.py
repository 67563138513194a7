"""The approvals of one executor: the policy, the queue, and the calls that are parked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import Any, Final

from acting.approvals.fingerprint import Check, Fingerprinter
from acting.approvals.policy import Policy
from acting.approvals.queue import ApprovalQueue
from acting.approvals.taint import Taint
from acting.run.parked import Parked
from spar.clock import Clock
from spar.errors import ConfigError
from spar.protocols import Host
from spar.records.approvals import GRANTABLE

_DEFAULTS: Final[dict[str, Any]] = {
    **{"hold": 0.0, "expires": 900.0, "untrusted": "ask", "max_pending": 10, "grantable": GRANTABLE, "rules": ()}
}


class ApprovalService:
    """Policy, queue, taint and deferred calls of one executor.

    `hold` is the seconds that a call waits for its answer before its cycle goes on without it.
    """

    def __init__(self, settings: Mapping[str, Any], parts: Iterable[Any], check: Check, clock: Clock,
                 tell: Callable[..., None]) -> None:  # fmt: skip
        """Read the settings. Raises: ConfigError that names the key, what was found and what is allowed."""
        for key in settings:
            if key not in _DEFAULTS:
                raise ConfigError(
                    f"no setting {key!r} for approvals; known: {', '.join(_DEFAULTS)}", path=("approval", key)
                )
        values = {**_DEFAULTS, **settings}
        hold, expires, most = values["hold"], values["expires"], values["max_pending"]
        for key, is_fine, expected in (
            ("hold", _is_number(hold) and hold >= 0, "seconds, 0 or more"),
            ("expires", _is_number(expires) and expires > 0, "seconds above 0"),
            ("max_pending", type(most) is int and most >= 1, "a whole number, 1 or more"),
        ):
            if not is_fine:
                raise _wrong(key, values[key], expected)
        try:
            self.policy = Policy(values["untrusted"], values["rules"])
        except ConfigError as error:
            raise ConfigError(str(error), path=("approval", *error.path)) from None
        grantable = values["grantable"]
        if isinstance(grantable, str) or not all(isinstance(name, str) and name for name in grantable):
            raise _wrong("grantable", grantable, "a list of names of programs")
        for part in parts:
            if callable(allow := getattr(part, "allow_grants", None)):
                allow(tuple(grantable))
        self.hold = float(hold)
        self.queue = ApprovalQueue(
            Fingerprinter(check, self.policy.revision, clock), clock, tell, expires=expires, most=most
        )
        self.taint = Taint()
        self.parked = Parked(self.queue, self.taint)

    def attach(self, host: Host, clock: Clock) -> None:
        """Store questions in the agent's memory, and wake its sessions when there are answers."""
        self.queue.attach(host, clock)
        self.parked.attach(host)


def _wrong(key: str, value: Any, expected: str) -> ConfigError:
    return ConfigError(f"approval.{key} is {value!r}, expected {expected}", path=("approval", key))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)
