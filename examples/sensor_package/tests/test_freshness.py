"""The sensor keeps the contract that every sensor owes, and tells what it is there for."""

import asyncio
import os
from pathlib import Path

from spar_freshness import FreshnessSensor

from spar.protocols import Home
from spar.testing import check_sensor


def home(folder: Path) -> Home:
    return Home(config=str(folder), workspace=str(folder), state=str(folder))


def test_it_keeps_the_contract_of_sensors(tmp_path: Path) -> None:
    export = tmp_path / "export.csv"
    export.touch()

    def age() -> None:
        os.utime(export, (1.0, 1.0))

    asyncio.run(check_sensor(lambda: FreshnessSensor("export.csv", home(tmp_path), every=0.05), provoke=age))


def test_it_tells_once_that_a_file_is_old_and_once_that_it_is_fresh(tmp_path: Path) -> None:
    sensor = FreshnessSensor("export.csv", home(tmp_path))
    assert [each.kind for each in sensor.poll()] == ["file.stale"]
    assert sensor.poll() == []
    (tmp_path / "export.csv").touch()
    assert [each.kind for each in sensor.poll()] == ["file.fresh"]
