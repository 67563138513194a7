"""What the core may ask of a part stands in a Protocol, and is asked for by `offers`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

import spar
from memory import Memory
from spar.errors import SparError
from spar.ports.any_part import Sheddable, Watchable, has, offers
from spar.ports.phases import OptionalActor, OptionalSense
from spar.ports.planners import OptionalPlanner
from spar.ports.store import Care, DurableStore, Journal, TranscriptStore

CORE = Path(spar.__file__).parent

#: Attributes that are asked for and are no port of a part, by file: values of Python and of libraries, and the agent's
#: own. An entry that is used no more has to go.
NO_PARTS = {
    ("bus/subscriptions.py", 'getattr(receiver, "subscription", None)'),
    ("loop/setup.py", "getattr(part, phase, None)"),  # `sense`, `plan`, `act`, `reflect`: the phase itself
    ("parts/factory.py", "getattr(product, name, product)"),
    ("protocols/sensors.py", "getattr(self.sensor, word, None)"),  # one of three, each of which is a port
    ("ports/any_part.py", "getattr(part, name, None)"),  # `offers` itself
    ("ports/any_part.py", "hasattr(part, name)"),
    ("data/json_safe/copier.py", 'hasattr(value, "model_dump")'),
    ("data/json_schema.py", 'hasattr(error, "instance_path")'),  # of errors of the library that judges by schemas
    ("data/json_schema.py", 'getattr(error, "instance_path", ())'),
    ("data/json_schema.py", 'getattr(error, "message", "")'),
    ("data/json_schema.py", 'getattr(kind, "unexpected", None)'),
    ("observe/stacks.py", 'getattr(driver, "coroutine", None)'),
    ("observe/stacks.py", "getattr(value, name, None)"),
    ("types/values.py", "getattr(error, name, None)"),
    ("protocols/tools.py", "getattr(tool, key, None)"),  # each term that a tool may state, by the fields of `ToolTerms`
}


def asked(source: str) -> Iterator[tuple[int, str]]:
    """Each `getattr` with a default and each `hasattr`, with its line, but for names of Python itself (`__name__`)."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            is_asked = (node.func.id, len(node.args)) in (("getattr", 3), ("hasattr", 2))
            if is_asked and not _is_of_python(node.args[1]):
                yield node.lineno, ast.unparse(node).replace("'", '"')


def _is_of_python(name: ast.expr) -> bool:
    return isinstance(name, ast.Constant) and str(name.value).startswith("__") and str(name.value).endswith("__")


def test_no_part_of_the_core_guesses_what_a_part_has() -> None:
    unused, guesses = set(NO_PARTS), []
    for path in sorted(CORE.rglob("*.py")):
        name, source = path.relative_to(CORE).as_posix(), path.read_text()
        if name.startswith("testing/") or "attr(" not in source:  # checks look at parts that may be anything
            continue
        for line, call in asked(source):
            if (name, call) in NO_PARTS:
                unused.discard((name, call))
            else:
                guesses.append(f"spar/{name}:{line}: {call}")

    assert not guesses, "declare a Protocol (spar/ports/) and ask by offers(part, Port)"
    assert not unused, "these are asked no more"


def test_a_guess_is_found_with_its_line() -> None:
    source = (
        '\nsteer = getattr(part, "steer", None)\nif hasattr(\n    part, "shed"):\n'
        '    getattr(part, "x"), getattr(f, "__name__", "")\n'
    )

    assert list(asked(source)) == [(2, 'getattr(part, "steer", None)'), (3, 'hasattr(part, "shed")')]


class Answers:
    """A part that has some of everything."""

    degraded_reason = None
    restore = None

    def resumable(self, session: str) -> None:
        return None

    def hear(self, text: str, session: str) -> None:
        return None


class PassesOn:
    def __init__(self, part: object) -> None:
        self._part = part

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part, name)


@pytest.mark.parametrize("part", [Answers(), PassesOn(Answers())])
def test_a_part_offers_what_it_has_itself_or_passes_on(part: object) -> None:
    assert has(part, OptionalActor.resumable)
    assert has(part, OptionalSense.hear)
    assert has(part, OptionalPlanner.degraded_reason), "None is a value"
    assert not has(part, OptionalActor.abandon)
    assert not offers(part, Watchable)
    assert not has(None, OptionalActor.resumable)


def test_a_method_that_is_none_is_not_offered() -> None:
    class Silent(Answers):
        resumable = None

    class Half(Protocol):
        def hear(self, text: str, session: str) -> None: ...
        def degrade(self, reason: str) -> None: ...

    assert not has(Silent(), OptionalActor.resumable)
    assert not has(Answers(), OptionalPlanner.degrade)
    assert not offers(Answers(), Half), "a part has all of a port or does not offer it"


def test_the_members_of_a_port_are_those_of_the_ports_that_it_is_made_of() -> None:
    class Both(Watchable, Sheddable, Protocol):
        def more(self) -> None: ...

    class Has(Answers):
        def snapshot(self) -> None:
            return None

        def shed(self) -> None:
            return None

        def more(self) -> None:
            return None

    assert offers(Has(), Both)
    assert not offers(Answers(), Both)


async def test_the_built_in_memory_is_a_durable_store(tmp_path: Path) -> None:
    memory = Memory(f"sqlite:///{tmp_path}/memory.db")
    assert has(type(memory), DurableStore.journal)
    with pytest.raises(SparError, match="while the memory is open"):
        has(memory, DurableStore.journal)
    async with memory:
        assert offers(memory, DurableStore)
        assert offers(memory.journal, Journal)
        assert offers(memory.transcripts, TranscriptStore)
        assert offers(memory.care, Care)
