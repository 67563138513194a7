"""Whatever can be asked of a stored memory can be asked of one on a server, with every filter."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec
import psycopg
import pytest
from msgspec import NODEFAULT

from memory.postgres.store import PostgresMemory
from spar import Agent
from spar.cli.nouns import ask
from spar.operations.operation import Operation
from tests.cli.test_nouns import CONFIG, offline, options_in

pytestmark = pytest.mark.process

NOW = datetime.now(UTC)
#: A value of each type of a filter.
VALUES: dict[Any, Any] = {str: "main", int: 3, float: 1.5, bool: True, datetime: NOW}


def filters(operation: Operation[Any, Any]) -> list[dict[str, Any]]:
    """Return inputs of an operation: the least, and one more for each field that may be given."""
    infos = msgspec.inspect.type_info(operation.given).fields  # type: ignore[attr-defined]
    needed = {info.name: "main" for info in infos if info.required and info.default is NODEFAULT}
    given = [needed]
    for info in infos:
        value = _value(info.type)
        if value is not None:
            given.append({**needed, info.name: value})
    return given


def _value(kind: Any) -> Any:
    if isinstance(kind, msgspec.inspect.UnionType):
        return next((value for each in kind.types if (value := _value(each)) is not None), None)
    if isinstance(kind, msgspec.inspect.LiteralType):
        return kind.values[-1]
    if isinstance(kind, msgspec.inspect.Metadata):
        return _value(kind.type)
    names = {"StrType": "main", "IntType": 3, "FloatType": 1.5, "BoolType": True, "DateTimeType": NOW}
    return names.get(type(kind).__name__)


@pytest.fixture
async def folder(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "line").mkdir()
    (tmp_path / "state").mkdir()
    (tmp_path / "config.toml").write_text(f'{CONFIG}\n[memory]\nuse = "postgres"\nurl = "{url}"\n')

    async def plan(perceptions: Any) -> None:
        return None

    async with Agent(plan=plan, memory=PostgresMemory(url), loop_interval="off", name="main") as agent:
        await agent.wait((await agent.submit("hello")).run_id, 60)
    return tmp_path


def test_every_reading_operation_takes_each_of_its_filters(folder: Path) -> None:
    broken = []
    for parameter in offline():
        (operation,) = parameter.values
        for given in filters(operation):
            try:
                ask(options_in(folder), operation, operation.given(**given))
            except (click.ClickException, LookupError, ValueError) as error:
                if "cannot read" in str(error) or isinstance(error.__cause__, psycopg.Error):
                    broken.append(f"{operation.name} {given}: {error}")
    assert broken == []
