"""Port of a store in full: everything that the core, its interfaces and the actors need of a memory.

An agent works with any object that has `store`. Each further member is optional and asked for by
`spar.ports.any_part.has`; `DurableStore` has all of them, and the built-in memory implements it. `spar.testing`
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

basic      the store in full, and its optional members
journal    facts of accepted work, cycles, calls in doubt, rows, budgets, and their views
sessions   transcripts, and the records of sessions
care       copies and checks of a file that need not be open
nodes      a store that several processes share, each of which owns some of the sessions
"""

from __future__ import annotations

from spar.ports.store.basic import DurableStore, InspectsExperiences, OptionalStore, SearchesTranscripts
from spar.ports.store.care import Care, CareCopy, CareFinding, CareLine, CareReport
from spar.ports.store.journal import InHand, Journal, Views
from spar.ports.store.sessions import SessionStore, TranscriptStore

__all__ = [
    "Care",
    "CareCopy",
    "CareFinding",
    "CareLine",
    "CareReport",
    "DurableStore",
    "InHand",
    "InspectsExperiences",
    "Journal",
    "OptionalStore",
    "SearchesTranscripts",
    "SessionStore",
    "TranscriptStore",
    "Views",
]
