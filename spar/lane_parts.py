"""The parts of an agent that its sessions share."""

from __future__ import annotations

from msgspec import Struct

from spar.books import Books
from spar.budgets import Budgets
from spar.core import Core
from spar.deliveries import Deliveries
from spar.health import Health
from spar.holding import Holding
from spar.keeping import Keeping
from spar.recovery import Recovery
from spar.reports import Reports
from spar.requests import Requests
from spar.runs import Runs
from spar.session_hooks import SessionHooks
from spar.setup import Setup
from spar.stats import SessionStats, Stats
from spar.transcripts import Transcripts
from spar.work import Work


class LaneParts(Struct, frozen=True, eq=False):
    """The modules and terms in force, the journal's parts, what people are told, health and statistics."""

    core: Core
    setup: Setup
    requests: Requests
    holding: Holding
    runs: Runs
    budgets: Budgets
    work: Work
    recovery: Recovery
    books: Books
    keeping: Keeping
    transcripts: Transcripts
    deliveries: Deliveries
    session_hooks: SessionHooks
    reports: Reports
    health: Health
    stats: Stats
    session_stats: SessionStats
