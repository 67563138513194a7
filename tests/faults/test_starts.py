"""Services that start while all cores are busy end well; one that does not is told of."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.faults.starts import life, starts

pytestmark = pytest.mark.process


def test_a_few_services_start_beside_one_another() -> None:
    assert starts(3, lanes=3) == Counter({"exit 0": 3})  # `make starts` starts 300 beside other work


def test_a_service_that_dies_of_a_signal_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "spar.py").write_text("import os\nos.abort()\n")  # in place of the package

    assert life(tmp_path).startswith("signal SIGABRT")
