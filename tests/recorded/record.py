"""One recording: each file of `answers/`, by its name, as the code answers now."""

from __future__ import annotations

import getpass
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from spar import __version__
from tests.recorded import commands, routes
from tests.recorded.masks import masked
from tests.recorded.world import ROOT, seeded

FOLDER = Path(__file__).parent / "answers"


def answers() -> dict[str, str]:
    """Record all answers, and return their texts, masked, by the names of their files."""
    texts: defaultdict[str, str] = defaultdict(str)

    def add(pairs: Iterable[tuple[str, str]]) -> None:
        for name, text in pairs:
            texts[f"{name}.txt"] += text

    with seeded() as world:
        helps = {f"{name}.txt": text for name, text in commands.helps()}
        add(commands.running(world))
        add(commands.alone(world, world.alone()))
        add(commands.changes(world))
        texts["scopes.txt"], texts["wrong_inputs.txt"] = routes.scopes(world), routes.wrong_inputs(world)
        add(commands.end(world))
        names = {
            str(world.folder): "<folder>", sys.executable: "<python>", str(ROOT): "<source>",
            getpass.getuser(): "<user>", "root": "<user>", __version__: "<version>",
        }  # fmt: skip
    document = routes.document().replace(__version__, "<version>")
    return helps | {name: masked(text, names) for name, text in texts.items()} | {"openapi.json": document}
