"""Commands `eval`: plays cases against the configured model and says what holds, two configurations side by side; makes
a case of what happened."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import asdict, replace

from spar.cli.blocks import Block, local, styled, table, zoned
from spar.cli.context import Options, fail, file_errors, refusals, show
from spar.cli.offline import STORE, from_store
from spar.config.tables.settings import Loaded
from spar.data.patterns import glob
from spar.evals.cases import EvalCase
from spar.evals.recorded import candidates, case_of
from spar.evals.summary import FIGURES, Estimate, Summary, differences
from spar.observe import logs
from spar.service import exit_codes as exits

if TYPE_CHECKING:
    from spar.evals.playing import Trial

#: Decimals of each figure in a table.
DIGITS = {"passed": 2, "steps": 2, "tokens": 0, "cost": 6, "seconds": 1}


class Evaluation(click.Group):
    """Group of the commands `play` and `add`, of which `play` need not be named."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        is_named = args[:1] in (["add"], ["play"], ["-h"], ["--help"])
        return super().make_context(info_name, args if is_named else ["play", *args], parent, **extra)


@click.group("eval", cls=Evaluation)
def evaluation() -> None:
    """Play cases against the configured model, and say which of them hold; make a case of what happened.

    `spar eval mine.yaml` is `spar eval play mine.yaml`.
    """


@evaluation.command("add")
@click.argument("id", metavar="[CYCLE|RUN]", default="")
@click.option("--to", "target", metavar="FILE", type=click.Path(path_type=Path),
              help="The file of cases that gets it at its end; default: it is printed.")  # fmt: skip
@click.pass_obj
def add(options: Options, id: str, target: Path | None) -> None:
    """Make a case of a run, or of a cycle by a unique beginning of its id: that of its run, if it has one.

    It has the messages, the tools with their recorded answers, and as expectation what happened; known secrets are
    masked. Without an id the runs are listed that a person marked bad (spar runs feedback), then those that failed.

    \b
    Examples:
      spar eval add
      spar eval add 01JZ4Q5X9T3N8V --to mine.yaml
      spar eval add 18ea10a4 > one.yaml
    """
    _check_library()
    from spar.evals.reading import CasesError, read_cases, written

    agent = options.load(*STORE).settings.agent.name
    if not id:
        rows = from_store(options, lambda memory: candidates(memory, agent))
        cells = [(row["id"], local(row["at"]), row["why"]) for row in rows]
        show(
            options,
            rows,
            table(("id", zoned("at"), "why"), cells) if rows else "nothing was marked bad, nothing failed",
        )
        return
    recorded = from_store(options, lambda memory: case_of(memory, agent, id))
    case = recorded["case"]
    try:
        text = written(case, recorded["about"])
        if target is not None and target.exists() and case["name"] in {known.name for known in read_cases([target])}:
            fail(f"{target} has the case {case['name']!r} already")
    except CasesError as error:
        fail(str(error), exits.DAMAGED)
    if target is None:
        show(options, case, text.removesuffix("\n"))
        return
    with file_errors(target), target.open("a", encoding="utf-8") as file:
        file.write(text)
    show(options, {"file": str(target), "case": case["name"]}, f"{target}: {case['name']}")


def _check_library() -> None:
    """End the command if the library that reads cases is missing."""
    if find_spec("yaml") is None:
        fail("cases are YAML, and the library that reads it is not installed: pip install 'spar-agent[eval]'",
             exits.UNAVAILABLE)  # fmt: skip


@evaluation.command("play")
@click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--only", metavar="PATTERN", multiple=True,
              help="Only cases whose name or group fits this shell pattern; may be repeated.")  # fmt: skip
@click.option("--against", metavar="CONFIG", type=click.Path(path_type=Path),
              help="A second configuration, which is shown beside the first with the difference.")  # fmt: skip
@click.option("--repeat", type=click.IntRange(1, 1_000), default=1, show_default=True, help="Trials of each case.")
@click.option("--at-once", type=click.IntRange(1, 100), default=4, show_default=True, help="Trials at the same time.")
@click.pass_obj
def evaluate(options: Options, files: tuple[Path, ...], only: tuple[str, ...], against: Path | None, repeat: int,
             at_once: int) -> int:  # fmt: skip
    """Play cases against the configured model and say which of them hold. Code 1 when one does not.

    FILE has cases in YAML: messages, tools that answer, what must hold. Without FILE the 40 shipped cases are played.
    The model gets the tools of a case only and nothing is kept, so nothing is changed, and a running service is not
    disturbed; requests to the model are made and may cost money. It needs the extra "eval".

    \b
    Examples:
      spar eval play
      spar eval mine.yaml --repeat 5
      spar eval --only parallel --only 'no reply'
      spar eval --against other.toml
      spar --set plan.options.thinking=low --json eval
    """
    _check_library()
    from spar.evals.reading import CasesError, read_cases

    try:
        cases = _chosen(read_cases(files), only)
    except CasesError as error:
        fail(str(error), exits.DAMAGED)
    both = [options, *([] if against is None else [options.by(against)])]
    summaries = _played(cases, both, repeat, at_once)
    difference = differences(*summaries) if against else {}
    answer = {"configurations": [summary.to_json() for summary in summaries],
              "difference": {figure: asdict(estimate) for figure, estimate in difference.items()}}  # fmt: skip
    show(options, answer, *(_beside(summaries, difference) if against else _alone(summaries[0])))
    return exits.FAILED if any(trial.why for summary in summaries for trial in summary.judged) else exits.OK


