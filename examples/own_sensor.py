"""A sensor of one's own: it says when a file has grown beyond a size, and keeps the contract that sensors owe."""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from perception import Sense
from spar import Agent, Perception
from spar.protocols import SensorContext, SensorSpec
from spar.testing import check_sensor


class SizeSensor:
    """Tells when a file has grown beyond `limit` bytes."""

    def __init__(self, path: Path, *, limit: int = 10, every: float = 0.1) -> None:
        self.every = every
        self._path, self._limit, self._was_big = path, limit, False

    def open(self, context: SensorContext) -> None:
        self._was_big = False

    def poll(self) -> Sequence[Perception]:
        is_big, was_big = self._path.stat().st_size > self._limit, self._was_big
        self._was_big = is_big
        return [Perception(f"{self._path.name} is big", kind="file.big")] if is_big and not was_big else []

    def close(self) -> None:
        return None


async def main() -> None:
    with tempfile.NamedTemporaryFile() as file:
        await check_sensor(lambda: SizeSensor(Path(file.name)))
        agent = Agent(sense=Sense([SensorSpec("size", SizeSensor(Path(file.name)))]), loop_interval=0.1)
        file.write(b"more than ten bytes")
        file.flush()
        print([perception.kind for perception in await agent.step_sense()])
        await agent.stop()


asyncio.run(main())
