"""The JSON schema of config.toml: what the configuration takes it takes, and what is misspelt it refuses."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator, meta

from spar.parts.registry import Registry
from spar.parts.schema import schema

CONFIG = Path(__file__).parents[2] / "config.toml"


@pytest.fixture(scope="module")
def editor() -> Draft202012Validator:
    made = schema(Registry(allow_plugins=False))
    meta.validate(made)
    return Draft202012Validator(made)


def test_the_shipped_configuration_fits_it(editor: Draft202012Validator) -> None:
    assert [error.message for error in editor.iter_errors(tomllib.loads(CONFIG.read_text()))] == []


@pytest.mark.parametrize(
    "table",
    [
        {"sensors": [{"use": "directory", "options": {"pth": "inbox"}}]},
        {"sensors": [{"use": "host", "options": {"every": []}}]},
        {"tools": [{"use": "files", "options": {"readable": 3}}]},
        {"rules": [{"name": "x", "wen": {"kind": "message"}}]},
        {"rules": [{"name": "x", "calls": [{"params": {}}]}]},
        {"rules": [{"when": {"kind": "message"}}]},
    ],
    ids=["option", "its type", "a tool's option", "a rule's key", "a call without its tool", "a rule without its name"],
)
def test_what_is_misspelt_in_a_part_or_a_rule_is_refused(editor: Draft202012Validator, table: dict[str, Any]) -> None:
    assert list(editor.iter_errors(table))


@pytest.mark.parametrize(
    "table",
    [
        {"sensors": [{"use": "host", "options": {"every": "5m"}}]},
        {"sensors": [{"use": "mysensors:Mine", "options": {"anything": 1}}]},
        {"rules": [{"name": "x", "when": {"kind": ["a", "b"]}, "calls": [{"tool": ["a", "b"], "params": {"x": 1}}]}]},
    ],
    ids=["a duration", "a part of one's own", "a rule"],
)
def test_what_the_configuration_takes_is_taken(editor: Draft202012Validator, table: dict[str, Any]) -> None:
    assert [error.message for error in editor.iter_errors(table)] == []


SHY = """
from typing import Any
from pydantic import PydanticUserError
from pydantic_core import core_schema

class Shy:
    @classmethod
    def __get_pydantic_core_schema__(cls, source, handler):
        return core_schema.any_schema()

    @classmethod
    def __get_pydantic_json_schema__(cls, schema, handler):
        raise PydanticUserError("cannot be described", code=None)

class Sensor:
    def __init__(self, option: Shy, other: int = 3) -> None: ...
"""


def test_a_part_whose_options_have_no_schema_takes_nothing_from_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shy_part.py").write_text(SHY)
    (tmp_path / "shy-1.0.dist-info").mkdir()
    (tmp_path / "shy-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: shy\nVersion: 1.0\n")
    (tmp_path / "shy-1.0.dist-info" / "entry_points.txt").write_text("[spar.sensors]\nshy = shy_part:Sensor\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    described = [choice["if"]["properties"]["use"]["const"]
                 for choice in schema(Registry())["properties"]["sensors"]["items"]["allOf"]]  # fmt: skip

    assert "shy" in Registry().names("spar.sensors")
    assert "shy" not in described
    assert "directory" in described
