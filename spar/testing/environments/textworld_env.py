"""Games of TextWorld: each command of a game is a tool (extra `textworld`, which needs a C compiler to be installed).

outcomes = await live(TextWorldEnvironment.start("game.z8"), 100)

A state of a game is its room, what stands there and what the player carries, as `look` and `inventory` tell it.
Games: Côté et al., "TextWorld: A Learning Environment for Text-Based Games", 2018; the coin collector is that of Yuan
et al., "Counting to Explore and Generalize in Text-based Games", 2018.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

from spar.testing.environments.environment import Change, Observation, Offer

#: Commands that a game may have as tools; the rule that may take any of them looks at each.
MOST_COMMANDS = 500
#: What `start` asks a game to tell with each of its states.
ASKED = ("description", "inventory", "admissible_commands", "possible_admissible_commands", "won", "lost", "score",
         "objective")  # fmt: skip


class TextWorldEnvironment:
    """A game of TextWorld as an `Environment`.

    What a step adds to the score is its reward. An episode ends when the game is won or lost, or after `most_steps`
    commands; observations let pass count. A command that is not admissible in the state fails, and has done nothing.

    Args:
        game: what `textworld.start` returns; it tells its description and its inventory.
        name: that of the sensor.
        commands: those that are tools; None: all that the game ever admits, which those made by TextWorld tell.
        most_steps: of one episode.
        seconds: between two observations.
    Raises: ValueError where the game does not tell what is needed, or has more than 500 commands.
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
        if not _told(self._state, "description"):
            raise ValueError(
                "the game tells no description of its states: open it with TextWorldEnvironment.start, "
                "and compiled (.z8), not as .json"
            )
        known = list(commands if commands is not None else _told(self._state, "possible_admissible_commands") or ())
        if not known:
            raise ValueError("the game does not tell its commands: name them, commands=['go north', 'take coin']")
        if len(known) > MOST_COMMANDS:
            raise ValueError(f"the game has {len(known)} commands, at most {MOST_COMMANDS}: name some by commands=[…]")
        self._commands = {_tool_name(each): each for each in known}
        if len(self._commands) < len(known):
            raise ValueError(f"commands must differ in letters and digits, found {known!r:.200}")
        self.offers = [Offer(tool, f"Say {command!r}.") for tool, command in self._commands.items()]
        self._score, self._steps = 0.0, 0

    @classmethod
    def start(cls, path: str, **options: Any) -> TextWorldEnvironment:
        """Open a compiled game (.z8) by its path. Raises: ImportError without the extra; OSError; ValueError."""
        import textworld

        with _known_warnings():
            return cls(textworld.start(path, textworld.EnvInfos(**dict.fromkeys(ASKED, True))), **options)

    @classmethod
    def coin_collector(cls, folder: Path, *, level: int = 1, seed: int = 1, **options: Any) -> TextWorldEnvironment:
        """Make a game, without a network, and open it: a coin lies so many rooms away.

        Args: folder: for the file of the game; level: 1 to 100 rooms in a row, 101 to 150 with as many dead ends;
        seed: which game it is; options: those of the constructor.
        Raises: ImportError without the extra; ValueError for a level that is none.
        """
        from textworld import GameOptions
        from textworld.challenges import coin_collector
        from textworld.generator import compile_game

        made = GameOptions()
        made.seeds, made.path = seed, str(folder / f"coin-{level}-{seed}.z8")
        with _known_warnings():
            path = compile_game(coin_collector.make({"level": level}, made), made)
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
        if tool not in self._commands:  # nothing is said, and the state is what it was
            return Change(self._observation(""), is_done=is_last, is_cut=is_last)
        command = self._commands[tool]
        admissible = _told(self._state, "admissible_commands")
        self._state, score, is_over = self._game.step(command)
        said = _plain(_told(self._state, "feedback"))
        reward, self._score = float(score) - self._score, float(score)
        error = ""
        if admissible is not None and command not in admissible:
            error = f"{command!r} cannot be done here: {said}"
        elif _told(self._state, "lost"):
            error = f"the game is lost: {said}"
        is_cut = is_last and not is_over
        return Change(self._observation(said), reward, bool(is_over) or is_cut, error[:1_000], is_cut=is_cut)

    def _observation(self, said: str) -> Observation:
        description = _plain(_told(self._state, "description"))
        inventory = _plain(_told(self._state, "inventory"))
        state = f"{description}\n{inventory}".strip()
        room = found[1].strip().casefold() if (found := re.match(r"-= ([^\n]{1,40}?) =-", description)) else "state"
        attributes = {
            "room": room,
            "said": said,
            "objective": _plain(_told(self._state, "objective")),
            "admissible_commands": list(_told(self._state, "admissible_commands") or ()),
        }
        subject = f"{room} {blake2b(state.encode(), digest_size=4).hexdigest()}"
        return Observation(state, kind=self.name, subject=subject, attributes=attributes)


@contextmanager
def _known_warnings() -> Iterator[None]:
    """Leave out that the interpreter knows no score of a game that it has not heard of: TextWorld tells it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Game .* is not fully supported")
        yield


def _told(state: Any, name: str) -> Any:
    """Return what a state of a game tells under a name, None where it does not."""
    return state.get(name)


def _plain(text: str | None) -> str:
    """Return a text of a game without its prompt, the line of the room and the score behind it, and empty lines."""
    lines = (text or "").partition("\n>")[0].splitlines()
    return "\n".join(line.strip() for line in lines if line.strip())


def _tool_name(command: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", command.casefold()).strip("_")
