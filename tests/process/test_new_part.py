"""`spar new`: a package that is installed, keeps its contract, and is found by its name."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from spar.service import exit_codes as exits
from tests.process.conftest import PATIENCE, Spar

pytestmark = pytest.mark.process

#: The names of new parts by their kinds, and what a service is that has all of them.
PARTS = {"sensor": "night-watch", "tool": "tide-table", "planner": "pilot"}
CONFIG = """
[[sensors]]
use = "night-watch"
options = { path = "watched.txt", every = 0.1 }
[[tools]]
use = "tide-table"
[plan]
use = "pilot"
"""


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """An environment that has the packages of this one and nothing else; its site-packages."""
    venv.create(tmp_path / "venv", symlinks=True)
    site = next((tmp_path / "venv").glob("lib/python*/site-packages"))
    root = Path(__file__).parents[2]
    (site / "shared.pth").write_text(f"{root}\n{sysconfig.get_path('purelib')}\n")
    return site


def installed(packages: list[Path], site: Path) -> None:
    """What `pip install -e` does: the metadata beside each module, both on the path; no wheel is needed."""
    pytest.importorskip("setuptools")
    build = (
        "import os, setuptools, sys\n"
        "for folder in sys.argv[1:]:\n    os.chdir(folder)\n    setuptools.setup(script_args=['-q', 'egg_info'])\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", build, *packages], capture_output=True)
    assert done.returncode == 0, done.stderr
    (site / "packages.pth").write_text("".join(f"{package}\n" for package in packages))


def test_new_parts_are_installed_keep_their_contracts_and_are_found(spar: Spar, scratch: Path) -> None:
    packages = [spar.folder / kind for kind in PARTS]
    for package in packages:
        made = spar("new", package.name, PARTS[package.name], package.name)
        said = f"pip install -e '{package.name}[test]' && pytest {package.name}"
        assert (made.code, said in made.out) == (0, True), made
        assert not [path.name for path in package.iterdir() if re.search(r"@\w+@", path.read_text())], "a word was left"
    installed(packages, scratch)
    python = scratch.parents[2] / "bin" / "python"
    environ = {**spar.environ, "PYTHONPATH": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    tested = subprocess.run(
        [python, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "--rootdir", packages[0], *packages],
        cwd=spar.folder, env=environ, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert tested.returncode == 0, tested.stdout + tested.stderr
    rules = ["--isolated", "--config", f"src = {[*PARTS]}", "--select", "E,F,I,B,UP", "--line-length", "120"]
    ruff = [sys.executable, "-m", "ruff", "check", *rules, *packages]
    judged = subprocess.run(ruff, cwd=spar.folder, capture_output=True, text=True)
    assert judged.returncode == 0, judged.stdout

    spar.write(CONFIG)
    environ = {**spar.environ, "PYTHONPATH": str(spar.folder)}

    def run(*arguments: str) -> str:
        command = [python, "-m", "spar", *arguments]
        done = subprocess.run(command, cwd=spar.folder, env=environ, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done
        return done.stdout

    listed = run("config", "parts")
    for kind, name in PARTS.items():
        assert f"spar.{kind}s" in next(line for line in listed.splitlines() if name in line)
    assert "BROKEN" not in listed
    run("step", "sense")


def test_nothing_is_overwritten(spar: Spar) -> None:
    assert spar("new", "tool", "tide").code == 0
    before = {path.name: path.read_text() for path in (spar.folder / "tide").iterdir()}
    again = spar("new", "sensor", "tide")
    assert (again.code, "stays as it is" in again.err) == (exits.CANNOT_CREATE, True), again
    assert {path.name: path.read_text() for path in (spar.folder / "tide").iterdir()} == before
    (spar.folder / "file").write_text("")
    assert spar("new", "tool", "ebb", "file").code == exits.CANNOT_CREATE
    assert spar("--json", "new", "tool", "ebb", "deep/er/ebb").json["files"][0] == "pyproject.toml"
