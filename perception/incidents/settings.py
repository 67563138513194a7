"""Settings of incidents: the table `[perception.incidents]`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from spar.data.patterns import Glob
from spar.records.perceived import Severity

Seconds = Annotated[float, Meta(ge=0, le=31_536_000)]

#: Default of the kinds that belong to incidents.
KINDS = (
    "alert", "alert.*", "log.*", "host.*", "anomaly", "anomaly.*", "metric", "metric.*", "prometheus", "prometheus.*"
)  # fmt: skip


class IncidentSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings `[perception.incidents]`: perceptions of these `kinds` and `sensors` belong to incidents.

    `opens_at` is the severity from which an incident is opened (a log line opens one from "error" on). A perception
    within `window` seconds after the last one of an open incident may belong to it. An incident is closed when
    everything that fired in it is over, after `quiet` seconds without news (`quiet_firing` while something fires), or
    by a person. After a restart it is also closed when its high readings are not reported again within `settle`
    seconds and nothing else fires. A repetition within `reopen` seconds reopens it. At most `open` incidents are open;
    `keep` closed ones are stored. Growth is reported at each count of `tell_at`, and after the last of them at 100,
    300, 1,000, 3,000 and so on. Readings and log lines without a host belong to `machine`; "" means the name of this
    machine.
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

    def next_growth(self, reported: int) -> int:
        """Return the count at which growth is reported next, after a report at `reported`."""
        for count in sorted(self.tell_at):
            if count > reported:
                return count
        step = 1
        while 3 * step <= reported:
            step *= 10
        return step if step > reported else 3 * step
