"""The approvals of one executor: the policy, the queue, and the calls that are parked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct

from acting.approvals.fingerprint import Check, Fingerprinter
from acting.approvals.policy import Policy
from acting.approvals.queue import ApprovalQueue
from acting.approvals.taint import Taint
from acting.run.parked import Parked
from acting.tooling.settings import settings_of
from spar.checks import LONGEST
from spar.clock import Clock
from spar.errors import ConfigError
from spar.protocols import Host
from spar.records.approvals import GRANTABLE

_Program = Annotated[str, Meta(min_length=1)]


class ApprovalSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of an executor's approvals.

    `hold` is the seconds that a call waits for its answer before its cycle goes on without it.
    """

    hold: Annotated[float, Meta(ge=0, le=LONGEST)] = 0.0
    expires: Annotated[float, Meta(gt=0, le=LONGEST)] = 900.0
    untrusted: Any = "ask"
    max_pending: Annotated[int, Meta(ge=1)] = 10
    grantable: Annotated[tuple[_Program, ...], Meta(description="a list of names of programs")] = GRANTABLE
    rules: Any = ()


class ApprovalService:
    """Policy, queue, taint and deferred calls of one executor."""

    def __init__(self, settings: Mapping[str, Any], parts: Iterable[Any], check: Check, clock: Clock,
                 tell: Callable[..., None]) -> None:  # fmt: skip
        """Read the settings. Raises: ConfigError that names the key, what was found and what is allowed."""
        values = settings_of(ApprovalSettings, settings, "approvals", ("approval",))
        try:
            self.policy = Policy(values.untrusted, values.rules)
        except ConfigError as error:
            raise ConfigError(str(error), path=("approval", *error.path)) from None
        for part in parts:
            if callable(allow := getattr(part, "allow_grants", None)):
                allow(values.grantable)
        self.hold = values.hold
        self.queue = ApprovalQueue(
            Fingerprinter(check, self.policy.revision, clock), clock, tell, expires=values.expires,
            most=values.max_pending,
        )  # fmt: skip
        self.taint = Taint()
        self.parked = Parked(self.queue, self.taint)

    def attach(self, host: Host, clock: Clock) -> None:
        """Store questions in the agent's memory, and wake its sessions when there are answers."""
        self.queue.attach(host, clock)
        self.parked.attach(host)
