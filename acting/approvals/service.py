"""What one executor has for approvals when it is configured: the policy, the desk, and what is parked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Final

from acting.approvals.deferred import Parked
from acting.approvals.fingerprint import Binder
from acting.approvals.policy import Policy
from acting.approvals.queue import Desk
from acting.approvals.taint import Taint
from acting.tooling.registry import Catalog
from spar.clock import Clock
from spar.errors import ConfigError
from spar.protocols import Host
from spar.records.approvals import GRANTABLE

_DEFAULTS: Final[dict[str, Any]] = {
    **{"hold": 0.0, "expires": 900.0, "untrusted": "ask", "max_pending": 10, "grantable": GRANTABLE, "rules": ()}
}


class Office:
    """See the module. `hold`: seconds that a call waits for its answer before its cycle goes on without it."""

    def __init__(self, settings: Mapping[str, Any], catalog: Catalog, clock: Clock, tell: Callable[..., None]) -> None:
        """Raises: ConfigError that names the key, what was found and what is allowed."""
        for key in settings:
            if key not in _DEFAULTS:
                raise ConfigError(
                    f"no setting {key!r} for approvals; known: {', '.join(_DEFAULTS)}", path=("approval", key)
                )
        given = {**_DEFAULTS, **settings}
        hold, expires, most = given["hold"], given["expires"], given["max_pending"]
        if not _is_number(hold) or hold < 0:
            raise _wrong("hold", hold, "seconds, 0 or more")
        if not _is_number(expires) or expires <= 0:
            raise _wrong("expires", expires, "seconds above 0")
        if type(most) is not int or most < 1:
            raise _wrong("max_pending", most, "a whole number, 1 or more")
        try:
            self.policy = Policy(given["untrusted"], given["rules"])
        except ConfigError as error:
            raise ConfigError(str(error), path=("approval", *error.path)) from None
        grantable = given["grantable"]
        if isinstance(grantable, str) or not all(isinstance(name, str) and name for name in grantable):
            raise _wrong("grantable", grantable, "a list of names of programs")
        for part in catalog.parts:
            if callable(allow := getattr(part, "allow_grants", None)):
                allow(tuple(grantable))
        self.hold = float(hold)
        self.desk = Desk(Binder(catalog, self.policy.revision, clock), clock, tell, expires=expires, most=most)
        self.taint = Taint()
        self.parked = Parked(self.desk, self.taint)

    def attach(self, host: Host, clock: Clock) -> None:
        """Keep what is asked in the agent's memory, and wake its sessions when there are answers."""
        self.desk.attach(host, clock)
        self.parked.attach(host)

    async def open(self) -> None:
        """Take up what an earlier process left behind. Raises: TransientError when the store cannot be read now."""
        await self.desk.open()
        await self.parked.open()

    async def take_over(self) -> None:
        """Take up what the executor before this one has left. Raises: TransientError when it cannot be read now."""
        await self.parked.take_over()

    async def close(self) -> None:
        await self.desk.close()


def _wrong(key: str, found: Any, expected: str) -> ConfigError:
    return ConfigError(f"approval.{key} is {found!r}, expected {expected}", path=("approval", key))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)
