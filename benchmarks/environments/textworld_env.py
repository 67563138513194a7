"""Games of TextWorld: each command of a game is a tool. `make servers` installs it.

outcomes = await live(TextWorldEnvironment.start("game.z8"), 100)

A state of a game is its room with its objects and the player's inventory, as `look` and `inventory` show them. Games:
Côté et al., "TextWorld: A Learning Environment for Text-Based Games", 2018; the coin collector is that of Yuan et al.,
"Counting to Explore and Generalize in Text-based Games", 2018.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.environments.environment import Change, Observation, Offer

#: Where `make servers` installs TextWorld, without libraries of 300 MB that games never load.
INSTALLED = Path(__file__).parents[2] / ".cache" / "servers" / "textworld"
#: Bound of a game's commands, because the rule that chooses among them evaluates each.
MOST_COMMANDS = 500
#: Fields that `start` requests with each state of a game.
ASKED = ("description", "inventory", "admissible_commands", "possible_admissible_commands", "won", "lost", "score",
         "objective")  # fmt: skip


def has_textworld() -> bool:
    """Return whether TextWorld can be imported, also from where `make servers` installs it."""
    if find_spec("textworld") is None and INSTALLED.is_dir():
        sys.path.append(str(INSTALLED))
    return find_spec("textworld") is not None


class TextWorldEnvironment:
    """Game of TextWorld as an `Environment`.

    The reward of a step is its change of the score. An episode ends when the game is won or lost, or after
    `most_steps` commands; skipped observations count. A command that is not admissible in the state fails and has no
    effect.

    Args:
        game: the result of `textworld.start`; its states have a description and an inventory.
        name: that of the sensor.
        commands: those that are tools; None: all that the game ever admits, which games made by TextWorld list.
        most_steps: of one episode.
        seconds: between two observations.

    Raises: ValueError where the game lacks needed information, or has more than 500 commands.
    """

    def __init__(
        self,
        game: Any,
        *,
        name: str = "textworld",
        commands: Sequence[str] | None = None,
        most_steps: int = 100,
        seconds: float = 1.0,
    ) -> None:
        self.name, self.seconds = name, seconds
        self._game, self._most, self._state = game, most_steps, game.reset()
        if not _state_value(self._state, "description"):
            raise ValueError(
                "the game tells no description of its states: open it with TextWorldEnvironment.start, "
                "and compiled (.z8), not as .json"
            )
        known = list(
            commands if commands is not None else _state_value(self._state, "possible_admissible_commands") or ()
        )
        if not known:
            raise ValueError("the game does not tell its commands: name them, commands=['go north', 'take coin']")
        if len(known) > MOST_COMMANDS:
            raise ValueError(f"the game has {len(known)} commands, at most {MOST_COMMANDS}: name some by commands=[…]")
        self._commands = {_tool_name(command): command for command in known}
        if len(self._commands) < len(known):
            raise ValueError(f"commands must differ in letters and digits, found {known!r:.200}")
        self.offers = [Offer(tool, f"Say {command!r}.") for tool, command in self._commands.items()]
        self._score, self._steps = 0.0, 0

    @classmethod
    def start(cls, path: str, **options: Any) -> TextWorldEnvironment:
        """Open a compiled game (.z8) by its path. Raises: ImportError without TextWorld; OSError; ValueError."""
        has_textworld()
        import textworld

        with _known_warnings():
            return cls(textworld.start(path, textworld.EnvInfos(**dict.fromkeys(ASKED, True))), **options)

    @classmethod
    def coin_collector(
        cls, folder: Path, *, level: int = 1, seed: int = 1, theme: str = "house", **options: Any
    ) -> TextWorldEnvironment:
        """Make a game, without a network, and open it: a coin lies so many rooms away.

        Args: folder: for the file of the game; level: 1 to 100 rooms in a row, 101 to 150 with as many dead ends;
        seed: chooses the game; theme: of its texts, "house", or "basic" for fewer of them; options: those of the
        constructor.

        Raises: ImportError without TextWorld; ValueError for an unknown level.
        """
        has_textworld()
        from textworld import GameOptions
        from textworld.challenges import coin_collector
        from textworld.generator import compile_game

        game_options = GameOptions()
        game_options.grammar.theme = theme
        game_options.seeds, game_options.path = seed, str(folder / f"coin-{level}-{seed}.z8")
        with _known_warnings():
            path = compile_game(coin_collector.make({"level": level}, game_options), game_options)
        return cls.start(path, **options)

    def close(self) -> None:
        """End the interpreter of the game."""
        self._game.close()

    def reset(self, seed: int | None = None) -> Observation:
        if seed is not None:
            self._game.seed(seed)
        self._state = self._game.reset()
        self._score, self._steps = 0.0, 0
        return self._observation("")

    def step(self, tool: str, params: Mapping[str, Any]) -> Change:
        self._steps += 1
        is_last = self._steps >= self._most
        if tool not in self._commands:  # no command: the state is unchanged
            return Change(self._observation(""), is_done=is_last, is_cut=is_last)
        command = self._commands[tool]
        admissible = _state_value(self._state, "admissible_commands")
        self._state, score, is_over = self._game.step(command)
        feedback = _plain(_state_value(self._state, "feedback"))
        reward, self._score = float(score) - self._score, float(score)
        error = ""
        if admissible is not None and command not in admissible:
            error = f"{command!r} cannot be done here: {feedback}"
        elif _state_value(self._state, "lost"):
            error = f"the game is lost: {feedback}"
        is_cut = is_last and not is_over
        return Change(self._observation(feedback), reward, bool(is_over) or is_cut, error[:1_000], is_cut=is_cut)

    def _observation(self, feedback: str) -> Observation:
        description = _plain(_state_value(self._state, "description"))
        inventory = _plain(_state_value(self._state, "inventory"))
        state = f"{description}\n{inventory}".strip()
        room = match[1].strip().casefold() if (match := re.match(r"-= ([^\n]{1,40}?) =-", description)) else "state"
        attributes = {
            "room": room,
            "said": feedback,
            "objective": _plain(_state_value(self._state, "objective")),
            "admissible_commands": list(_state_value(self._state, "admissible_commands") or ()),
        }
        subject = f"{room} {blake2b(state.encode(), digest_size=4).hexdigest()}"
        return Observation(state, kind=self.name, subject=subject, attributes=attributes)


@contextmanager
def _known_warnings() -> Iterator[None]:
    """Hide the warning that the interpreter does not know the score of an unknown game: TextWorld knows it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Game .* is not fully supported")
        yield


def _state_value(state: Any, name: str) -> Any:
    """Return a value of a game's state, None where there is none."""
    return state.get(name)


def _plain(text: str | None) -> str:
    """Return a text of a game without its prompt, the line with room and score behind it, and empty lines."""
    lines = (text or "").partition("\n>")[0].splitlines()
    return "\n".join(line.strip() for line in lines if line.strip())


def _tool_name(command: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", command.casefold()).strip("_")
