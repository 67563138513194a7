"""The ways through the house count the files of every package."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.hops import WAYS


@pytest.mark.parametrize(
    ("name", "packages"),
    [
        ("cycle", {"spar", "acting", "reflection"}),
        ("journalled", {"spar", "acting", "reflection", "memory"}),
        ("message", {"spar", "acting", "reflection", "memory"}),
        ("streamed", {"spar", "acting", "planning"}),
        ("call", {"spar", "acting"}),
        ("tokens", {"spar"}),
        ("submit", {"spar", "acting", "reflection", "memory"}),
        ("channel", {"spar", "acting", "reflection", "memory"}),
        ("build", {"spar", "perception", "planning", "acting", "reflection", "memory"}),
    ],
)
def test_a_way_counts_the_files_of_all_packages_that_it_passes(name: str, packages: set[str]) -> None:
    way = asyncio.run(WAYS[name].play())

    assert {file.partition("/")[0] for file in way.files} == packages
    assert len(way.files) <= way.changes <= len(way.steps)


def test_something_is_owed_on_each_way() -> None:
    assert all(owed.files or owed.changes for owed in WAYS.values())


async def test_a_command_is_followed_together_with_the_service_that_answers_it() -> None:
    way = await WAYS["show"].play()

    assert {"spar/client/client.py", "spar/operations/runs.py"} <= set(way.files)
    assert len(way.threads) > 1
