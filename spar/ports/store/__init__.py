"""Port of a store in full: everything that the core, its interfaces and the actors need of a memory.

An agent works with any object that has `KeepsExperiences`. Each further Protocol is optional and tested with
`spar.ports.any_part.offers`; `DurableStore` contains all of them, and the built-in memory implements it. `spar.testing`
tests the guarantees of a store (`check_store`, `check_journal`, `check_process_death`, `check_retention`).

The guarantees of a store that has a `journal`:

- **One transaction per unit.** All writes of one step of the event loop become durable together or not at all, always
  including the end of a cycle (`Closing`). A killed process loses the newest units only, never one from their middle.
- **Accepted means on disk.** What is awaited (`commit`, `Records.keep`, `TranscriptStore.append`,
  `safe`) is as durable as the store promises when it returns; a write without awaiting is so after `safe`.
- **Fencing.** Only one opener at a time can write. A second one is refused, or it shuts out the first one, which then
  raises `FencedError` and writes nothing more. Each opening has a higher `epoch` than all before it.
- **Order.** Writes reach the disk in order; reads see all earlier writes of this process.
- **Exactness.** A value comes back unchanged (as JSON: tuples are lists) or is refused with an error, and then nothing
  of it is stored. Accepted work and small state are never cut. Only values that nobody waits for (records, results,
  entries) may be cut beyond the store's bounds; the text then says so, and a fault reports it.
- **Nothing needed is deleted.** Retention never deletes waiting items, dead letters, open cycles or open doubts.

No method blocks the event loop; all methods belong to its thread, except those that state otherwise. Any awaited
method may raise `TransientError` while the store cannot be read or written, and `SparError` once it is closed.

basic      experiences, cycles and small state, without a journal
journal    facts of accepted work, cycles, calls in doubt, rows, budgets, and their views
sessions   transcripts, and the records of sessions
care       copies and checks of a file that need not be open
nodes      a store that several processes share, each of which owns some of the sessions
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from spar.ports.store.basic import (
    Exports,
    Flushes,
    InspectsExperiences,
    KeepsCycles,
    KeepsExperiences,
    KeepsState,
    ReadsCycleRecords,
    ReadsCycles,
    Recalls,
    SearchesTranscripts,
    StatesDurability,
    StatesReadOnly,
    TellsFaults,
)
from spar.ports.store.care import (
    Care,
    CareCopy,
    CareFinding,
    CareLine,
    CareReport,
    CopiesFiles,
    HasCare,
    ReadsLeftWork,
    ReadsRuns,
)
from spar.ports.store.journal import InHand, Journal, KeepsJournal, Views
from spar.ports.store.sessions import KeepsSessions, KeepsTranscripts, SessionStore, TranscriptStore
from spar.protocols import Records, Rows

__all__ = [
    "Care",
    "CareCopy",
    "CareFinding",
    "CareLine",
    "CareReport",
    "CopiesFiles",
    "DurableStore",
    "Exports",
    "Flushes",
    "HasCare",
    "InHand",
    "InspectsExperiences",
    "Journal",
    "KeepsCycles",
    "KeepsExperiences",
    "KeepsJournal",
    "KeepsSessions",
    "KeepsState",
    "KeepsTranscripts",
    "ReadsCycleRecords",
    "ReadsCycles",
    "ReadsLeftWork",
    "ReadsRuns",
    "Recalls",
    "SearchesTranscripts",
    "SessionStore",
    "StatesDurability",
    "StatesReadOnly",
    "TellsFaults",
    "TranscriptStore",
    "Views",
]


@runtime_checkable
class DurableStore(
    KeepsExperiences, Recalls, Exports, KeepsCycles, ReadsCycles, Flushes, KeepsState, Rows, Records, TellsFaults,
    StatesDurability, StatesReadOnly, HasCare, ReadsLeftWork, ReadsRuns, KeepsJournal, KeepsTranscripts, KeepsSessions,
    Protocol,
):  # fmt: skip
    """Store with all abilities; an async context manager that may be entered more than once."""

    def snapshot(self) -> Mapping[str, Any]:
        """Return its condition, from any thread; JSON-able. The core reads `queued`, `commit_seconds`, `bytes`,
        `wal_bytes`."""
        ...