def _chosen(cases: list[EvalCase], patterns: Sequence[str]) -> list[EvalCase]:
    """Return the cases that fit one of the patterns. A pattern that none fits ends the command."""
    chosen = set()
    for pattern in patterns:
        is_match = glob(pattern)
        names = {case.name for case in cases if is_match(case.name) or is_match(case.group)}
        if not names:
            groups = ", ".join(dict.fromkeys(case.group for case in cases))
            fail(f"--only {pattern!r}: no case has such a name or group; groups: {groups}", exits.USAGE)
        chosen |= names
    return [case for case in cases if case.name in chosen] if patterns else cases


def _configure(options: Options, settings: Mapping[str, Any]) -> Loaded:
    """Return the configuration with further settings. Raises: ConfigError."""
    texts = (f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in settings.items())
    return replace(options, overrides=(*options.overrides, *texts)).read()


def _played(cases: list[EvalCase], several: Sequence[Options], repeat: int, at_once: int) -> list[Summary]:
    """Return the summary of all trials of each configuration. A model that cannot be asked ends the command."""
    from spar.evals.playing import ModelAwayError, check, play_all

    number, ended = len(cases) * repeat * len(several), 0

    def progress(trial: Trial) -> None:
        nonlocal ended
        ended += 1
        if sys.stderr.isatty():
            click.echo(f"\r{ended} of {number}" + ("\r\033[K" if ended == number else ""), nl=False, err=True)

    logs.direct(lambda *line: None)  # a trial's troubles are in its findings
    configurations = [partial(_configure, options) for options in several]
    try:
        with refusals():
            for configure in configurations:
                check(cases, configure)
            names = [str(configure({}).path or "defaults") for configure in configurations]
            trials = asyncio.run(play_all(cases, *configurations, repeat=repeat, at_once=at_once, progress=progress))
    except ModelAwayError as error:
        fail(f"no model can be asked: {error}; {ended} of {number} trials were played", exits.UNAVAILABLE)
    return [Summary.of(name, of_one) for name, of_one in zip(names, trials, strict=True)]


def _alone(summary: Summary) -> Iterator[Block]:
    """Yield the answer for one configuration: its cases, its groups, its figures."""
    figures = {figure: digits for figure, digits in {**DIGITS, "steps": 0}.items() if figure != "passed"}
    rows = [
        (judged.trial.case.name, _verdict(judged.figure("passed")),
         *(f"{judged.figure(figure):,.{digits}f}" for figure, digits in figures.items()), judged.why)
        for judged in summary.judged
    ]  # fmt: skip
    yield table(("case", "", *(f">{figure}" for figure in figures), "why"), rows)
    yield ""
    yield table(("group", ">passed", ">of"),
                [(group, str(passed), str(of)) for group, (passed, of) in summary.groups().items()])  # fmt: skip
    yield ""
    yield table(("figure", ">" + summary.name, "95 %"),
                [(figure, *_cells(figure, estimate)) for figure, estimate in _figures(summary).items()])  # fmt: skip


def _beside(summaries: Sequence[Summary], difference: Mapping[str, Estimate]) -> Iterator[Block]:
    """Yield the answer for two configurations: the verdict of each case, then the figures and their difference."""
    names, shares = [summary.name for summary in summaries], [summary.by_case("passed") for summary in summaries]
    yield table(("case", *names), [(case, *(_verdict(of_case[case]) for of_case in shares)) for case in shares[0]])
    yield ""
    figures = [_figures(summary) for summary in summaries]
    heads = ("figure", *(head for name in names for head in (f">{name}", "95 %")), ">difference", "95 %")
    rows = [
        (figure, *chain.from_iterable(_cells(figure, of[figure]) for of in figures), *_cells(figure, estimate, "+"))
        for figure, estimate in difference.items()
    ]
    yield table(heads, rows)


def _figures(summary: Summary) -> dict[str, Estimate]:
    return {figure: summary.estimate(figure) for figure in FIGURES}


def _verdict(share: float) -> str:
    """Return the verdict on a case from the share of its trials that passed."""
    if share == 1:
        return styled("pass", "good")
    return styled(f"{share:.0%}" if share else "FAIL", "bad")


def _cells(figure: str, estimate: Estimate, sign: str = "") -> tuple[str, str]:
    """Return an estimate and its interval as texts. Args: sign: "+" writes the sign of positive numbers, too."""
    value, low, high = (f"{number:{sign},.{DIGITS[figure]}f}" for number in
                        (estimate.value, estimate.low or 0, estimate.high or 0))  # fmt: skip
    return value, "–" if estimate.low is None else f"{low} … {high}"
