"""One life in a process of its own: `python -m benchmarks.learning.life '{"world": "alerts", …}'` prints it."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.environments import LivedEpisode, live
from benchmarks.learning.worlds import WORLDS
from spar.testing.clock import START


def main() -> None:
    given = json.loads(sys.argv[1])
    print(json.dumps([as_data(each) for each in asyncio.run(_lived(**given))]))


async def _lived(world: str, data: str, learning: Any, seed: int, memory: str, life: int) -> list[LivedEpisode]:
    of = WORLDS[world]
    draws = seed + 1_000 * life if of.is_new_again else seed
    name = f"{world}-{seed}-{life}"
    environment = of.make(Path(data), seed)
    return await live(environment, of.episodes, learning=learning, seed=draws, memory=memory, settings=of.settings,
                      start=START + timedelta(days=30 * life), life=name)  # fmt: skip


def as_data(episode: LivedEpisode) -> dict[str, Any]:
    """Return an episode as its line."""
    steps = [[taken.situation, taken.tool, taken.error != ""] for taken in episode.steps]
    return {"success": episode.is_success, "reward": episode.reward, "regret": episode.regret, "steps": steps}


if __name__ == "__main__":
    main()
