from __future__ import annotations

from pathlib import Path

import pytest

from spar.protocols import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    (tmp_path / "workspace").mkdir()
    return Home(str(tmp_path), str(tmp_path / "workspace"), str(tmp_path / "state"))
