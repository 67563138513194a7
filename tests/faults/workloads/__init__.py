"""What an agent does while it is killed; by name. Each workload ends by itself once everything has come to an end."""

from __future__ import annotations

from tests.faults.workloads import approval, graph, old, poison, rules
from tests.faults.workloads.life import Workload

_SWEPT = (rules.WORKLOAD, approval.WORKLOAD, graph.WORKLOAD, old.WORKLOAD)
WORKLOADS: dict[str, Workload] = {each.name: each for each in (*_SWEPT, *poison.WORKLOADS)}
#: Those that are killed, and those that kill.
SWEPT, POISONED = (tuple(each.name for each in some) for some in (_SWEPT, poison.WORKLOADS))
