"""Duties of a store towards data besides work: state, rows, records, budgets, transcripts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from spar import facts
from spar.errors import FencedError, TooLargeError
from spar.protocols import Records
from spar.records.journal import Closing, RowChange, Spend
from spar.records.transcript import Entry
from spar.testing.duties import ODD_TEXTS, Duty, are_same, owed
from spar.types import CycleRecord, utcnow

#: JSON values that stores have changed before.
EXACT: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.0, 2**53 + 1, 2**63 - 1, -(2**63), 0.1, -0.0, 5e-324, 1.7976931348623157e308, "",
    "null", [], {}, [[]], {"": {"": None}}, [1, [2.5, {"a": [None, False]}]], {"ключ": "†\U0001d11e"}, *ODD_TEXTS,
)  # fmt: skip
#: Value that is too large for small state.
_HUGE = "x" * (2 << 20)


class StateDuty(Duty):
    """Small state: stored exactly or refused, and the last saved value counts."""

    async def write(self, store: Any) -> None:
        self.values = {f"{self.mark}{n}{how}": value for n, value in enumerate(EXACT) for how in ("told", "saved")}
        for key, value in self.values.items():
            if key.endswith("told"):
                store.journal.append(facts.ValueSaved(key=key, value=value))
            else:
                await self.value("store.save()", store.save(key, value))
        for n in range(3):  # journal and store in turns: the last value counts
            store.journal.append(facts.ValueSaved(key=f"{self.mark}turn", value={"told": n}))
            await self.value("store.save()", store.save(f"{self.mark}turn", {"saved": n}))
        self.values[f"{self.mark}turn"] = {"saved": 2}
        for number, (value, kind) in enumerate(((_HUGE, TooLargeError), (object(), ValueError))):
            key = f"{self.mark}refused{number}"
            self.values[key] = "former"
            await self.value("store.save()", store.save(key, "former"))
            await self.refuses("store.save() of what cannot be kept", store.save(key, value), kind)
            change = _call(store.journal.append, facts.ValueSaved(key=key, value=value))
            await self.refuses("journal.append() of what cannot be kept", change, kind)

    async def look(self, store: Any) -> None:
        for key, value in self.values.items():
            loaded = await self.value("store.load()", store.load(key))
            owed(
                are_same(loaded, value),
                f"store must load what was saved exactly, saved {value!r:.80}, found {loaded!r:.80}",
            )


class RowsDuty(Duty):
    """Small rows: in order, all rows of one change or none."""

    async def write(self, store: Any) -> None:
        journal, mark = store.journal, self.mark
        self.rows = {str(n): value for n, value in enumerate(EXACT)}
        journal.append(
            facts.RowsChanged(changes=tuple([RowChange(mark, key, value) for key, value in self.rows.items()]))
        )
        journal.append(facts.RowsChanged(changes=(
            RowChange(mark, "order", 1), RowChange(mark, "order", 2), RowChange(mark, "gone", 1),
            RowChange(mark, "gone", is_dropped=True), RowChange(mark, "back", 1),
            RowChange(mark, "back", is_dropped=True), RowChange(mark, "back", 2),
        )))  # fmt: skip
        await self.value("store.change()", store.change((RowChange(mark, "stored", 1),)))
        self.rows |= {"order": 2, "back": 2, "stored": 1}
        await self.value("journal.safe()", journal.safe())
        for value, kind in ((_HUGE, TooLargeError), (object(), ValueError)):
            changes = (RowChange(mark, "half", 1), RowChange(mark, "refused", value))
            change = _call(journal.append, facts.RowsChanged(changes=changes))
            await self.refuses("journal.append() of what cannot be kept", change, kind)

    async def look(self, store: Any) -> None:
        for what, rows in (("journal.views.rows()", store.journal.views.rows), ("store.rows()", store.rows)):
            stored = await self.value(what, rows(self.mark))
            names = sorted(set(stored) ^ set(self.rows))
            owed(not names, f"{what} must return the rows of all changes that were accepted and no other, but: {names}")
            for key, value in self.rows.items():
                owed(
                    are_same(stored[key], value),
                    f"{what} must return values exactly, kept {value!r:.80}, found {stored[key]!r:.80}",
                )


class CountsDuty(Duty):
    """Counts of an agent: the last written counts, and the additions of later cycles."""

    async def write(self, store: Any) -> None:
        journal, agent = store.journal, self.mark
        for number, total in enumerate((None, {"outcomes": {"idle": 7}, "durations": {"cycle": [7, 3.5]}})):
            if total is not None:
                journal.append(facts.TotalsCounted(total=total), agent)
            for cycle in range(3):
                id, besides = f"{agent}{number}{cycle}", {"outcomes": {"idle": 2}, "errors_by_phase": {"plan": 1}}
                journal.append(facts.CycleOpened(session="main", cycle=id), agent)

                record = CycleRecord(id, agent, "main", utcnow(), 0.5, "acted", phases={"plan": 0.25})
                journal.append(
                    facts.CycleWritten(
                        session="main", cycle=id, closing=Closing("acted", record, besides=besides if cycle else None)
                    ),
                    agent,
                )
        await self.value("journal.safe()", journal.safe())

    async def look(self, store: Any) -> None:
        counts = await self.value("journal.views.counts()", store.journal.views.counts(self.mark))
        expected = {"outcomes": {"idle": 11, "acted": 3}, "errors_by_phase": {"plan": 2},
                    "durations": {"cycle": [10, 5.0], "plan": [3, 0.75]}}  # fmt: skip
        for name, numbers in expected.items():
            what = {
                key: list(value) if isinstance(value, tuple) else value for key, value in counts.get(name, {}).items()
            }
            owed(what == numbers, f"journal.views.counts() must add up to {name} {numbers}, found {what!r:.200}")


class RecordsDuty(Duty):
    """Records: changed by compare-and-set, after all earlier changes of the journal."""

    async def write(self, store: Records) -> None:
        kind = self.mark
        owed(await self.value("store.keep()", store.keep(kind, "a", EXACT[-4], expect=0)) == 1, "versions begin at 1")
        owed(await self.value("store.keep()", store.keep(kind, "a", [1], expect=1)) == 2, "versions count up")
        for expect in (0, 1, 3):
            await self.conflicts("store.keep() of another version", store.keep(kind, "a", "lost", expect=expect))
        for id in ("c", "b"):
            await self.value("store.keep()", store.keep(kind, id, {"id": id}))
        owed(await self.value("store.drop()", store.drop(kind, "c")), "store.drop() must say that there was a row")
        owed(not await self.value("store.drop()", store.drop(kind, "c")), "store.drop() must say that there was none")
        both = await asyncio.gather(*(store.keep(kind, "d", n, expect=0) for n in range(2)), return_exceptions=True)
        won = [n for n, version in enumerate(both) if version == 1]
        owed(len(won) == 1, f"of two who create a row exactly one must succeed, found {both!r:.200}")
        self.won = won[0]

    async def look(self, store: Records) -> None:
        rows = [
            (record.id, record.version, record.value)
            for record in await self.value("records", store.records(self.mark))
        ]
        expected = [("a", 2, [1]), ("b", 1, {"id": "b"}), ("d", 1, self.won)]
        owed(rows == expected, f"store.records() must be the rows by id, expected {expected}, found {rows!r:.200}")


class BudgetsDuty(Duty):
    """Budgets: sums of all amounts, by window and quantity."""

    async def write(self, store: Any) -> None:
        windows = [f"hour:{self.mark}", f"day:{self.mark}"]
        for _ in range(100):
            store.journal.append(
                facts.BudgetUsed(spends=tuple([Spend(window, "tokens", 1_000_003) for window in windows]))
            )
        store.journal.append(
            facts.BudgetUsed(
                spends=(
                    Spend(windows[0], "tokens", -3),
                    Spend(windows[0], "calls", 5),
                    Spend(windows[1], "calls", 0),
                )
            )
        )
        self.spent = {
            (windows[0], "tokens"): 100_000_297,
            (windows[1], "tokens"): 100_000_300,
            (windows[0], "calls"): 5,
        }

    async def look(self, store: Any) -> None:
        spent = await self.value("journal.views.spent()", store.journal.views.spent())
        sums = {(total.window, total.quantity): total.amount for total in spent if total.window.endswith(self.mark)}
        sums = {key: amount for key, amount in sums.items() if amount}
        owed(
            sums == self.spent,
            f"journal.views.spent() must be the sums of what was spent, expected {self.spent}, found {sums}",
        )


class TranscriptsDuty(Duty):
    """Transcripts: in order, by one run at a time, read from the last compaction on."""

    async def write(self, store: Any) -> None:
        texts, agent, session = store.transcripts, self.mark, "s"
        self.texts = [*ODD_TEXTS[:5], "last"]
        first = [Entry("user", {"text": text}, at=self.harness.clock.now()) for text in self.texts[:3]]
        await self.value("transcripts.append()", texts.append(agent, session, "one", first))
        await self.value("transcripts.append()", texts.append(agent, "other", "one", [Entry("user", {"text": "o"})]))
        later = [Entry("turn", {"text": text}) for text in self.texts[3:]]
        await self.value("transcripts.append()", texts.append(agent, session, "two", later))
        _, error = await self.harness.outcome(
            "append", texts.append(agent, session, "one", [Entry("end", {"text": "!"})])
        )
        owed(
            isinstance(error, FencedError),
            f"a run whose session was taken over must raise FencedError, found {error!r}",
        )
        entries = [Entry("turn", {"text": "half"}), Entry("turn", {"text": "strange"}, "three")]
        more = texts.append(agent, session, "two", entries)
        await self.refuses("transcripts.append() of another run's entry", more, ValueError)
        tail = await self.value("transcripts.tail()", texts.tail(agent, session, 1))
        owed(len(tail) == 1, "transcripts.tail() must return as many entries as are asked for")
        body = {"summary": "so far", "first_kept": tail[0].seq, "tokens_before": 2, "tokens_after": 1}
        await self.value("transcripts.append()", texts.append(agent, session, "two", [Entry("compaction", body)]))

    async def look(self, store: Any) -> None:
        texts, agent = store.transcripts, self.mark
        entries = await self.value("transcripts.tail()", texts.tail(agent, "s", 100))
        texts_now = [entry.body.get("text", entry.kind) for entry in entries]
        owed(
            texts_now == [*self.texts, "compaction"],
            f"entries must come back exactly and in order, found {texts_now!r:.200}",
        )
        numbers = [entry.seq for entry in entries]
        owed(all(a < b for a, b in pairwise(numbers)), f"seq must grow strictly, found {numbers}")
        before = await self.value("transcripts.tail()", texts.tail(agent, "s", 2, numbers[2]))
        owed([entry.seq for entry in before] == numbers[:2], "transcripts.tail(before=…) must be what came before that")
        read = await self.value("transcripts.read()", texts.read(agent, "s"))
        kinds = [entry.body.get("text", entry.kind) for entry in read]
        owed(kinds == ["compaction", "last"], f"transcripts.read() must begin with the last compaction, found {kinds}")
        held = await self.value("transcripts.sessions()", texts.sessions(agent))
        sessions = [(entry.session, entry.entries) for entry in held]
        owed(sessions == [("s", len(entries)), ("other", 1)],
             f"transcripts.sessions() must be those with entries, the newest first, found {sessions}")  # fmt: skip


async def _call(function: Callable[..., object], *arguments: Any) -> object:
    return function(*arguments)
