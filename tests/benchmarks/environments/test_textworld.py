"""Real games of TextWorld, made here without a network: an agent lives in them as in any other environment."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator

import pytest

from benchmarks.environments import live
from benchmarks.environments.textworld_env import TextWorldEnvironment, has_textworld

MOST_STEPS = 15


@pytest.fixture(scope="module")
def game(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TextWorldEnvironment]:
    """Make one game for both tests, each of which begins it anew: to make it costs more than to play."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])
        if not has_textworld():
            pytest.skip("TextWorld is not installed: make servers")
        folder = tmp_path_factory.mktemp("games")
        game = TextWorldEnvironment.coin_collector(folder, level=5, theme="basic", most_steps=MOST_STEPS)
        yield game
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


def test_a_game_tells_its_commands_its_rooms_and_when_it_is_won(game: TextWorldEnvironment) -> None:
    assert {"go_north", "go_east", "go_south", "go_west", "take_coin", "look"} <= {each.name for each in game.offers}
    rooms, step = [game.reset().attributes["room"]], None
    for _ in range(4):  # the rooms stand in a row: one way leads on, and one leads back
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
    assert (len(set(rooms)), won.reward, won.is_done, won.is_cut, won.error) == (5, 1.0, True, False, "")
    assert "coin" in game.reset().attributes["objective"]


async def test_a_coin_is_found_every_time_with_memory_and_never_without(game: TextWorldEnvironment) -> None:
    lived = await live(game, 12, seed=1)
    share = sum(each.is_success for each in lived[8:]) / 4
    assert share == 1.0
    assert share >= 2 * by_chance(game, 10)
    without = await live(game, 3, seed=1, learning="off")
    assert not any(each.is_success for each in without)
