"""The sandbox as this machine gives it: every level that it claims has refused every probe."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from acting.process import probes
from acting.process.detect import Finding, SandboxCapability, examine, offered
from acting.sandbox.spec import SYSTEM, SandboxSpec
from spar.errors import PermanentError

pytestmark = pytest.mark.process


def finding(level: int, *, through: tuple[str, ...] = (), trouble: str = "") -> Finding:
    refused = tuple(probe for probe in probes.HOSTILE if probe not in through)
    return Finding(level, refused, through, trouble, 0.1)


async def test_without_a_sandbox_every_probe_but_the_last_comes_through_also_where_an_event_loop_runs() -> None:
    found = examine(None)

    assert found.trouble == ""
    assert found.through == probes.HOSTILE[:-1]
    assert found.refused == ("leave a process behind",)


def test_what_is_offered_has_once_in_a_process_refused_all_probes_and_let_ordinary_work_be_done(tmp_path: Path) -> None:
    capability = offered(shutil.which("bwrap"))

    assert offered(shutil.which("bwrap"), str(tmp_path)) is capability
    for found in capability.findings:
        if found.counts:
            assert found.refused == probes.HOSTILE
    assert capability.level == max((found.level for found in capability.findings if found.counts), default=0)
    assert finding(1).counts
    assert not finding(1, trouble="ordinary work failed: no space").counts
    assert not finding(1, through=("read a file outside",)).counts


def test_in_ci_there_is_a_sandbox_or_what_is_missing_is_named() -> None:
    if not os.environ.get("CI"):
        pytest.skip("the machine of a developer may offer what it likes; in CI (variable CI) this says what is there")
    capability = offered(shutil.which("bwrap"))

    assert capability.level >= 1 or re.search("namespace|Landlock|filter|rights|bubblewrap|not refused", capability.why)


def test_a_bubblewrap_that_does_nothing_is_found_out(tmp_path: Path) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text('#!/bin/sh\nshift 3\necho \'{"exit-code": 0}\' >&2\nexec "$@"\n')
    fake.chmod(0o755)

    capability = offered(str(fake))

    assert capability.level < 2
    assert capability.why.startswith("level 2: ")


def test_a_bubblewrap_that_is_missing_or_broken_leaves_the_level_below_and_none_is_logged_as_a_warning(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with caplog.at_level("INFO", logger="spar.sandbox"):
        without, broken = offered(None), offered(str(tmp_path / "no-such-file"))

    assert without.level < 2
    assert "bubblewrap (bwrap) is not on PATH" in without.why
    assert broken.level == without.level
    assert "no such file" in broken.why
    levels = {record.levelname for record in caplog.records if record.name == "spar.sandbox"}
    assert levels == ({"INFO"} if broken.level else {"WARNING"})


def test_cages_are_of_the_strongest_level_and_never_below_what_is_asked_for() -> None:
    capability = SandboxCapability(1, (finding(2, trouble="it broke"), finding(1)), bwrap="/usr/bin/bwrap")

    assert capability.spec("/w", readable=("/r",), network=True) == SandboxSpec(
        1, "/w", ("/r",), True, "/usr/bin/bwrap"
    )
    assert capability.spec("/w", least=1) == capability.spec("/w", level=1)
    with pytest.raises(PermanentError) as caught:
        capability.spec("/w", least=2)
    assert str(caught.value) == "sandbox level 2 is asked for, this machine offers level 1: level 2: it broke"


def test_where_nothing_is_offered_nothing_is_confined_and_the_reason_is_told() -> None:
    capability = SandboxCapability(0, (finding(1, through=("read a file outside",)),), ("level 2: no bwrap",))

    assert capability.spec("/w") is None
    assert capability.snapshot() == {
        "level": 0,
        "refused": 0,
        "probes": 11,
        "landlock": capability.snapshot()["landlock"],
        "why": "level 2: no bwrap; level 1: not refused: read a file outside",
        "seconds": 0.1,
    }
    with pytest.raises(PermanentError, match="level 1 is asked for, this machine offers level 0"):
        capability.spec("/w", least=1)
    with pytest.raises(PermanentError, match="level 1 is asked for"):
        capability.spec("/w", level=1)


def test_the_document_says_of_each_probe_what_became_of_it() -> None:
    text = (Path(__file__).parents[3] / "docs/explanation/sandbox.md").read_text()

    assert "".join(f"- {probe}\n" for probe in probes.HOSTILE) in text


def test_a_program_reads_itself_and_its_own_python_but_no_home(tmp_path: Path) -> None:
    tool, python = tmp_path / "bin/tool", Path(sys.executable)
    spec = SandboxSpec(1, str(tmp_path / "workspace"), readable=("/srv/inbox", "/srv/inbox/deeper", "/usr/share"))

    assert spec.reads("/usr/bin/env") == ("/srv/inbox",)
    assert spec.reads(str(tool)) == tuple(sorted(("/srv/inbox", str(tool))))
    assert any(python.is_relative_to(part) for part in (*spec.reads(str(python)), *SYSTEM))
