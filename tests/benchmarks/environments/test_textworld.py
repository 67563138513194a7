"""Real games of TextWorld, made here without a network: an agent lives in them as in any other environment."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.environments import live
from benchmarks.environments.textworld_env import TextWorldEnvironment, has_textworld

MOST_STEPS = 15
Made = Callable[..., TextWorldEnvironment]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Made]:
    """Make games that are ended after the test."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    if not has_textworld():
        pytest.skip("TextWorld is not installed: make servers")
    games: list[TextWorldEnvironment] = []

    def make(level: int, seed: int = 1) -> TextWorldEnvironment:
        games.append(TextWorldEnvironment.coin_collector(tmp_path, level=level, seed=seed, most_steps=MOST_STEPS))
        return games[-1]

    yield make
    for game in games:
        game.close()


def by_chance(game: TextWorldEnvironment, episodes: int) -> float:
    """Return how often a coin is found by commands that are drawn."""
    drawn, found = random.Random(1), 0
    for _ in range(episodes):
        game.reset()
        while not (step := game.step(drawn.choice(game.offers).name, {})).is_done:
            pass
        found += step.reward > 0
    return found / episodes


def test_a_game_tells_its_commands_its_rooms_and_when_it_is_won(made: Made) -> None:
    game = made(3)
    assert {"go_north", "go_east", "go_south", "go_west", "take_coin", "look"} <= {each.name for each in game.offers}
    rooms, step = [game.reset().attributes["room"]], None
    for _ in range(2):  # the rooms stand in a row: one way leads on, and one leads back
        ways = [each.name for each in game.offers if each.name.startswith("go_")]
        for way in ways:
            step = game.step(way, {})
            assert step.observation is not None
            if step.observation.attributes["room"] not in rooms:
                assert not step.error
                rooms.append(step.observation.attributes["room"])
                break
            assert step.error, "a way that is none leaves everything as it is"
    won = game.step("take_coin", {})
    assert (len(set(rooms)), won.reward, won.is_done, won.is_cut, won.error) == (3, 1.0, True, False, "")
    assert "coin" in game.reset().attributes["objective"]


async def test_a_coin_is_found_every_time_with_memory_and_never_without(made: Made) -> None:
    game = made(5)
    lived = await live(game, 20, seed=1)
    share = sum(each.is_success for each in lived[10:]) / 10
    assert share == 1.0
    assert share >= 2 * by_chance(game, 20)
    without = await live(game, 5, seed=1, learning="off")
    assert not any(each.is_success for each in without)
