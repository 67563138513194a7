"""KEEP: the agent's memory, in one SQLite file.

    from memory import Memory

    async with Memory.open("sqlite:///memory.db") as memory:
        await memory.store(Experience("disk full on web-1", action="rotate logs", success=True))
        await memory.recall("disk full")

    store        the face: one file, opened, tended and closed
    retention    deletes by age, number and size, the oldest first
    pieces       texts and objects that many cycles share, stored once
    transcripts  transcripts, which are append-only: their statements, and the store that runs these
    sessions     sessions: their statements, and the store that runs these
    counts       adds up the counts of each agent from the ends of its cycles
    own_rows     small rows by owner and key
    audit        the audit log: who changed what, a chain of entries
    events       the events of the journal, which are only ever added
    inserts      conditions of queries; inserts many rows with few statements
    codec        encodes any value as ASCII JSON, and back

    stores/       what may be asked of it, kind by kind
    care/         opening, copies, checks, repair
    cycle_log/    the cycles as rows: list by summary, read in full
    journal/      the journal in the database
    experiences/  experiences: rows, search, exchange
    engine/       the writer's thread, the readers, the port of the database
    postgres/     the same in a database of PostgreSQL
    sqlite/       connections, transactions, the file, the schema

Importing this package opens nothing and loads no database driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spar.lazy import lazy

if TYPE_CHECKING:
    from memory.store import Memory as Memory

__all__, __getattr__ = lazy(__name__, {"memory.store": "Memory"})
