"""The registry: finding parts by name or import string, and building them from options."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spar.config.lines import Sources, explain, read
from spar.errors import ConfigError
from spar.parts.registry import GROUPS, Registry, typed_dict
from spar.ports.services import Programs
from spar.protocols import Home

PARTS = """
from __future__ import annotations
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal
from annotated_types import Ge, Le, Len
from msgspec import Struct
from spar.errors import ConfigError
from spar.ports.services import Programs
from spar.protocols import Home

class Watch:
    def __init__(self, path: Path, home: Home, *, every: float = 5.0, count: Annotated[int, Ge(1)] = 3,
                 mode: Literal["a", "b"] = "a", at: datetime | None = None, tags: tuple[str, ...] = (),
                 schema: str = "", level: Annotated[float, Le(1)] | None = None, wait: float | Literal["auto"] = 1.0,
                 rules: list[dict[str, Any]] | None = None, token: str = "", anything=None) -> None:
        self.given = {k: v for k, v in locals().items() if k != "self"}
        if count == 9:
            raise ConfigError("nine is too many", path=("count",))
        if count == 8:
            raise ConfigError("cannot be read", path=("rules", 1, "match"))
        if count == 5:
            raise ConfigError("perception.dedup = 1: must be a table", path=("perception", "dedup"))
        if count == 7:
            raise OSError("no space left")
        if count == 6:
            raise ConfigError("these do not go together")

class Plain(Struct):
    a: int
    b: str = "x"

class Runs:
    def __init__(self, runner: Programs | None = None, *, programs: str = "") -> None:
        self.runner, self.programs = runner, programs

class WithoutArguments:
    pass

class Broken:
    def __init__(self, x: Missing) -> None: ...

def make(a: int, /, **rest: Any) -> Any:
    return ("made", a, rest)

