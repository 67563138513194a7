"""Settings: what is allowed, where it comes from, how it is refused."""

import json
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from spar.config.load import RELOAD, Settings, changed, from_mapping, load, load_again, reloads, show
from spar.config.tables.section import LONGEST, as_table, seconds, settings_of
from spar.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Any, monkeypatch: Any) -> Any:
    """An empty current folder, and nothing at home."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(mapping: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        from_mapping(mapping)
    return str(caught.value)


def refused_file(text: str, **kwargs: Any) -> str:
    Path("config.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(environ=kwargs.pop("environ", {}), **kwargs)
    return str(caught.value)


# -- durations


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (0, 0.0),
        (2, 2.0),
        (0.5, 0.5),
        ("500ms", 0.5),
        ("30s", 30.0),
        ("5m", 300.0),
        ("1.5h", 5400.0),
        ("2d", 172800.0),
        ("10", 10.0),
        (" 5 m ", 300.0),
        (".5s", 0.5),
    ],
)
def test_a_duration_is_a_number_of_seconds_or_has_a_unit(given: Any, expected: Any) -> None:
    assert seconds(given) == pytest.approx(expected)


@pytest.mark.parametrize(
    "given",
    [
        True,
        -1,
        "-1s",
        float("nan"),
        float("inf"),
        "inf",
        "nan",
        10**400,
        "9" * 30,
        "1e3",
        "",
        "5x",
        "٣s",
        None,
        [],
        LONGEST * 2,
    ],
)
def test_what_is_no_duration_is_none(given: Any) -> None:
    assert seconds(given) is None


@given(st.floats(0, 1e5), st.sampled_from(["ms", "s", "m", "h"]))
def test_a_duration_with_a_unit_is_never_refused_when_it_is_short_enough(number: Any, unit: Any) -> None:
    found = seconds(f"{number:.6f}{unit}")

    assert found is not None
    assert 0 <= found <= LONGEST


# -- defaults and shapes


def test_the_defaults_are_those_of_the_specification() -> None:
    settings = from_mapping({})

    assert settings.agent.loop_interval == 1.0
    assert as_table(settings.agent.errors) == {"sense": "skip", "plan": "skip", "act": "reflect", "reflect": "continue"}
    assert [getattr(settings.agent.phases, phase).timeout for phase in ("sense", "plan", "act", "reflect")] == [
        30.0,
        300.0,
        600.0,
        60.0,
    ]
    assert settings.runs.timeout == 600.0
    assert (settings.service.host, settings.service.port) == ("127.0.0.1", 8420)


def test_setting_one_thing_of_a_phase_keeps_its_other_defaults_and_a_deadline_that_is_off_is_zero() -> None:
    phases = {"plan": {"retries": 2}, "act": {"timeout": "off"}}
    settings = from_mapping({"agent": {"phases": phases}, "runs": {"timeout": 0}})
    assert (settings.agent.phases.plan.timeout, settings.agent.phases.plan.retries) == (300.0, 2)
    assert (settings.agent.phases.act.timeout, settings.runs.timeout) == (0.0, 0.0)


def test_every_setting_has_a_description() -> None:
    def tables(path: str, table: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        yield path, table
        for name, field in table.get("properties", {}).items():
            yield from tables(f"{path}.{name}", field)
            if "properties" in field.get("items", {}):
                yield from tables(f"{path}.{name}[]", field["items"])

    document = TypeAdapter(Settings).json_schema()
    described = dict(tables("", document))

    assert len(described) > 200
    assert described[".log.level"]["description"].startswith("The least")
    assert [path for path, table in described.items() if not table.get("description")] == []
    json.dumps(document)


def test_settings_cannot_be_changed_and_do_not_follow_what_they_were_made_from() -> None:
    given = {"perception": {"dedup": {"window": 3}}}
    settings = from_mapping(given)
    given["perception"]["dedup"]["window"] = 4

    assert settings.perception == {"dedup": {"window": 3}}
    with pytest.raises(AttributeError, match="immutable"):
        setattr(settings.agent, "name", "other")  # noqa: B010 - mypy knows that it cannot be set


def test_a_store_gets_every_key_of_its_table() -> None:
    settings = from_mapping({"memory": {"use": "my.store:Store", "url": "x:y", "shards": 3}})

    assert (settings.memory.use, settings.memory.options) == ("my.store:Store", {"url": "x:y", "shards": 3})


def test_settings_made_by_hand_do_not_look_at_the_environment(monkeypatch: Any) -> None:
    monkeypatch.setenv("SPAR_AGENT__NAME", "elsewhere")
    monkeypatch.setenv("AGENT", '{"name": "elsewhere"}')

    assert from_mapping({}).agent.name == "main"
    assert Settings().agent.name == "main"


# -- refusals


@pytest.mark.parametrize(
    ("mapping", "sentence"),
    [
        ({"agent": {"loop_interval": -1}}, "agent.loop_interval = -1: must be >= 0 or 'adaptive' or 'off'"),
        (
            {"agent": {"loop_interval": float("nan")}},
            "agent.loop_interval = nan: must be a finite number or 'adaptive'",
        ),
        ({"agent": {"loop_interval": True}}, "agent.loop_interval = true: must be a number or 'adaptive' or 'off'"),
        (
            {"agent": {"loop_interval": "fast"}},
            """agent.loop_interval = 'fast': must be a number or a duration (like "500ms", "30s", "5m", "1h", "2d") """
            "or 'adaptive' or 'off'",
        ),
        ({"agent": {"loop_interval": 1e12}}, "must be <= 3153600000"),
        (
            {"agent": {"phases": {"act": {"timeout": "x"}}}},
            "agent.phases.act.timeout = 'x': must be a number or a duration (like",
        ),
        ({"runs": {"money": 0.1234567}}, "runs.money = 0.1234567: must have at most 6 decimals or 'off'"),
        ({"runs": {"money": "1.5e9999"}}, "runs.money = '1.5e9999': must be "),
        ({"runs": {"calls": True}}, "runs.calls = true: must be a number or 'off'"),
        ({"agent": {"busy_count": True}}, "agent.busy_count = true: must be a number"),
        ({"agent": {"busy_count": 0}}, "agent.busy_count = 0: must be >= 1"),
        ({"agent": {"busy_count": "many"}}, "agent.busy_count = 'many': must be a whole number"),
        ({"agent": {"plan_when_idle": "perhaps"}}, "agent.plan_when_idle = 'perhaps': must be true or false"),
        ({"agent": {"name": 5}}, "agent.name = 5: must be text"),
        ({"agent": {"errors": {"act": "explode"}}}, "agent.errors.act = 'explode': must be 'skip', 'reflect', "),
        ({"agent": {"errors": {"sense": "reflect"}}}, "agent.errors.sense = 'reflect': must be 'skip', 'continue'"),
        ({"agent": {"min_interval": 9}}, "agent.min_interval = 9.0: must be <= agent.max_interval (5)"),
        ({"agent": []}, "agent = a list of 0: must be a table"),
        ({"sensors": {}}, "sensors = a table of 0: must be a list"),
        ({"sensors": [{"use": "x"}, {}]}, "sensors[1].use: missing"),
        ({"sensors": [{"use": "x"}, {"use": "x"}]}, "sensors[1].use = 'x': is the name of another sensor already"),
        ({"service": {"port": 99999}}, "service.port = 99999: must be <= 65535"),
        ({"health": {"blocked_after": 0}}, "health.blocked_after = 0: must be > 0"),
        ({"agnet": {}}, "agnet: unknown key; known: agent, health, "),
        ({"agent": {"nmae": 1}}, "agent.nmae: unknown key; known: name, loop_interval, "),
        ({"agent": {"nmae": 1}}, "; did you mean 'name'"),
        ({"runs": {"queue_mode": "shout"}}, "runs.queue_mode = 'shout': must be 'followup', 'steer', 'collect' or"),
        ({1: 2}, "1: unknown key"),
        ({"acting": {"max_output": 1}}, "acting.max_output: was renamed: write acting.largest_result (in a file, "),
    ],
)
def test_a_bad_value_is_refused_with_its_key_and_what_is_allowed(mapping: Any, sentence: Any) -> None:
    assert sentence in refused(mapping)


def test_everything_that_is_wrong_is_told_at_once() -> None:
    lines = refused({"agent": {"busy_count": 0, "x": 1}, "log": {"level": "loud"}}).splitlines()

    assert [line.split(":")[0].split(" ")[0] for line in lines] == ["agent.busy_count", "agent.x", "log.level"]


def test_the_error_knows_the_path_of_what_is_wrong() -> None:
    with pytest.raises(ConfigError) as caught:
        from_mapping({"sensors": [{"use": "x", "every": "soon"}]})

    assert caught.value.path == ("sensors", 0, "every")


def test_a_secret_is_not_repeated_in_an_error() -> None:
    assert "hunter2" not in refused(
        {"memory": {"use": 3}, "sensors": [{"use": "a", "options": 3, "password": "hunter2"}]}
    )
    assert "s3cr3tvalue" not in refused({"log": {"level": "Bearer s3cr3tvalue"}})


@pytest.mark.parametrize("given", [3, "x", [1]])
def test_settings_that_are_no_table_are_refused(given: Any) -> None:
    assert "must be a table shaped like config.toml" in refused(given)


def test_the_private_arguments_of_the_library_are_unknown_keys() -> None:
    assert refused({"_env_file": "x", "_layers": []}).count("unknown key") == 2


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_SECTIONS = st.sampled_from([*settings_of(Settings)])


@given(st.dictionaries(_SECTIONS | st.text(max_size=8), _JSON, max_size=4))
def test_whatever_is_given_becomes_settings_or_one_clear_error(mapping: Any) -> None:
    try:
        from_mapping(mapping)
    except ConfigError as error:
        if not str(error).strip():
            raise


# -- sources


def test_the_command_line_beats_the_environment_which_beats_the_file_which_beats_the_defaults(folder: Any) -> None:
    Path("config.toml").write_text('[agent]\nname = "f"\nbusy_count = 2\nmin_interval = 0.2\n')

    loaded = load(
        environ={"SPAR_AGENT__NAME": "e", "SPAR_AGENT__BUSY_COUNT": "3", "HOME": "/nowhere"},
        overrides={"agent.name": "c"},
    )

    agent = loaded.settings.agent
    assert (agent.name, agent.busy_count, agent.min_interval, agent.max_interval) == ("c", 3, 0.2, 5.0)
    assert [loaded.origin(("agent", key)) for key in ("name", "busy_count", "min_interval", "max_interval")] == [
        "--set agent.name",
        "SPAR_AGENT__BUSY_COUNT",
        "config.toml:4",
        "default",
    ]


def test_tables_and_lists_are_given_as_json_and_the_more_exact_key_wins(folder: Any) -> None:
    environ = {
        "SPAR_AGENT__NAME": "exact",
        "SPAR_AGENT": '{"name": "around", "busy_count": 7}',
        "SPAR_RULES": '[{"name": "r"}]',
        "SPAR_PERCEPTION__DEDUP__WINDOW": "50",
        "SPAR_MEMORY__URL": "sqlite:///x.db",
    }

    Path("config.toml").write_text("")

    settings = load(environ=environ).settings

    assert (settings.agent.name, settings.agent.busy_count) == ("exact", 7)
    assert settings.rules == ({"name": "r"},)
    assert settings.perception == {"dedup": {"window": 50}}
    assert settings.memory.options == {"url": "sqlite:///x.db"}


def test_a_free_table_is_merged_over_the_sources(folder: Any) -> None:
    Path("config.toml").write_text("[perception.dedup]\nwindow = 5\nsimilarity = 0.5\n")

    settings = load(environ={}, overrides={"perception.dedup.window": "9"}).settings

    assert settings.perception == {"dedup": {"window": 9, "similarity": 0.5}}


def test_text_that_looks_like_a_number_stays_text_where_text_is_wanted_and_a_level_may_be_in_capitals(
    folder: Any,
) -> None:
    settings = load(environ={"SPAR_AGENT__NAME": "007", "SPAR_LOG__LEVEL": "DEBUG"}).settings
    assert (settings.agent.name, settings.log.level) == ("007", "debug")


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({"SPAR_LOG_LEVEL": "debug"}, "SPAR_LOG_LEVEL: log_level: unknown key; known: agent, health"),
        ({"SPAR_LOG_LEVEL": "debug"}, "; did you mean log.level (SPAR_LOG__LEVEL)"),
        ({"SPAR_AGNET__NAME": "x"}, "SPAR_AGNET__NAME: agnet: unknown key; known: agent, health"),
        (
            {"SPAR_ACTING__MAX_OUTPUT": "1"},
            "SPAR_ACTING__MAX_OUTPUT: acting.max_output: was renamed: write acting.largest_r",
        ),
        ({"SPAR_AGENT__NMAE": "x"}, "SPAR_AGENT__NMAE: agent.nmae: unknown key; known: name, "),
        ({"SPAR_CONFG": "x"}, "did you mean 'SPAR_CONFIG'"),
        ({"SPAR_AGENT__BUSY_COUNT": "0"}, "SPAR_AGENT__BUSY_COUNT: agent.busy_count = '0': must be >= 1"),
        ({"SPAR_RULES": "[oops"}, "SPAR_RULES: rules = '[oops': must be a list, written as JSON"),
        ({"SPAR_SENSORS__0__USE": "x"}, "SPAR_SENSORS__0__USE: sensors = a table of 1: must be a list"),
        ({"SPAR_LOG__LEVEL__X": "x"}, "SPAR_LOG__LEVEL__X: log.level = a table of 1: must be 'debug'"),
        ({"spar_agent__busy_count": "0"}, "spar_agent__busy_count: agent.busy_count = '0'"),
        ({"SPAR_AGENT": "x"}, "SPAR_AGENT: agent = 'x': must be a table, written as JSON"),
        ({"SPAR_": "x"}, "SPAR_: "),
    ],
)
def test_a_bad_variable_is_refused_by_its_name(folder: Any, environ: Any, sentence: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        load(environ=environ)

    assert sentence in str(caught.value)


def test_a_configuration_comes_from_a_pipe_too() -> None:
    reader, writer = os.pipe()
    os.write(writer, b'[agent]\nname = "piped"\n')
    os.close(writer)
    try:
        assert load(Path(f"/dev/fd/{reader}"), environ={}).settings.agent.name == "piped"
    finally:
        os.close(reader)


def test_a_key_that_is_like_no_variable_is_not_taken_for_one() -> None:
    with pytest.raises(ConfigError) as caught:
        from_mapping({"loop": {"interval": 3}})
    assert "SPAR_" not in str(caught.value)


def test_variables_of_the_process_are_no_settings(folder: Any) -> None:
    Path("config.toml").write_text("")

    assert load(environ={"SPAR_PLUGINS": "off", "SPAR_CRASH": "x", "SPARROW": "1"}).settings == from_mapping({})


@pytest.mark.parametrize("key", ["agent.nmae", "agent", "agent..name", "", "nope", "rules.0.x"])
def test_a_bad_override_is_refused_by_its_key(folder: Any, key: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        load(environ={}, overrides={key: "x"})

    assert str(caught.value).startswith(f"--set {key}")


def test_a_bad_value_in_the_file_is_told_with_file_and_line(folder: Any) -> None:
    text = '[agent]\nname = "x"\n\nloop_interval = -1\n[[sensors]]\nuse = "a"\n[[sensors]]\nusee = "b"\n'

    lines = refused_file(text).splitlines()

    assert lines[0].startswith("config.toml:4: agent.loop_interval = -1: must be")
    assert lines[1].startswith("config.toml:7: sensors[1].use: missing")
    assert lines[2].startswith("config.toml:8: sensors[1].usee: unknown key; known: use, ")


def test_a_variable_is_not_blamed_for_what_the_file_says(folder: Any) -> None:
    sentence = refused_file("[agent]\nbusy_count = 0\n", environ={"SPAR_AGENT": '{"name": "x"}'})

    assert sentence.startswith("config.toml:2: agent.busy_count = 0")


def test_a_file_that_is_named_must_be_there(folder: Any) -> None:
    with pytest.raises(ConfigError, match=r"other\.toml: there is no such file"):
        load(Path("other.toml"), environ={})
    with pytest.raises(ConfigError, match=r"gone\.toml: there is no such file"):
        load(environ={"SPAR_CONFIG": "gone.toml"})


def test_relative_paths_start_at_the_files_folder(folder: Any) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "my.toml").write_text("")

    assert load(Path("sub/my.toml"), environ={}).folder == folder / "sub"


# -- showing and comparing


RICH = """
rules = [{ name = "r", when = { pattern = "a\\u007f\\"b" }, then = [{ tool = "t", x = [1, 2.5, true] }] }]
[agent]
loop_interval = "adaptive"
[perception]
at = 2030-01-01T00:00:00Z
empty = {}
[perception."odd key".deep]
n = -3
[[sensors]]
use = "directory"
every = "5m"
[sensors.options]
path = "in"
headers = { Authorization = "Bearer abcdef" }
[[sensors]]
use = "host"
[memory]
url = "postgres://u:pw@h/db"
api_key = "k-123"
"""


def test_what_is_shown_can_be_loaded_again(folder: Any) -> None:
    Path("config.toml").write_text(
        RICH.replace('api_key = "k-123"', "").replace("u:pw@", "").replace("Bearer abcdef", "x")
    )
    first = load(environ={}).settings
    Path("again.toml").write_text(show(load(environ={})).replace('"***"', '"x"'))

    assert load(Path("again.toml"), environ={}).settings == first


def test_secrets_are_masked_and_origins_told_in_json_too(folder: Any) -> None:
    Path("config.toml").write_text(RICH)
    loaded = load(environ={"SPAR_LOG__LEVEL": "debug"})
    text = show(loaded, origins=True)
    assert "pw" not in text
    assert "k-123" not in text
    assert "abcdef" not in text
    assert 'loop_interval = "adaptive"  # config.toml:4' in text
    assert 'level = "debug"  # SPAR_LOG__LEVEL' in text
    assert "busy_count = 10  # default" in text
    assert "every = 300.0  # config.toml:12" in text
    tomllib.loads(text)
    assert json.loads(show(loaded, form="json"))["memory"]["api_key"] == "***"
    told = json.loads(show(loaded, form="json", origins=True))["agent.loop_interval"]
    assert told == {"value": "adaptive", "from": "config.toml:4"}


def test_changes_are_told_by_key() -> None:
    old = from_mapping({"perception": {"dedup": {"window": 1}}, "service": {"port": 1}})
    new = from_mapping({"perception": {"dedup": {"window": 2}, "x": 1}, "rules": [{}], "service": {"port": 1}})

    assert set(changed(old, new)) == {"perception.dedup.window", "perception.x", "rules"}
    assert changed(old, old) == ()


def test_each_setting_says_whether_it_can_change_while_running() -> None:
    keys = changed(from_mapping({}), from_mapping({}))

    assert keys == ()
    assert [name for name in settings_of(Settings) if name not in RELOAD] == []
    assert (reloads("agent.phases.plan.timeout"), reloads("agent.name")) == ("live", "restart")
    assert (reloads("service.port"), reloads("log.level"), reloads("log.file")) == ("restart", "live", "restart")
    assert (reloads("perception.dedup.window"), reloads("memory.url"), reloads("nonsense")) == (
        "live",
        "restart",
        "restart",
    )


@pytest.mark.parametrize("cap", [0, -1, "off", "many", 1.5])
def test_how_many_messages_may_wait_is_a_number_or_auto(cap: object) -> None:
    with pytest.raises(ConfigError, match=r"must be (>= 1|a whole number) or 'auto'"):
        from_mapping({"runs": {"cap": cap}})


def test_headers_of_any_name_are_shown_masked_but_for_those_that_hold_no_secret(folder: Any) -> None:
    Path("config.toml").write_text(
        "[[sensors]]\nuse = 'poll'\nname = 'p'\n[sensors.options]\nurl = 'http://h/'\n[sensors.options.terms.headers]\n"
        "X-Vault = 'hunter22'\nAccept = 'text/html'\nX-Api-Key = { env = 'KEY' }\n"
    )
    loaded = load(environ={})

    (sensor,) = json.loads(show(loaded, form="json"))["sensors"]
    assert sensor["options"]["terms"]["headers"] == {
        "X-Vault": "***",
        "Accept": "text/html",
        "X-Api-Key": {"env": "KEY"},
    }
    assert "hunter22" not in show(loaded, origins=True)


# -- only some tables


def test_of_tables_that_nobody_needs_the_defaults_are_taken_and_no_mistake_is_told(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[memory]\nkeep_days = 7\n[log]\nlevle = "debug"\n[agent]\nname = "night"\n')

    loaded = load(file, only=("memory", "agent.name"), environ={"SPAR_LOG__LEVEL": "debug"})

    assert (loaded.settings.memory.options, loaded.settings.agent.name) == ({"keep_days": 7}, "night")
    assert loaded.settings.log.level == "info"
    assert loaded.folder == tmp_path


@pytest.mark.parametrize(
    ("environ", "overrides"),
    [({"SPAR_AGENT__NAME": "day"}, {}), ({"SPAR_AGENT": '{"name": "day"}'}, {}), ({}, {"agent.name": "day"})],
)
def test_what_environment_and_command_line_say_of_a_key_counts(
    tmp_path: Path, environ: dict[str, str], overrides: dict[str, str]
) -> None:
    (file := tmp_path / "config.toml").write_text('[agent]\nname = "night"\n')

    assert load(file, only=["agent.name"], environ=environ, overrides=overrides).settings.agent.name == "day"


def test_a_mistake_in_a_table_that_is_needed_is_told_alone(tmp_path: Path) -> None:
    (file := tmp_path / "config.toml").write_text('[log]\nlevle = "x"\n[memory]\nuse = 7\n')

    with pytest.raises(ConfigError) as refused:
        load(file, only=["memory"], environ={})

    assert "config.toml:4" in str(refused.value)
    assert "levle" not in str(refused.value)


# -- again


@pytest.mark.parametrize("is_named", [True, False])
def test_a_file_that_is_gone_is_refused_when_it_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_named: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.toml").write_text("[agent]\nname = 'mine'\n")
    loaded = load("config.toml" if is_named else None, environ={})
    (tmp_path / "config.toml").rename(tmp_path / "aside")

    with pytest.raises(ConfigError, match=r"config\.toml: there is no such file"):
        load_again(loaded, environ={})


@pytest.mark.parametrize("is_named", [True, False])
def test_the_same_file_is_read_again_from_another_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_named: bool
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.toml").write_text("[agent]\nname = 'other'\n")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.toml").write_text("[agent]\nname = 'mine'\n")
    loaded = load("config.toml" if is_named else None, environ={})
    (tmp_path / "config.toml").write_text("[agent]\nname = 'changed'\n")
    monkeypatch.chdir(tmp_path / "other")

    again = load_again(loaded, overrides={"log.level": "debug"}, environ={})

    assert (again.settings.agent.name, again.settings.log.level) == ("changed", "debug")
    assert (again.path, again.folder) == (loaded.path, tmp_path)


def test_a_file_that_appears_later_does_not_take_the_place_of_the_packaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    loaded = load(environ={})
    (tmp_path / "config.toml").write_text("[agent]\nname = 'later'\n")

    assert load_again(loaded, environ={}).settings.agent.name == loaded.settings.agent.name
    assert load_again(loaded, environ={}).folder == tmp_path
