"""Memory as its users meet it: store, recall, forget, the tape, state, export and import."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from spar import facts
from spar.clock import SystemClock
from spar.errors import ConfigError, ContractError, SparError
from spar.protocols import Home, Host
from spar.testing import VirtualClock, check_store
from spar.testing.clock import START
from spar.types import (
    Action,
    ActionResult,
    Call,
    CallResult,
    CycleRecord,
    Experience,
    Fault,
    Perception,
    Reflection,
    replace,
)
from tests.effort import Effort
from tests.forced import forced

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SURROGATE = "\ud800"
MADE: Any = Experience  # without its types: as somebody's code may make it


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    async with Memory.open(at(tmp_path)) as opened:
        yield opened


def at(path: Path) -> str:
    return f"sqlite:///{path}/memory.db"


def modes_in(path: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.iterdir()}


# -- experiences


async def test_what_was_stored_is_recalled_at_once_and_equal(memory: Memory) -> None:
    experience = Experience(
        f"disk full on web-1 {SURROGATE}\0",
        action="rotate logs",
        outcome="4 GB free",
        success=True,
        task="free space",
        cause="no rotation",
        lesson="rotate daily †",
        session="web-1",
        cost=0.25,
        trust="trusted",
        origin="c1",
    )

    await memory.store(experience)

    assert await memory.recall("disk") == [experience]


async def test_an_empty_query_recalls_the_most_recent(memory: Memory) -> None:
    for day in (2, 5, 1, 4, 3):
        await memory.store(Experience(f"day {day}", at=NOW + timedelta(days=day)))

    assert [found.situation for found in await memory.recall("", 3)] == ["day 5", "day 4", "day 3"]
    assert await memory.recall("", 0) == []


async def test_the_best_match_comes_first_and_words_are_found_in_any_form(memory: Memory) -> None:
    await memory.store(Experience("network slow", action="restarting services", at=NOW))
    await memory.store(Experience("disk full on web-1", action="rotate logs", at=NOW))
    await memory.store(Experience("disk slow", action="restart", at=NOW))

    assert (await memory.recall("DISKS full"))[0].situation == "disk full on web-1"
    assert {found.situation for found in await memory.recall("restarted")} == {"network slow", "disk slow"}


async def test_accents_and_scripts_without_spaces_are_found(memory: Memory) -> None:
    await memory.store(Experience("Überlauf in München"))
    await memory.store(Experience("磁盘空间不足"))

    assert (await memory.recall("uberlauf"))[0].situation == "Überlauf in München"
    assert (await memory.recall("空间"))[0].situation == "磁盘空间不足"


NASTY = [
    '"',
    "'",
    '"disk',
    "disk*",
    "disk OR",
    "AND",
    "NOT disk",
    "NEAR(disk, 5)",
    "situation:disk",
    "-disk",
    "^disk",
    "(disk",
    "{disk}",
    "disk\0full",
    f"disk {SURROGATE}",
    "'; DROP TABLE experience; --",
    "†state.disk || †x",
    "disk " * 10_000,
    "d" * 1_000_000,
    "²½ℵ_—…",
    "_",
    "%s {0} \\",
    "\n\t\r\x1b",
    "".join(map(chr, range(0x20, 0x2FF))),
]


async def test_any_text_is_a_legal_query_and_a_legal_situation(memory: Memory) -> None:
    await memory.store(Experience("disk full"))
    for query in NASTY:
        await memory.store(Experience(query, task=query, session=query, id=query))

        chosen: list[dict[str, Any]] = [{}, {"session": query}, {"task": query}]
        for filters in chosen:
            assert len(await memory.recall(query, **filters)) in (0, 1, 2), query[:99]
        assert (await memory.recall("", session=query))[0].session[:1000] == query[:1000]
        assert await memory.forget(query) == 1, query[:99]


async def test_forgetting_takes_what_fits_and_its_words_and_never_everything(memory: Memory) -> None:
    for number in range(6):
        await memory.store(
            Experience(f"disk {number}", id=f"e{number}", session=f"s{number % 2}", at=NOW + timedelta(days=number))
        )

    assert await memory.forget("e0") == 1
    assert await memory.forget("e0") == 0
    assert await memory.forget(session="s1", before=NOW + timedelta(days=4)) == 2
    assert {found.id for found in await memory.recall("disk", 10)} == {"e2", "e4", "e5"}
    with pytest.raises(ValueError, match="needs an id or a filter"):
        await memory.forget()


async def test_what_is_no_experience_or_no_cycle_is_refused_at_the_door(memory: Memory) -> None:
    for junk in ("text", None, MADE(5), MADE("x", at="now"), MADE("x", trust="sure"), MADE("x", cost="1")):
        with pytest.raises(ContractError, match=r"Experience|experience\."):
            await memory.store(junk)
    with pytest.raises(ContractError, match="CycleRecord"):
        await memory.record("cycle")  # type: ignore[arg-type]


async def test_three_thousand_are_stored_in_few_groups_and_in_a_few_steps_each(tmp_path: Path) -> None:
    async def store(number: int) -> None:
        await memory.store(Experience(f"disk full on web-{number}", action="rotate logs", success=True))

    async with Memory.open(at(tmp_path)) as memory:
        for number in range(2_800):
            await store(number)
        with Effort() as counted:
            for number in range(2_800, 3_000):
                await store(number)
        await memory.flush()

        snapshot = memory.snapshot()
        assert counted.steps < 700 * 200, "however many are stored already"
        assert snapshot["groups"] < 150
        assert snapshot["queued"] == 0
        assert snapshot["bytes"] + snapshot["wal_bytes"] > 300_000
        assert (await memory.counts())["experiences"] == 3_000


# -- the tape


def cycle(number: int = 1, **changes: Any) -> CycleRecord:
    perception = Perception(f"disk is full †{SURROGATE}", key="disk")
    action = Action(
        (Call("rotate", {"unit": "web"}, output_path="†state.a"),), goal="free space", perceptions=(perception,)
    )
    result = ActionResult(action, "partial", (CallResult(action.calls[0], "failed", fault=Fault("io", "no")),))
    reflection = Reflection(result, 0.5, experiences=(Experience("x"),))
    record = CycleRecord(
        f"c{number:03}", "main", "main", NOW + timedelta(minutes=number), 0.5, "acted", (perception,), action, result
    )
    return replace(record, reflection=reflection, phases={"sense": 0.1}, faults=(Fault("error", "x"),), **changes)


async def test_a_cycle_is_replaced_as_it_grows_and_reads_back_whole_with_its_past(memory: Memory) -> None:
    record = cycle()

    await memory.record(replace(record, reflection=None, outcome="failed"))
    await memory.record(record)
    back = await memory.cycle("c001")

    assert back == record
    assert back.reflection.result is back.result
    assert [line["outcome"] for line in await memory.cycles()] == ["acted"]


async def test_cycles_are_listed_newest_first_page_by_page(memory: Memory) -> None:
    for number in range(1, 8):
        await memory.record(cycle(number, outcome="failed" if number % 3 == 0 else "acted", session=f"s{number % 2}"))

    first = await memory.cycles(3)
    second = await memory.cycles(3, before=first[-1]["cycle_id"])
    earlier = await memory.cycles(before=NOW + timedelta(minutes=3))

    assert [line["cycle_id"] for line in (*first, *second)] == ["c007", "c006", "c005", "c004", "c003", "c002"]
    assert [line["cycle_id"] for line in earlier] == ["c002", "c001"]
    assert [line["cycle_id"] for line in await memory.cycles(outcome="failed")] == ["c006", "c003"]
    assert [line["cycle_id"] for line in await memory.cycles(session="s0", outcome="failed")] == ["c006"]
    assert first[0]["started_at"] == NOW + timedelta(minutes=7)
    assert (first[0]["goal"], first[0]["calls"], first[0]["failed_calls"]) == (
        "free space",
        {"ok": 0, "failed": 1, "skipped": 0},
        1,
    )
    assert first[0]["faults"] == ["x"]


async def test_a_cycle_is_found_by_a_unique_beginning_of_its_id(memory: Memory) -> None:
    for number in (11, 12, 21):
        await memory.record(cycle(number))

    found = await memory.cycle("c02")

    assert found.cycle_id == "c021"
    assert await memory.cycle("c9") is None
    assert await memory.cycle("") is None
    with pytest.raises(LookupError, match="several cycles begin with 'c01': c011, c012"):
        await memory.cycle("c01")


async def test_a_part_that_cannot_be_read_is_left_out_and_said_so(memory: Memory) -> None:
    await memory.record(replace(cycle(), action=forced(Action(), goal=5)))

    back = await memory.cycle("c001")

    assert back.action is None
    assert back.perceptions[0].key == "disk"
    assert any(fault.kind == "unreadable" and "action" in fault.message for fault in back.faults)


async def test_a_huge_cycle_is_cut_and_says_so(memory: Memory) -> None:
    await memory.record(replace(cycle(), perceptions=tuple(Perception("x" * 100_000) for _ in range(40))))

    back = await memory.cycle("c001")

    assert any(fault.kind == "truncated" for fault in back.faults)
    assert back.action.goal == "free space"


# -- small state


async def test_what_was_saved_last_is_loaded_whichever_way_it_came(memory: Memory) -> None:
    """A sensor saves its cursor by itself, and with the cycle that takes its perceptions."""
    await memory.save("cursor", 1)
    memory.journal.append(facts.ValueSaved(key="cursor", value=2))
    assert await memory.load("cursor") == 2

    await memory.save("cursor", 3)
    assert await memory.load("cursor") == 3
    await memory.flush()
    assert await memory.load("cursor") == 3


# -- opening and closing


async def test_everything_is_there_after_closing_and_opening_again(tmp_path: Path) -> None:
    memory = Memory(at(tmp_path))
    async with memory:
        await memory.store(Experience("disk", id="e1"))
        await memory.record(cycle())
        await memory.save("k", [1])
        await memory.flush()
        assert set(modes_in(tmp_path).values()) == {0o600}, "for its owner alone"

    assert sorted(modes_in(tmp_path)) == ["memory.db", "memory.db.hand", "memory.db.lock"]
    async with memory:
        assert [found.id for found in await memory.recall("disk")] == ["e1"]
        assert await memory.cycle("c001") is not None
        assert await memory.load("k") == [1]


async def test_closing_twice_is_fine_and_using_it_afterwards_is_refused(tmp_path: Path) -> None:
    async with Memory.open(at(tmp_path)) as memory:
        await memory.close()
        await memory.close()
        for use in (memory.store(Experience("x")), memory.recall("x"), memory.save("k", 1), memory.flush()):
            with pytest.raises(SparError, match="not open"):
                await use
    assert memory.snapshot()["is_open"] is False


async def test_a_relative_url_starts_at_the_home_s_state_and_an_absolute_one_does_not(tmp_path: Path) -> None:
    home = Home(config="/nowhere", workspace="/nowhere", state=str(tmp_path / "state"))

    async with Memory("sqlite:///sub/m.db", home=home) as memory:
        assert memory.path == str(tmp_path / "state/sub/m.db")
    assert Memory(f"sqlite:///{tmp_path}/m.db", home=home).path == str(tmp_path / "m.db")


@pytest.mark.parametrize(
    "url", ["", "memory.db", "postgres://x", "sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:///m.db?mode=ro"]
)
def test_a_url_of_another_form_is_refused_with_those_that_are_known(url: str) -> None:
    with pytest.raises(ConfigError, match=r"memory\.url cannot be .*known: 'sqlite:///relative"):
        Memory(url)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"keep_days": 0}, "keep_days"),
        ({"keep_bytes": -1}, "keep_bytes"),
        ({"keep_cycles": float("nan")}, "keep_cycles"),
        ({"durability": "some"}, "durability"),
    ],
)
def test_a_bad_option_is_refused_at_construction_with_its_name(options: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError, match=name) as caught:
        Memory(**options)
    assert caught.value.path == (name,)


async def test_a_file_that_is_no_database_is_refused_and_left_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    path.write_text("this is a letter to my mother, not a database at all. " * 100)
    before = path.read_bytes()

    for read_only in (False, True):
        with pytest.raises(ConfigError, match=r"memory\.db' is not a database; .*move it away"):
            async with Memory.open(at(tmp_path), read_only=read_only):
                pass
    assert path.read_bytes() == before


async def test_a_folder_that_cannot_be_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ConfigError, match=r"file/sub/memory\.db' cannot be opened: Not a directory"):
        async with Memory.open(f"sqlite:///{tmp_path}/file/sub/memory.db"):
            pass
    with pytest.raises(ConfigError, match="cannot be opened"):
        async with Memory.open("sqlite:////proc/memory.db"):
            pass


async def test_the_size_that_was_configured_is_kept(tmp_path: Path) -> None:
    async with Memory.open(at(tmp_path), keep_cycles=5, keep_experiences=7) as memory:
        for number in range(30):
            await memory.record(cycle(number))
            await memory.store(Experience(f"x {number}"))

        for _ in range(2_000):
            if await memory.counts() == {"experiences": 7, "cycles": 5, "state": 0}:
                break
            await asyncio.sleep(0.01)
        else:
            pytest.fail(f"never trimmed: {await memory.counts()}")
        assert [line["cycle_id"] for line in await memory.cycles(1)] == ["c029"]


# -- the house's own promises


@pytest.mark.parametrize("place", ["file", "in memory"])
async def test_it_keeps_the_contract_of_a_store(place: str, tmp_path: Path) -> None:
    is_file = place == "file"
    await check_store(lambda: Memory(at(tmp_path) if is_file else "sqlite://:memory:"), durable=is_file)


async def test_it_lives_by_the_agent_s_clock_and_virtual_time_does_not_overtake_the_disk(tmp_path: Path) -> None:
    clock = VirtualClock()
    memory = Memory(at(tmp_path), keep_days=1)
    memory.attach(Host("main", clock, events=None, hooks=None, wake=lambda: None))  # type: ignore[arg-type]

    async with memory:
        await memory.store(Experience("old", at=clock.now() - timedelta(days=2)))
        await memory.store(Experience("new", at=clock.now()))
        await memory.flush()
        assert len(await memory.recall()) == 2
        assert clock.now() - START < timedelta(seconds=1)
        async with asyncio.timeout(1e6):
            while len(await memory.recall()) > 1:
                with clock.working():
                    await asyncio.sleep(0.01)
        assert [found.situation for found in await memory.recall()] == ["new"]


async def test_a_wall_clock_that_jumps_ahead_makes_nothing_old(tmp_path: Path) -> None:
    """What the number is too many of goes, which shows that the memory looked."""

    class Jumping(SystemClock):
        ahead = timedelta(0)

        def now(self) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) + self.ahead

    clock, began = Jumping(), datetime.now(UTC)
    memory = Memory(at(tmp_path), keep_days=365, keep_experiences=2, keep_cycles=None)
    memory.attach(Host("main", clock, events=None, hooks=None, wake=lambda: None))  # type: ignore[arg-type]

    async with memory:
        await memory.flush()
        clock.ahead = timedelta(days=4000)
        for number in range(3):
            await memory.store(Experience(f"e{number}", at=began + timedelta(seconds=number)))
        async with asyncio.timeout(60):
            while (left := len(await memory.recall())) > 2:
                await asyncio.sleep(0.05)
        assert left == 2
        await asyncio.sleep(0.2)
        assert [found.situation for found in await memory.recall()] == ["e2", "e1"]
