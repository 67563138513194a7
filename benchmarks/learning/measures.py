"""What is counted of the lives: `MEASURES` holds, by its name, a function that lives and returns its lines."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean

from benchmarks.environments import Environment
from benchmarks.environments.textworld_env import has_textworld
from benchmarks.learning.gain import Gain
from benchmarks.learning.lived import Life, Lives, lived
from benchmarks.learning.worlds import WORLDS
from benchmarks.perception.quality import MissingDataError

SEEDS = (1, 2, 3)
#: Reliabilities are drawn, and with a few draws the regret would be that of their luck.
WORLDS_OF_TOOLS = tuple(range(1, 31))
#: Returned beside the lines: the lives by world, for the plot.
Seen = dict[str, Lives]
Measure = Callable[[Path, Seen], list[Gain]]


def last_quarter(life: Life) -> float:
    """Return the share of successes in the last quarter of the episodes."""
    return fmean(each["success"] for each in life[-(len(life) // 4) :])


def last_fifty(life: Life) -> float:
    """Return the share of successes in the last fifty episodes."""
    return fmean(each["success"] for each in life[-50:])


def last_half(life: Life) -> float:
    """Return the share of successes in the second half of the episodes."""
    return fmean(each["success"] for each in life[len(life) // 2 :])


def by_chance(environment: Environment, episodes: int, seed: int) -> float:
    """Return the share of successes of calls that are drawn."""
    drawn, found = random.Random(seed), 0
    for _ in range(episodes):
        environment.reset(seed)
        while not (step := environment.step(drawn.choice(environment.offers).name, {})).is_done:
            pass
        found += step.reward > 0
    return found / episodes


def share(life: Life) -> float:
    """Return the share of successes."""
    return fmean(each["success"] for each in life)


def regret(life: Life) -> float:
    """Return the sum of the regrets."""
    return sum(each["regret"] for each in life)


def repeated(life: Life) -> float:
    """Return how often a call was made that had failed in the same situation, and never worked there."""
    failed: set[tuple[str, str]] = set()
    worked: set[tuple[str, str]] = set()
    count = 0
    for episode in life:
        for situation, tool, has_failed in episode["steps"]:
            call = (situation, tool)
            count += has_failed and call in failed and call not in worked
            (failed if has_failed else worked).add(call)
    return float(count)


def in_use_again(life: Life, tool: str = "way_1", repaired: int = 200) -> float:
    """Return after how many tasks a repaired tool is in use again: it is taken in most of ten tasks in a row."""
    taken = [episode["steps"][0][1] == tool for episode in life[repaired:]]
    for number in range(len(taken) - 9):
        if taken[number] and sum(taken[number : number + 10]) > 5:
            return float(number + 1)
    return float("inf")


def calls_of_occurrence(number: int) -> Callable[[Life], float]:
    """Return a count of the calls that the occurrence of a trouble with this number took, over all troubles."""

    def count(life: Life) -> float:
        taken: dict[str, list[int]] = {}
        for episode in life:
            taken.setdefault(episode["steps"][0][0], []).append(len(episode["steps"]))
        return fmean(counts[number - 1] for counts in taken.values() if len(counts) >= number)

    return count


def texts(data: Path, seen: Seen) -> list[Gain]:
    seen["texts"] = lived("texts", data, SEEDS, again=("on",))
    return [
        seen["texts"].gain(
            "1,000 texts to 10 tools, last quarter right", last_quarter, owed=0.55, moonshot=0.85, today="0.11",
            remark="chance 0.10; the second process gets other texts",
        )
    ]  # fmt: skip


def texts_by_vectors(data: Path, seen: Seen) -> list[Gain]:
    seen["texts-vectors"] = lived("texts-vectors", data, SEEDS, ("on",), ())
    return [
        seen["texts-vectors"].gain(
            "  the same with `vectors`",
            last_quarter,
            owed=0.75,
            moonshot=0.85,
            remark="MiniLM",
        )
    ]


def drift(data: Path, seen: Seen) -> list[Gain]:
    found = []
    for world, name, owed, today in (
        ("fixed-200", "regret of 200 tasks, reliability fixed", 6.0, "5"),
        ("drift-200", "regret of 200 tasks, three regimes", 14.0, "22"),
        ("drift-1000", "regret of 1,000 tasks, three regimes", 32.0, "67"),
    ):
        seen[world] = lived(world, data, WORLDS_OF_TOOLS, again=(), others=len(SEEDS))
        found.append(
            seen[world].gain(
                name,
                regret,
                owed=owed,
                today=today,
                is_less_better=True,
            )
        )
    return found


def repaired(data: Path, seen: Seen) -> list[Gain]:
    seen["repaired"] = lived("repaired", data, SEEDS, again=("on",))
    return [
        seen["repaired"].gain(
            "repaired tool in use again, tasks after its repair",
            in_use_again,
            owed=50.0,
            today="never",
            is_less_better=True,
            remark="in use: most of ten tasks in a row; off always takes the first tool",
        )
    ]


def alerts(data: Path, seen: Seen) -> list[Gain]:
    lives = seen["alerts"] = lived("alerts", data, SEEDS)
    return [
        lives.gain("three alerts, three remedies, 200 of each: right", share, owed=0.94, today="0.34"),
        lives.gain("  known failures repeated", repeated, owed=8.0, today="127", is_less_better=True),
    ]


def host(data: Path, seen: Seen) -> list[Gain]:
    lives = seen["host"] = lived("host", data, SEEDS)
    third = lives.gain("a host's three troubles: calls, third time each", calls_of_occurrence(3), is_less_better=True,
                       remark="1.67 is the least")  # fmt: skip
    first = lives.gain("a host's three troubles: calls, first time each", calls_of_occurrence(1), is_less_better=True)
    return [first, third]


def lake(data: Path, seen: Seen) -> list[Gain]:
    seen["lake"] = lived("lake", data, SEEDS, again=("on",))
    return [
        seen["lake"].gain("FrozenLake 4×4, success in the last 50 of 100 episodes", last_fifty, owed=0.95, today="0")
    ]


def coins(data: Path, seen: Seen) -> list[Gain]:
    if not has_textworld():
        raise MissingDataError("TextWorld is not installed: make servers")
    lives = seen["coins"] = lived("coins", data, SEEDS, again=("on",))
    world = WORLDS["coins"]
    chance = fmean(by_chance(world.make(data, seed), world.episodes, seed) for seed in SEEDS)
    return [
        lives.gain(
            "TextWorld coins, success in the last 20 of 40 episodes", last_half,
            remark=f"moonshot: twice memory off; commands that are drawn find {chance:.2f}",
        )
    ]  # fmt: skip


MEASURES: Mapping[str, Measure] = {
    "texts": texts,
    "texts-vectors": texts_by_vectors,
    "drift": drift,
    "repaired": repaired,
    "alerts": alerts,
    "host": host,
    "lake": lake,
    "coins": coins,
}
