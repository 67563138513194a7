"""Contracts of a store that need several processes or a long time: the data after `kill -9`, and the forgetting.

`spar.testing.contracts` describes the use of checks.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import pickle
import sys
from collections.abc import Callable
from typing import Any

from spar import facts
from spar.clock import Clock
from spar.ids import new_id
from spar.records.journal import Closing, Doubt, Item, RowChange, Spend, Unfinished
from spar.records.transcript import Entry
from spar.testing.duties import Harness, owed
from spar.testing.journal_work import accepted
from spar.types import Action, Call, CycleRecord, Experience, Perception, trait

Factory = Callable[[], Any]

#: Bounds of the units that the killed process writes, in all and in one transaction.
MOST_UNITS, AT_ONCE = 5_000, 5
_CHILD = "from spar.testing.process_contract import run_child; run_child()"


async def check_process_death(
    make_store: Factory, *, kills: int = 3, clock: Clock | None = None, limit: float = 30.0, grace: float = 0.5
) -> None:
    """Check that a store writes each unit in one transaction: kill a process that writes to it, and check the data.

    Each unit is a cycle with a record, an experience, an entry, rows, an amount of a budget, a value and a piece of
    accepted work. After each kill all units up to one must be stored completely, including the acknowledged ones, and
    nothing of later ones. `Journal.hand` must know the work that a killed process had begun.

    Args:
        make_store: opens the same data each time. Another process calls it as well: a function or class of a module
            that can be imported there, or `functools.partial` of one, with arguments that can be pickled.
        kills: how many processes are killed, the later ones after more units.
        limit: seconds for each process and each check.
    """
    harness = Harness("store", clock, limit, grace)
    for number in range(kills):
        mark = f"w{new_id()}"
        acknowledged = await _kill_one(make_store, mark, 1 + number * 4, limit)
        async with harness.opened(make_store) as store:
            await harness.value("looking at what is there after a kill", _look(store, mark, acknowledged))
    mark = f"w{new_id()}"
    await _kill_one(make_store, mark, 1, limit, is_holding=True)
    async with harness.opened(make_store) as store:
        await harness.value("looking at what was in hand at a kill", _look_in_hand(store, mark))
    async with harness.opened(make_store) as store:
        owed(not store.journal.hand.left, "after an end in good order nothing must have been in hand")
    await harness.is_clean()


async def _kill_one(
    make_store: Factory, mark: str, after: int, limit: float, *, is_holding: bool = False
) -> tuple[int, list[str]]:
    """Let a process write units until so many acknowledgements have come, and kill it.

    Returns: the last acknowledged unit, and the acknowledged accepted work.
    """
    try:
        pickled = base64.b64encode(pickle.dumps(make_store)).decode()
    except Exception as error:
        raise AssertionError(f"make_store must be one that another process can call: {error}") from error
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _CHILD, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    last, accepted = 0, []
    try:
        child.stdin.write(json.dumps({"store": pickled, "mark": mark, "is_holding": is_holding}).encode() + b"\n")
        async with asyncio.timeout(limit):
            while after:
                line = await child.stdout.readline()
                owed(line, "a process that writes to the store must not end by itself; see what it wrote to stderr")
                message = json.loads(line)
                if "safe" in message:
                    last, after = message["safe"], after - 1
                else:
                    accepted.append(message["accepted"])
    finally:
        if child.returncode is None:
            child.kill()
        remaining_output, _ = await child.communicate()
    for line in remaining_output.splitlines():  # complete lines from before its death count
        if line.endswith(b"}"):
            message = json.loads(line)
            last = message.get("safe", last)
            accepted += [message["accepted"]] if "accepted" in message else []
    return last, accepted


async def _look(store: Any, mark: str, acknowledged: tuple[int, list[str]]) -> None:
    safe, accepted = acknowledged
    journal = store.journal
    rows = await journal.views.rows(mark)
    last = await store.load(mark) or 0
    owed(last >= safe, f"what safe() has acknowledged must be there after a kill: {safe} units, found {last}")
    whole = [str(n) for n in range(1, last + 1)]
    cycles = await store.cycles(limit=MOST_UNITS, session=mark)
    entries = await store.transcripts.tail(mark, mark, MOST_UNITS)
    spent = {row.quantity: row.amount for row in await journal.views.spent() if row.window == f"hour:{mark}"}
    recalled = await store.recall("", MOST_UNITS, session=mark)
    for what, names in (
        ("rows", sorted(rows, key=int)),
        ("records of cycles", sorted((row["cycle_id"].removeprefix(mark) for row in cycles), key=int)),
        ("entries of the transcript", [row.body["text"] for row in entries]),
        ("experiences", sorted((row.origin.removeprefix(mark) for row in recalled), key=int)),
    ):
        wrong = sorted(set(names) ^ set(whole), key=int) or ("their order" if names != whole else "")
        owed(not wrong, f"after a kill a unit is there whole or not at all: of {last} units {what} differ in {wrong}")
    owed(spent.get("calls", 0) == last, f"after a kill budgets must hold each unit once: {last}, found {spent}")
    waiting = {item.id for item in await journal.views.items(mark)}
    ended = {work_id for work_id in accepted if int(work_id.removeprefix(f"{mark}i")) <= last}
    owed(not waiting & ended, "work whose unit is there must have ended with it")
    lost = set(accepted) - ended - waiting
    owed(not lost, f"accepted work must be there after a kill, but these are lost: {sorted(lost)}")
    open_ones = {row.cycle_id for row in await journal.views.unfinished(mark)}
    closed = {f"{mark}{n}" for n in whole}
    owed(not open_ones & closed, "a cycle that has ended must not be open after a kill")


async def _look_in_hand(store: Any, mark: str) -> None:
    """Check that work which was begun right before a kill is known, and no longer once `forget` was called."""
    journal, polled = store.journal, _in_hand(mark)
    [item] = await journal.views.items(mark)
    owed(item.attempts == 0, "accepted work must be kept as it was until somebody has counted the attempt")
    expected = {item.id, trait(polled)}
    left = journal.hand.left
    owed(expected <= left, f"what was in hand at a kill must be known, expected {expected}, found {sorted(left)}")
    owed(journal.hand.left_by, "the process that had it in hand must be known by a number")
    journal.hand.forget()


def run_child() -> None:
    """Write to the store that standard input names, until this process is killed."""
    task = json.loads(sys.stdin.readline())
    write = _hold if task["is_holding"] else _write_units
    asyncio.run(write(pickle.loads(base64.b64decode(task["store"])), task["mark"]))


async def _hold(make_store: Factory, mark: str) -> None:
    """Accept work and take it and a perception into a cycle, and wait to be killed before any of that is written."""
    async with make_store() as store:
        store.journal.hand.forget()
        item = Item(f"{mark}i", Perception("accepted", id=f"{mark}i", session=mark), session=mark)
        await accepted(store.journal, item, mark)
        perceptions = (item.perception, _in_hand(mark))
        opened = facts.CycleOpened(session="main", cycle=f"{mark}cycle", perceptions=perceptions, items=(item.id,),
                                   cursors={})  # fmt: skip
        store.journal.append(opened, mark)

        _say(safe=1)
        sys.stdin.read()  # block the event loop


def _in_hand(mark: str) -> Perception:
    return Perception("polled", source="contract", key=mark, session=mark)


async def _write_units(make_store: Factory, mark: str) -> None:
    async with make_store() as store:
        journal = store.journal
        for n in range(1, MOST_UNITS):
            item = Item(f"{mark}i{n}", Perception(f"{n}", id=f"{mark}i{n}", session=mark), session=mark)
            if n % AT_ONCE == 1:
                await accepted(journal, item, mark)
                _say(accepted=item.id)
            else:
                journal.append(facts.WorkChanged(session="main", item=item), mark)
            _unit(journal, mark, n, item)
            if n % AT_ONCE == 0:
                await journal.safe()
                _say(safe=n)
            elif n % AT_ONCE == 2:
                await asyncio.sleep(0.003)  # give the store time to write the units so far
        raise AssertionError("nobody killed this process")


def _unit(journal: Any, mark: str, n: int, item: Item) -> None:
    """Write everything of one cycle, in one step of the event loop."""
    cycle, call, perceptions = f"{mark}{n}", Call("tool", id=f"c{n}"), (item.perception,)
    opened = facts.CycleOpened(session="main", cycle=cycle, perceptions=perceptions, items=(item.id,),
                               cursors={mark: n})  # fmt: skip
    journal.append(opened, mark)
    journal.append(facts.Planned(session="main", cycle=cycle, action=Action([call])))
    journal.append(facts.BudgetUsed(spends=(Spend(f"hour:{mark}", "calls", 1),)))
    record = CycleRecord(cycle, mark, mark, item.at, 0.0, "acted", perceptions)
    learnt = Experience(f"unit {n}", session=mark, origin=cycle)
    journal.append(facts.CycleWritten(session="main", cycle=cycle, closing=Closing(
        "acted", record, (learnt,), run_id=mark, done=(item.id,), session=mark,
        entries=(Entry("user", {"text": str(n)}),), changes=(RowChange(mark, str(n), n),),
    )), mark)  # fmt: skip


def _say(**fields: Any) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


# -- retention


async def check_retention(
    make_store: Factory, *, keeps: int, clock: Clock | None = None, limit: float = 30.0, grace: float = 0.5
) -> None:
    """Check what a store with small bounds must never forget, and what it forgets first.

    Args:
        make_store: makes an empty store that keeps `keeps` cycles, experiences, entries and facts, whatever their age.
        keeps: this number; at least 5.
        limit: seconds until the store has forgotten what exceeds its bounds, by itself.
    """
    harness = Harness("store", clock, 30.0, grace)
    mark, number = f"w{new_id()}", keeps * 3
    async with harness.opened(make_store) as store:
        journal = store.journal
        journal.claim(mark, mark)
        waits, dead = (Item(new_id(), Perception(text)) for text in ("waits", "dead"))
        for item in (waits, dead):
            await accepted(journal, item, mark)
        journal.append(facts.PutAside(session="main", item=dead, reason="enough"), mark)
        cut, call = Unfinished(new_id(), "main"), Call("tool", id=new_id())
        journal.append(facts.CycleOpened.of(cut), mark)

        journal.append(facts.Planned(session="main", cycle=cut.cycle_id, action=Action([call])))
        begin = facts.AttemptStarted(session="main", cycle=cut.cycle_id, call=call.id, attempt=1, effect="once")
        journal.append(begin)
        doubt = Doubt(f"{cut.cycle_id}/{call.id}", call, cut.cycle_id)
        journal.append(facts.CallDoubted(session="main", doubt=doubt), mark)
        for n in range(1, number + 1):
            _unit(journal, mark, n, Item(f"{mark}i{n}", Perception(f"{n}", id=f"{mark}i{n}")))
            await harness.value("journal.safe()", journal.safe())
        newest = [f"{mark}{n}" for n in range(number, number - keeps, -1)]

        async def stored_ids() -> dict[str, list[str]]:
            return {
                "cycles": [row["cycle_id"] for row in await store.cycles(limit=number, session=mark)],
                "experiences": [row.origin for row in await store.recall("", number, session=mark)],
                "entries": [f"{mark}{row.body['text']}" for row in await store.transcripts.tail(mark, mark, number)],
            }

        until = harness.clock.monotonic() + limit
        left = await stored_ids()
        while late := {what: len(ids) for what, ids in left.items() if len(ids) > keeps}:
            owed(harness.clock.monotonic() < until, f"a store must give up what is too much in time, but keeps {late}")
            await harness.clock.sleep(0.1)
            left = await stored_ids()
        for what, ids in left.items():
            lost = sorted(set(newest) ^ set(ids))
            owed(not lost, f"of {what} the oldest must go first and no more than must, but these differ: {lost}")
        items = [row.id for row in await journal.views.items(mark)]
        owed(items == [waits.id], f"work that waits must never go, found {items}")
        owed([row.id for row in await journal.views.dead_letters(mark)] == [dead.id], "a dead letter must never go")
        owed([row.id for row in await journal.views.doubts(mark)] == [doubt.id], "an open doubt must never go")
        going = await journal.views.unfinished(mark)
        known = [(row.cycle_id, [end.status for end in row.known]) for row in going]
        is_known = known == [(cut.cycle_id, ["in_doubt"])]
        owed(is_known, f"an open cycle must never go, nor what is known of its calls, found {going!r:.200}")
    await harness.is_clean()
