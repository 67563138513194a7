"""The world's tools as a service's configuration names them; its folder is the world."""

from __future__ import annotations

from pathlib import Path

from tests.faults.world import World

look, tally, pay, sign = World(Path.cwd()).tools()
