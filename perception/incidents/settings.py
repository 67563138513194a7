"""Settings of incidents: the table `[perception.incidents]`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from perception.stages.classify import Glob
from spar.records.perceived.incidents import Severity

Seconds = Annotated[float, Meta(ge=0, le=31_536_000)]

#: Kinds that take part unless others are named.
KINDS = (
    "alert", "alert.*", "log.*", "host.*", "anomaly", "anomaly.*", "metric", "metric.*", "prometheus", "prometheus.*"
)  # fmt: skip


class IncidentSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[perception.incidents]`: perceptions of these `kinds` and `sensors` belong to incidents.

    `opens_at` is the severity from which one is opened (a line of a log opens one from "error" on). What comes within
    `window` seconds after the last of an open incident may belong to it. One is closed when all that fires in it is
    over, after `quiet` seconds without news (`quiet_firing` while something fires), or by a person; after a restart
    also when readings that were high are not told again for `settle` seconds, and nothing else fires. What comes again
    within `reopen` seconds opens it again. At most `open` are open; `keep` closed ones are kept. Growth is told at
    each count of `tell_at`, and from the last of them on at 100, 300, 1,000, 3,000 and so on. Readings and
    lines of logs that name no host are of `machine`, "" for the name of this one.
    """

    enabled: bool = True
    kinds: Glob = Glob(*KINDS)
    sensors: Glob = Glob("*")
    opens_at: Severity = "warning"
    window: Seconds = 900.0
    quiet: Seconds = 1_800.0
    quiet_firing: Seconds = 86_400.0
    settle: Seconds = 60.0
    reopen: Seconds = 600.0
    open: Annotated[int, Meta(ge=1, le=10_000)] = 200
    keep: Annotated[int, Meta(ge=0, le=100_000)] = 500
    machine: str = ""
    tell_at: Annotated[tuple[Annotated[int, Meta(ge=2)], ...], Meta(min_length=1)] = (3, 10, 30)

    def next_told(self, told: int) -> int:
        """Return the count at which growth is told next, after that it was told at `told`."""
        for count in sorted(self.tell_at):
            if count > told:
                return count
        step = 1
        while 3 * step <= told:
            step *= 10
        return step if step > told else 3 * step