async def plan(perceptions): ...
"""


@pytest.fixture
def packages(tmp_path: Any, monkeypatch: Any) -> Any:
    """A module of parts, one that cannot be imported, and two distributions that ship parts."""
    (tmp_path / "reg_parts.py").write_text(PARTS)
    (tmp_path / "reg_broken.py").write_text("import no_such_library\n")
    (tmp_path / "reg_exits.py").write_text("raise SystemExit(3)\n")

    def distribution(name: str, points: str) -> None:
        folder = tmp_path / f"{name.replace('-', '_')}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(points)

    distribution("reg-one", "[spar.sensors]\nwatch = reg_parts:Watch [extra]\ntwice = reg_parts:Plain\n")
    distribution("reg-two", "[spar.sensors]\ntwice = reg_parts:Watch\nill = reg_broken:X\ngone = reg_parts:Gone\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("reg_parts", "reg_broken", "reg_exits"):
        sys.modules.pop(name, None)


HOME = Home("/c", "/w", "/s")
WATCH = "reg_parts:Watch"


def build(use: Any, options: Any = None, group: Any = "spar.sensors", **kwargs: Any) -> Any:
    return Registry().build(group, ("sensors", 0), use, options or {}, home=HOME, **kwargs)


def refused(use: Any, options: Any = None, **kwargs: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        build(use, options, **kwargs)
    return caught.value


# -- finding


def test_a_part_is_found_by_its_name_and_by_its_import_string(packages: Any) -> None:
    registry = Registry()

    by_name = registry.resolve("spar.sensors", "watch")

    assert by_name is registry.resolve("spar.sensors", WATCH)
    assert by_name.__name__ == "Watch"


def test_a_part_that_is_an_object_is_taken_as_it_is() -> None:
    part = object()

    assert Registry().resolve("spar.sensors", part) is part
    assert Registry().build("spar.sensors", (), part) is part


def test_an_unknown_name_is_told_the_known_ones_and_the_nearest(packages: Any) -> None:
    error = refused("wach")

    assert error.path == ("sensors", 0, "use")
    sentence = str(error)
    assert sentence.startswith("sensors[0].use: no sensor named 'wach'; known: ")
    assert "watch, " in sentence
    assert sentence.endswith("or use \"module:Class\"; did you mean 'watch'")


@pytest.mark.parametrize(
    ("use", "sentence"),
    [
        ("reg_parts.Watch", "did you mean 'reg_parts:Watch'"),
        ("a:b:c", "'a:b:c' is not of the form \"package.module:Class\""),
        (":x", "is not of the form"),
        ("x:", "is not of the form"),
        ("", "no sensor named ''"),
        ("no_such_package.module:X", "there is no module 'no_such_package' to import (of 'no_such_package.module:X')"),
        ("reg_parts:Wath", "module 'reg_parts' has no 'Wath' (of 'reg_parts:Wath'); did you mean 'Watch'"),
        (
            "reg_broken:X",
            "importing 'reg_broken' failed inside it: ModuleNotFoundError: No module named 'no_such_library'",
        ),
        ("reg_exits:X", "importing 'reg_exits' failed inside it: SystemExit: 3"),
        ("ill", "the sensor 'ill' of reg-two is broken: importing 'reg_broken' failed inside it"),
        ("twice", "reg-one and reg-two both ship a sensor named 'twice'; say which: "),
    ],
)
def test_what_cannot_be_found_says_why(packages: Any, use: Any, sentence: Any) -> None:
    assert sentence in str(refused(use))


def test_parts_of_others_can_be_turned_off(packages: Any) -> None:
    registry = Registry(allow_plugins=False)

    with pytest.raises(ConfigError, match=r"no sensor named 'watch'; .*turned off \(SPAR_PLUGINS\)"):
        registry.resolve("spar.sensors", "watch")
    assert registry.resolve("spar.sensors", WATCH).__name__ == "Watch"


def test_all_parts_are_listed_with_what_is_wrong_with_them(packages: Any) -> None:
    listed: Any = {
        (part.name, part.distribution): part.error for part in Registry().parts() if part.group == "spar.sensors"
    }

    assert listed[("watch", "reg-one")] is None
    assert "no_such_library" in listed[("ill", "reg-two")]
    assert "has no 'Gone'" in listed[("gone", "reg-two")]


def test_an_unknown_group_is_a_mistake_of_the_program() -> None:
    with pytest.raises(ValueError, match=r"no group named 'spar\.nothing'; known: spar\.senses"):
        Registry().names("spar.nothing")
    assert all(Registry().names(group) is not None for group in GROUPS)


def test_nothing_is_imported_before_it_is_named() -> None:
    code = (
        "import sys; from spar.parts.registry import GROUPS, Registry; r = Registry(); [r.names(g) for g in GROUPS];"
        "print([m for m in ('loguru', 'perception', 'acting', 'psutil') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)

    assert done.stdout.strip() == "[]"


# -- building


def test_a_parameter_is_given_what_runs_programs_by_its_annotation_and_not_by_its_name(packages: Any) -> None:
    runner = Registry().build("spar.programs", (), "sandboxed", home=HOME)
    part = build("reg_parts:Runs", {"programs": "mine"}, ports={Programs: lambda: runner})

    assert (part.runner, part.programs) == (runner, "mine")
    assert "runner" in str(refused("reg_parts:Runs", {"runner": "x"}))


def test_options_are_checked_and_converted_by_the_constructors_annotations(packages: Any) -> None:
    part = build(
        "watch",
        {"path": "in", "every": "5m", "tags": ["a"], "at": "2030-01-01T00:00:00Z", "schema": "s", "wait": "auto"},
    )

    assert part.given["path"] == Path("in")
    assert part.given["every"] == 300.0
    assert part.given["tags"] == ("a",)
    assert part.given["at"].isoformat() == "2030-01-01T00:00:00+00:00"
    assert (part.given["schema"], part.given["wait"], part.given["count"]) == ("s", "auto", 3)


def test_a_home_is_injected_and_cannot_be_configured(packages: Any) -> None:
    assert build(WATCH, {"path": "x"}).given["home"] is HOME
    assert "options.home: unknown key" in str(refused(WATCH, {"path": "x", "home": {}}))
    with pytest.raises(ConfigError, match="needs a home"):
        Registry().build("spar.sensors", (), WATCH, {"path": "x"})


def test_what_the_composition_root_gives_cannot_be_configured(packages: Any) -> None:
    rules = [{"a": 1}]

    assert build(WATCH, {"path": "x"}, extra={"rules": rules, "unasked": 1}).given["rules"] is rules
    assert "options.rules: unknown key" in str(refused(WATCH, {"path": "x", "rules": []}, extra={"rules": rules}))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "sensors[0].options.path: missing"),
        ({"path": 3}, "sensors[0].options.path = 3: must be a path"),
        ({"path": "x", "pth": 1}, "sensors[0].options.pth: unknown key; known: path, every, count, mode, at, tags, "),
        ({"path": "x", "every": True}, "sensors[0].options.every = true: must be a number"),
        ({"path": "x", "every": float("nan")}, "sensors[0].options.every = nan: must be a finite number"),
        ({"path": "x", "count": 0}, "sensors[0].options.count = 0: must be >= 1"),
        ({"path": "x", "count": True}, "sensors[0].options.count = true: must be a number"),
        ({"path": "x", "mode": "c"}, "sensors[0].options.mode = 'c': must be 'a' or 'b'"),
        ({"path": "x", "tags": "a"}, "sensors[0].options.tags = 'a': must be a list"),
        ({"path": "x", "tags": ["a", 1]}, "sensors[0].options.tags[1] = 1: must be text"),
        ({"path": "x", "level": "5m"}, "sensors[0].options.level = '5m': must be <= 1"),
        ({"path": "x", "wait": "x"}, "sensors[0].options.wait = 'x': must be a number or a duration (like"),
        ({"path": "x", "rules": [3]}, "sensors[0].options.rules[0] = 3: must be a table"),
        ({"path": "x", "token": 31337}, "sensors[0].options.token = ***: must be text"),
        ([1], "sensors[0].options = a list of 1: must be a table"),
    ],
)
def test_a_bad_option_is_refused_with_its_place(packages: Any, options: Any, sentence: Any) -> None:
    assert sentence in str(refused(WATCH, options))


@pytest.mark.parametrize(
    ("count", "extra", "sentence", "path"),
    [
        (9, {}, "sensors[0].options.count: nine is too many", ("sensors", 0, "options", "count")),
        (8, {"rules": [{}, {}]}, "rules[1].match: cannot be read", ("rules", 1, "match")),
        (5, {"anything": {"dedup": 1}}, "perception.dedup = 1: must be a table", ("perception", "dedup")),
        (6, {}, "sensors[0]: these do not go together", ("sensors", 0)),
    ],
    ids=["among the options", "of what the root gave", "in the file, not named twice", "of the part without one"],
)
def test_an_error_of_the_constructor_has_its_place(
    packages: Any, count: int, extra: dict[str, Any], sentence: str, path: tuple[Any, ...]
) -> None:
    error = refused(WATCH, {"path": "x", "count": count}, extra=extra)
    assert (str(error), error.path) == (sentence, path)


def test_any_other_failure_of_a_constructor_names_the_part(packages: Any) -> None:
    error = refused(WATCH, {"path": "x", "count": 7})

    assert str(error) == "sensors[0]: the sensor 'reg_parts:Watch' cannot be made: OSError: no space left"
    assert isinstance(error.__cause__, OSError)


def test_options_may_stand_beside_use(packages: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        Registry().build("spar.stores", ("memory",), "reg_parts:Plain", {"c": 1}, options_path=("memory",))

    assert "memory.a: missing" in str(caught.value)
    assert "memory.c: unknown key; known: a, b" in str(caught.value)


def test_structs_functions_and_classes_without_a_constructor_are_built_too(packages: Any) -> None:
    assert build("reg_parts:Plain", {"a": "3"}).a == 3
    assert build("reg_parts:make", {"a": 1, "z": 2}) == ("made", 1, {"z": 2})
    assert type(build("reg_parts:WithoutArguments")).__name__ == "WithoutArguments"
    assert "options.x: unknown key; known: nothing can be set here" in str(
        refused("reg_parts:WithoutArguments", {"x": 1})
    )


def test_a_function_is_a_phase_module_or_a_tool_as_it_is(packages: Any) -> None:
    planner = build("reg_parts:plan", group="spar.planners")

    assert planner.__name__ == "plan"
    assert "takes no options" in str(refused("reg_parts:plan", {"x": 1}, group="spar.planners"))


def test_annotations_that_cannot_be_read_are_the_parts_fault(packages: Any) -> None:
    assert "the parameters of the sensor 'reg_parts:Broken' cannot be read: NameError" in str(
        refused("reg_parts:Broken")
    )


def test_every_problem_gets_its_line_in_the_file(packages: Any, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.toml").write_text('[[sensors]]\nuse = "reg_parts:Watch"\n[sensors.options]\npath = 3\nevry = 1\n')

    sources = Sources(read(Path("config.toml")))

    lines = str(explain(refused(WATCH, {"path": 3, "evry": 1}), sources)).splitlines()

    assert lines[0] == "config.toml:4: sensors[0].options.path = 3: must be a path"
    assert lines[1].startswith("config.toml:5: sensors[0].options.evry: unknown key; known: path, every")


# -- what it costs


def test_only_options_that_are_given_or_must_be_are_judged(packages: Any, monkeypatch: Any) -> None:
    judged: list[int] = []

    def counted(name: str, types: Any) -> Any:
        judged.append(len(types))
        return typed_dict(name, types)

    monkeypatch.setattr("spar.parts.registry.typed_dict", counted)

    assert build(WATCH, {"path": "x"}).given["path"] == Path("x")
    assert build(WATCH, {"path": "x", "every": "5s"}).given["every"] == 5.0
    assert judged == [1, 2]
    build("reg_parts:WithoutArguments")
    assert judged == [1, 2], "nothing to judge"
    assert "known: path, every, count" in str(refused(WATCH, {"path": "x", "pth": 1}))


def test_the_name_of_who_ships_parts_is_read_once_for_all_of_them(packages: Any, monkeypatch: Any) -> None:
    read: list[str] = []
    usual = importlib.metadata.Distribution.name
    monkeypatch.setattr(
        importlib.metadata.Distribution, "name", property(lambda it: read.append(usual.fget(it)) or read[-1])
    )

    parts = [part for part in Registry().parts() if part.distribution == "reg-one"]

    assert [part.name for part in parts] == ["twice", "watch"]
    assert read.count("reg-one") == 1
