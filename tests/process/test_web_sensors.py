"""A running service that asks servers, killed with whatever it has in hand: nothing is lost, nothing comes twice."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from memory import Memory
from tests.servers.web import http_served

pytestmark = pytest.mark.process

CONFIG = """
[agent]
loop_interval = "off"

[[sensors]]
use = "poll"
name = "page"
options = {{ url = "{url}/page", every = 0.05 }}

[[sensors]]
use = "feed"
name = "feed"
options = {{ url = "{url}/feed", every = 0.05, existing = true }}

[[sensors]]
use = "prometheus"
name = "metrics"
options = {{ url = "{url}", query = "up", every = 0.05, tell = "rare" }}

[perception]
dedup = {{ enabled = false }}
fuse = {{ enabled = false }}
incidents = {{ enabled = false }}

[plan]
use = "mine:plan"

[[tools]]
use = "mine:seen"
"""
MINE = """
from spar import Action, Call, tool

@tool(effect="read", safe_with_untrusted=True)
def seen(count: int) -> int:
    "Count."
    return count

async def plan(perceptions):
    with open("planned", "a") as file:
        file.writelines(f"{each.text.splitlines()[0]}\\n" for each in perceptions)
    return Action(calls=[Call("seen", {"count": len(perceptions)})])
"""


class World:
    """Answers with a page, a feed and series of numbers, which a test changes."""

    def __init__(self) -> None:
        self.version, self.series, self.url = 0, {"a", "b", "c"}, ""

    def answer(self, path: str) -> str:
        if path.startswith("/page"):
            return f"page {self.version}"
        if path.startswith("/feed"):
            items = "".join(f"<item><guid>{n}</guid><title>entry {n}</title></item>" for n in range(self.version + 1))
            return f"<rss version='2.0'><channel><title>f</title>{items}</channel></rss>"
        rows = [{"metric": {"__name__": "up", "job": name}, "value": [0, "1"]} for name in sorted(self.series)]
        return json.dumps({"status": "success", "data": {"resultType": "vector", "result": rows}})


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    with http_served(lambda path, headers, body: (200, made.answer(path).encode())) as made.url:
        yield made


def has_polled(service: Any, sensor: str, number: int) -> bool:
    found: int = service.agent["modules"]["sense"]["sensors"][sensor]["polls"]
    return found > number


async def told(spar: Any) -> Counter[str]:
    """Return what finished cycles have dealt with, and how often."""
    async with Memory.open(f"sqlite:///{spar.folder}/state/memory.db") as memory:
        cycles = await memory.cycles(limit=1000)
        records = [await memory.cycle(each["cycle_id"]) for each in cycles]
    done = [record for record in records if record is not None and record.outcome != "interrupted"]
    return Counter(each.text.splitlines()[0] for record in done for each in record.perceptions)


async def test_what_servers_say_is_neither_lost_nor_told_twice_over_kills(
    spar: Any, start: Callable[..., Any], world: World
) -> None:
    pytest.importorskip("feedparser")
    spar.write(CONFIG.format(url=world.url))
    (spar.folder / "mine.py").write_text(MINE)
    planned, expected, overtaken = spar.folder / "planned", {"page 0", "entry 0"}, set[str]()

    def is_planned() -> bool:
        return planned.exists() and expected <= set(planned.read_text().splitlines())

    for gone in ("a",):
        service = start().ready()
        spar.until(is_planned, "what stands there now")
        for _ in range(2):
            world.version += 1
            expected |= {f"page {world.version}", f"entry {world.version}"}
            spar.until(is_planned, "what has changed")
        spar.until(partial(has_polled, service, "metrics", 1), "the series")
        service.kill()  # right after it was planned: perhaps before the cycle is kept
        overtaken.add(f"page {world.version}")  # then the page has changed again, and this is nowhere any more
        world.series.discard(gone)  # while nobody looks
        world.version += 1
        expected |= {f"page {world.version}", f"entry {world.version}", f'up{{job="{gone}"}} has no value any more'}
    last = start().ready()
    spar.until(is_planned, "what has changed while nobody looked")

    def is_at_rest() -> bool:
        return last.agent["recovery"]["in_hand"] == 0 and all(
            each["waiting"] == 0 for each in last.agent["modules"]["sense"]["sensors"].values()
        )

    spar.until(is_at_rest, "the end of the cycles")
    before = planned.read_text()
    spar.until(partial(has_polled, last, "page", 5), "some more looks")
    assert planned.read_text() == before  # nothing has changed since
    assert last.stop() == 0

    found = await told(spar)
    assert expected - overtaken <= set(found) <= expected
    assert set(found.values()) == {1}
