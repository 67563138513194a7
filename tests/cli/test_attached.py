"""Commands that packages bring: found, listed and completed as others, and one sentence about a wrong one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spar.cli.main import attached, cli, main
from spar.service import exit_codes as exits

CODE = """
import click
from spar.cli import Place

@click.command()
@click.pass_obj
def hello(options):
    "Say hello."
    click.echo(f"hello {options.as_json}")

HELLO = Place("stranger_commands:hello", "Say hello.", group="Watch")
STATUS = Place("stranger_commands:hello", "Say another status.")
OTHER = Place("stranger_commands:hello", "Say it elsewhere.")
"""


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install two distributions that bring commands."""
    (tmp_path / "stranger_commands.py").write_text(CODE)
    names = {"hello": "HELLO", "status": "STATUS", "else": "OTHER", "twice": "HELLO"}
    points = {"one": "".join(f"{name} = stranger_commands:{value}\n" for name, value in names.items())}
    points = {"one": f"{points['one']}ill = no_such_module:X\n", "two": "twice = stranger_commands:HELLO\n"}
    for name, text in points.items():
        folder = tmp_path / f"stranger_{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: stranger-{name}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(f"[spar.commands]\n{text}")
    monkeypatch.syspath_prepend(str(tmp_path))
    attached.cache_clear()
    yield
    attached.cache_clear()


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str]:
    """Return the exit code of a command, and all that it prints."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    shown = capsys.readouterr()
    return ended.value.code, shown.out + shown.err


@pytest.mark.usefixtures("stranger")
def test_a_command_of_another_package_is_called_and_listed_in_its_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "hello", "--json") == (0, "hello True\n")
    code, shown = run(capsys, "--help")
    assert code == 0
    assert "Say hello." in shown.partition("Watch:")[2].partition("Decide:")[0]
    assert "Say it elsewhere." in shown.partition("More:")[2]


@pytest.mark.usefixtures("stranger")
def test_a_command_of_another_package_is_completed() -> None:
    context = cli.make_context("spar", [], resilient_parsing=True)
    items = {item.value: item.help for item in cli.shell_complete(context, "h")}
    assert items == {"hello": "Say hello."}


@pytest.mark.usefixtures("stranger")
def test_a_command_of_another_package_takes_the_place_of_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Say another status." not in run(capsys, "status", "--help")[1]
    assert "Say another status." not in run(capsys, "--help")[1]


@pytest.mark.usefixtures("stranger")
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("ill", "stranger-one brings it, and it is broken: ModuleNotFoundError: No module named 'no_such_module'"),
        ("twice", "another package bring it; uninstall one of them"),
    ],
)
def test_a_wrong_command_of_another_package_says_so(
    capsys: pytest.CaptureFixture[str], name: str, sentence: str
) -> None:
    code, shown = run(capsys, name)
    assert (code, sentence in shown) == (exits.UNAVAILABLE, True)
    assert name in run(capsys, "--help")[1]


@pytest.mark.usefixtures("stranger")
def test_commands_of_other_packages_can_be_turned_off(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPAR_PLUGINS", "off")
    attached.cache_clear()
    code, shown = run(capsys, "hello")
    assert (code, "no command 'hello'" in shown) == (exits.USAGE, True)
    assert "Say hello." not in run(capsys, "--help")[1]
    assert run(capsys, "chat", "--help")[0] == 0
