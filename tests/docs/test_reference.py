"""The pages of `docs/reference/` that `make docs` writes say what the code says now."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest

from spar import events
from spar.cli.main import cli
from spar.config.load import Settings
from spar.config.tables.section import Section, settings_of
from tests.docs import overview, prompts, reference
from tests.docs.settings_page import table_in


@pytest.mark.parametrize("name", reference.PAGES)
def test_a_generated_page_is_what_the_code_says_now(name: str) -> None:
    assert reference.difference(name, (reference.FOLDER / name).read_text()) == ""


def test_every_event_says_in_a_line_of_its_own_what_it_tells() -> None:
    assert [each.__name__ for each in reference.event_classes() if not each.__doc__] == []
    assert events.LoopStarted in reference.event_classes()


def test_every_command_and_each_of_its_options_is_found() -> None:
    sections = re.split(r"^## (?=`spar)", reference.command_line(), flags=re.M)[1:]
    root = click.Context(cli, info_name="spar", **cli.context_settings)
    options = [(context.command_path, option) for context in [root, *reference.commands(root)]
               for option in context.command.params
               if isinstance(option, click.Option) and not option.hidden]  # fmt: skip

    groups = [context for context in reference.commands(root) if isinstance(context.command, click.Group)]
    assert len(sections) + len(groups) == 1 + len(list(reference.commands(root)))
    assert [option for context in groups for option in context.command.params] == []
    assert len(options) > 150
    for path, option in options:
        section = next(
            each for each in sections if re.match(rf"`{path}[ `]", each)
        )  # a group stands before its commands
        assert re.search(rf"[` ](?:{'|'.join(option.opts)})[`, ]", section), (path, option.opts)


def test_every_setting_is_found_in_the_section_of_its_table() -> None:
    page = (reference.FOLDER / "settings.md").read_text()
    _, *sections = re.split(r"^## (?=`)", page.partition("# Options of")[0], flags=re.M)
    lines = {}
    for section in sections:
        for head in re.findall(r"`\[*([\w.]+)\]*`", section.splitlines()[0]):
            lines[head] = section

    for table, key in keys(Settings):
        assert f"`{key}" in lines[table], f"{table}.{key}"


def keys(of: type[Section], path: str = "") -> Iterator[tuple[str, str]]:
    """Yield each table and key of the configuration."""
    for name, field in settings_of(of).items():
        inner = table_in(field.type)
        if inner is not None:
            yield from keys(inner, f"{path}.{name}".strip("."))
        elif path:
            yield path, name


def test_every_exit_code_has_its_meaning() -> None:
    assert reference.exit_names() == [(name, number) for name, number, _ in reference.exit_meanings()]


def test_every_route_says_what_it_does() -> None:
    lines = [line for line in reference.http().splitlines() if re.match(r"- `[A-Z]+ /v1", line)]

    assert len(lines) == len(reference.served())
    assert [line for line in lines if not re.search(r"` \(`\w+`, `.+`\): ([A-Z]|`spar )", line)] == []
    named = {command for line in lines for command in re.findall(r"`(spar [^`]+)`(?:, |$)", line)}
    known = re.findall(r"^## `(spar [a-z -]+?)(?: [A-Z{\[].*)?`", reference.command_line(), re.MULTILINE)
    assert named <= set(known)


def test_the_labels_that_a_page_names_are_those_of_the_metric() -> None:
    rows = re.findall(r"^- `(spar_\w+)(?:\{([\w,]+)\})?`", reference.metrics_page(), re.M)
    labels = {name: set(re.findall(r"\w+", names)) for name, names in rows}
    pages = [page.read_text() for page in reference.FOLDER.parent.rglob("*.md")]
    named = {found for page in pages for found in re.findall(r"`(spar_\w+)\{([\w,]+)\}`", page)}

    assert len(named) > 15
    assert [(name, names) for name, names in sorted(named) if not set(names.split(",")) <= labels[name]] == []


# -- the page of what a model is told shows the conversations as they are sent


def test_the_page_is_what_is_sent_now() -> None:
    pytest.importorskip("anthropic")

    assert prompts.page() == prompts.PAGE.read_text(encoding="utf-8"), "run `make docs`"


# -- the picture of how it works shows the decisions and facts of the code


TEXT = overview.PAGE.read_text()


def test_the_picture_is_what_the_code_says_now() -> None:
    assert overview.text(TEXT) == TEXT, "run `make docs`"


def test_each_fact_is_in_the_picture_and_each_decision_has_its_facts() -> None:
    picture = overview.picture()

    assert [kind for kind in overview.KINDS if not re.search(rf"\b{kind}\b", picture)] == []
    assert "WorkTaken" in overview.decided()["next_step"]
    assert [name for name, kinds in overview.decided().items() if not kinds] == []


def test_each_fact_that_the_page_names_is_one() -> None:
    named = set(re.findall(r"`((?:[A-Z][a-z]+){2,})`", TEXT))

    assert named <= {"Fact", *overview.KINDS}
    assert len(named) > 10
