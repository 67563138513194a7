"""Cost of the console: clients that follow events, a page of a long past, a large cycle and an idle page in a browser.

The clients follow the events of an agent that works five times a second, by the streams of the server in a thread of
their own, without sockets. The browser is Chromium; without it its lines are left out.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.chatted import running
from benchmarks.harness import Effort
from benchmarks.journalled import folder
from benchmarks.table import Line, number
from memory import Memory
from spar import Action, ActionResult, Agent, Call, CallResult, Perception, tool
from spar.config.load import load
from spar.events import LoopCompleted
from spar.operations.history import CyclesChoice, list_cycles
from spar.operations.operation import Stream
from spar.server.event_streams import frames
from spar.service.app import Service
from spar.threads import take_short_turns
from spar.types import CycleRecord

#: Clients; percent that a cycle may take longer with them.
FOLLOWERS, OWED_LONGER = 500, 10.0
#: Cycles of the past, and milliseconds that a page of them may take.
PAST, OWED_PAGE = 100_000, 20.0
#: Calls of a large cycle, milliseconds until they are drawn, and percent of a core that an idle page may take.
CALLS, OWED_DRAWN, OWED_IDLE = 1_000, 1_000.0, 1.0
CONFIG: Final = (
    '[agent]\nloop_interval = 1.0\n\n[service]\nport = 0\n\n[log]\nlevel = "error"\n\n[[sensors]]\nuse = "messages"\n'
)


async def measure(effort: Effort) -> list[Line]:
    lines = [await _followed(10 if effort.is_quick else 100), await _paged(2_000 if effort.is_quick else PAST)]
    if (browser := shutil.which("chromium-headless-shell") or shutil.which("chromium")) is not None:
        lines += await asyncio.to_thread(_seen, browser, 5.0 if effort.is_quick else 60.0)
    return lines


@tool(effect="read")
async def look(at: str) -> str:
    """Look at something."""
    return at


async def sense() -> list[Perception]:
    return [Perception("a sight", kind="sight")]


async def plan(perceptions: list[Perception]) -> Action:
    return Action(calls=[Call("look", {"at": "the sky"})])


async def _followed(cycles: int) -> Line:
    """Return how much longer a cycle takes while clients follow."""
    take_short_turns()
    agent, seconds = Agent(sense=sense, plan=plan, tools=[look], loop_interval=0.2), list[float]()
    agent.events.subscribe(LoopCompleted, lambda event: seconds.append(event.duration))
    async with agent:
        feed = Service(load(None, environ={}), agent).feed

        async def middle() -> float:
            seconds.clear()
            while len(seconds) < cycles:  # noqa: ASYNC110 - the measured loop is looked at, and nothing is added to it
                await asyncio.sleep(0.1)
            return statistics.median(seconds)

        readers = [feed.read(None, frozenset(), None) for _ in range(FOLLOWERS)]
        least = await middle()

        async def follow(reader: Any) -> None:
            stream = Stream(reader, lambda event: str(event.type), lambda: reader.seen)
            async for _ in frames(agent, stream, lambda: True, lambda: FOLLOWERS):
                pass

        async def all_follow() -> None:
            await asyncio.gather(*map(follow, readers))

        thread = threading.Thread(target=lambda: asyncio.run(all_follow()), daemon=True)
        thread.start()
        await asyncio.sleep(1)
        own = await middle()
        for reader in readers:
            reader.close()
        await asyncio.to_thread(thread.join, 30)
    longer = 100 * (own / least - 1)
    return Line(None, f"a cycle while {FOLLOWERS} clients follow all events", f"{number(own * 1e3)} ms", "without them",
                f"{number(least * 1e3)} ms", max(longer, 0.0), "%", owed=OWED_LONGER, is_limit=True)  # fmt: skip


class _Store:
    agent_name = "main"

    def __init__(self, memory: Memory) -> None:
        self.memory = memory


async def _paged(cycles: int) -> Line:
    """Return how long the slowest of the pages takes that people look at: the newest, in the middle, by each filter."""
    began = datetime(2026, 1, 1, tzinfo=UTC)
    with folder() as place:
        async with Memory(f"sqlite:///{place}/memory.db", durability="off", keep_cycles=None, keep_days=None) as memory:
            for index in range(cycles):
                noticed = Perception(f"load is {index}", source="host", kind="host.load", id=f"p{index}")
                call, has_failed = Call("look", {"at": str(index)}, id="c1"), index % 1_000 == 7
                action = Action(calls=[call], perceptions=[noticed], goal=f"goal {index}")
                result = CallResult(call, "failed" if has_failed else "ok", output=index, attempts=1)
                await memory.record(CycleRecord(
                    f"{index:026x}", "main", "main" if index % 1_000 else "rare", began + timedelta(seconds=20 * index),
                    0.01, "acted", (noticed,), action, ActionResult(action, results=[result]), phases={"sense": 0.001},
                    calls={"ok": int(not has_failed), "failed": int(has_failed), "skipped": 0}))  # fmt: skip
            await memory.flush()
            pages: dict[str, dict[str, Any]] = {
                "newest": {}, "middle": {"before": f"{cycles // 2:026x}"}, "session": {"session": "rare"},
                "failed": {"failed": True}, "none": {"session": "nobody"},
                "since": {"since": began + timedelta(seconds=10 * cycles)},
            }  # fmt: skip
            took = {
                name: await _quickest(_Store(memory), CyclesChoice(limit=50, **page)) for name, page in pages.items()
            }
    slowest = max(took, key=lambda name: took[name])
    return Line(None, f"a page of {cycles:,} past cycles, the slowest of {len(pages)}: {slowest}",
                f"{number(took[slowest])} ms", "the newest", f"{number(took['newest'])} ms", took[slowest], "ms",
                owed=OWED_PAGE, is_limit=True)  # fmt: skip


async def _quickest(store: Any, choice: CyclesChoice) -> float:
    """Return the milliseconds of a processor that the quickest of seven readings takes."""
    took = []
    for _ in range(7):
        began = time.process_time()
        await list_cycles.work(store, choice)
        took.append(time.process_time() - began)
    return min(took) * 1e3


@contextmanager
def _page(browser: str, place: str) -> Iterator[tuple[Any, str]]:
    """Yield a page of a browser that is signed in to the service of a folder, and its address."""
    from playwright.sync_api import sync_playwright

    def spar(*arguments: str) -> str:
        command = [sys.executable, "-m", "spar", *arguments]
        return subprocess.run(command, cwd=place, capture_output=True, check=True, text=True).stdout

    token = spar("tokens", "create", "bench", "--scopes", "admin").strip()
    address = json.loads(spar("status", "--json"))["addresses"]["http"]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        page = chromium.new_page()
        page.goto(address)
        page.get_by_label("Token").fill(token)
        page.keyboard.press("Enter")
        page.locator("#nav").wait_for(state="attached")
        yield page, address
        chromium.close()


def _seen(browser: str, seconds: float) -> list[Line]:
    """Return the lines of the browser: a cycle with many calls, a page that is left open."""
    with folder() as place:
        Path(place, "config.toml").write_text(CONFIG)
        with running(place), _page(browser, place) as (page, address):
            started = datetime.now(UTC)
            cycle = _large(started)
            page.route("**/v1/cycles/large", lambda route: route.fulfill(json=cycle))
            why = {"cycle_id": "large", **dict.fromkeys(("noticed", "rules", "memory", "calls", "outcome"), ())}
            page.route("**/v1/cycles/large:why", lambda route: route.fulfill(json=why))
            page.goto(f"{address}/#/timeline")
            began, spent = time.perf_counter(), _spent()
            page.goto(f"{address}/#/cycle/large")
            page.locator("svg.graph rect").nth(CALLS - 1).wait_for()
            drawn, spent = (time.perf_counter() - began) * 1e3, (_spent() - spent) * 1e3
            page.goto(f"{address}/#/now")
            page.get_by_role("table", name="Sessions").wait_for()
            share, least, heap = _idle(page, seconds)
    return [
        Line(None, f"a cycle of {CALLS:,} calls drawn in the browser", f"{number(drawn)} ms", "of a processor",
             f"{number(spent)} ms", min(drawn, spent), "ms", owed=OWED_DRAWN, is_limit=True),
        Line(None, f"Now left open for {seconds:.0f} s, of a core; its memory: {heap}", f"{number(share)} %",
             "an empty page", f"{number(least)} %", max(share - least, 0.0), "%", owed=OWED_IDLE, is_limit=True),
    ]  # fmt: skip


def _large(started: datetime) -> dict[str, Any]:
    """Return a cycle with many calls, as the API shows it."""
    from spar.decoding import encode

    calls = [Call("look", {"at": str(index)}, id=f"c{index}", after=(f"c{index - 1}",) if index % 3 else ())
             for index in range(CALLS)]  # fmt: skip
    action = Action(calls=calls, goal="look everywhere")
    results = [CallResult(call, "ok", output="seen", attempts=1, started_at=started + timedelta(milliseconds=index),
                          duration=0.01) for index, call in enumerate(calls)]  # fmt: skip
    record = CycleRecord("large", "main", "main", started, 2.0, "acted", (), action,
                         ActionResult(action, results=results), phases={"act": 2.0})  # fmt: skip
    return {**json.loads(encode(record)), "doubts": []}


def _idle(page: Any, seconds: float) -> tuple[float, float, str]:
    """Return the percent of a core that a browser takes with a page and with an empty one, and the memory of the page
    before and after."""
    client = page.context.new_cdp_session(page)
    client.send("Performance.enable")

    def heap() -> float:
        client.send("HeapProfiler.collectGarbage")
        metrics = client.send("Performance.getMetrics")["metrics"]
        return next(float(row["value"]) for row in metrics if row["name"] == "JSHeapUsedSize")

    def share() -> float:
        page.wait_for_timeout(2_000)
        spent = _spent()
        page.wait_for_timeout(seconds * 1e3)
        return 100 * (_spent() - spent) / seconds

    page.wait_for_timeout(2_000 if seconds < 60 else 65_000)  # until it is left alone
    before, own, after = heap(), share(), heap()
    page.goto("about:blank")
    return own, share(), f"{before:,.0f} → {after:,.0f} bytes"


def _spent() -> float:
    """Return the seconds of a processor that the processes of the browser have taken."""
    own = psutil.Process()
    return sum(sum(process.cpu_times()[:2]) for process in own.children(recursive=True) if "chrom" in process.name())
