"""`spar backtest` that Ctrl-C ends, and its checkpoint."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import click
import pytest

from spar.cli.context import Options
from spar.cli.main import main
from spar.cli.nouns import ask
from spar.operations.knowledge.rules import backtest as stored_backtest
from spar.operations.operation import Nothing
from spar.replay.deciding import Decided, Decider
from spar.replay.tape import PAGE, Inputs
from tests.replay.tapes import configured, decided, reading, rule, taped

CONFIG = """
[[rules]]
name = "all"
when = { kind = "reading" }
stop = false
calls = [{ tool = "note", params = { text = "{text}" } }]
[[tools]]
use = "note"
[[tools]]
use = "say"
"""


async def _recorded(folder: Path) -> None:
    records = await decided(configured(rule("all")), [[reading(str(number))] for number in range(PAGE + 1)])
    (folder / "state").mkdir()
    async with taped(folder / "state", records):
        pass


def test_ctrl_c_ends_it_with_what_is_known_and_the_next_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(_recorded(tmp_path))
    (tmp_path / "config.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    decide = Decider.decide

    async def interrupted(self: Decider, inputs: Inputs) -> Decided:
        if inputs.cycle.cycle_id == f"{1:026x}":
            os.kill(os.getpid(), signal.SIGINT)
        return await decide(self, inputs)

    def answer_of(code: int) -> Any:
        with pytest.raises(SystemExit) as end:
            main(["--json", "backtest", "--checkpoint", "state.json"])
        assert end.value.code == code
        return json.loads(capsys.readouterr().out)

    with monkeypatch.context() as patch:
        patch.setattr(Decider, "decide", interrupted)
        part = answer_of(130)
    assert (part["whole"], part["cycles"], part["same"]) == (False, PAGE, PAGE)
    assert part["about"].endswith("interrupted before its end")
    whole = answer_of(0)
    assert (whole["whole"], whole["cycles"], whole["same"]) == (True, PAGE + 1, PAGE + 1)
    assert answer_of(0) == whole


def test_a_stored_result_is_answered_until_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(_recorded(tmp_path))
    (tmp_path / "config.toml").write_text(CONFIG)
    (tmp_path / "other.toml").write_text(CONFIG.replace('kind = "reading"', 'kind = "reading", pattern = "1"'))
    monkeypatch.chdir(tmp_path)
    options = Options(tmp_path / "config.toml", (), as_json=True)

    assert ask(options, stored_backtest, Nothing()) is None

    with pytest.raises(SystemExit) as end:
        main(["--json", "backtest", "--config", "other.toml", "--keep"])
    assert end.value.code == 0
    answer = json.loads(capsys.readouterr().out)
    report = ask(options, stored_backtest, Nothing(), is_typed=True)
    assert (report.configuration, report.cycles, report.differs) == ("other.toml", PAGE + 1, answer["differs"])
    assert report.differs > 0
    assert report.rules["all"].saved == answer["rules"]["all"]["saved"] > 0
    assert report.disagreements[0].count == answer["disagreements"][0]["count"]

    (tmp_path / "state" / "backtest.json").write_text('{"at": 7}')
    with pytest.raises(click.ClickException) as refused:
        ask(options, stored_backtest, Nothing())
    assert "is of another version" in refused.value.message
