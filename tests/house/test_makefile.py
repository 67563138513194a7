from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()


def test_each_target_that_is_named_does_something() -> None:
    [named] = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    with_recipe = re.findall(r"^([a-z-]+):(?:[^\n]*\n\t| ; )", MAKEFILE, re.MULTILINE)
    only_needing = re.findall(r"^([a-z-]+): [^\n;#]*[a-z][^\n]*\n\n", MAKEFILE, re.MULTILINE)

    assert set(named.split()) - {*with_recipe, *only_needing} == set()


def test_each_folder_of_tests_that_is_named_is_there() -> None:
    """A folder that is gone ends pytest before its first test, and `make check` with it."""
    lines = MAKEFILE.replace("\\\n", " ")
    listed = [
        f"{folder}{name}"
        for folder, names in re.findall(r"\$\(addprefix (tests/[a-z/]*),([a-z ]+)\)", lines)
        for name in names.split()
    ]
    paths = {*listed, *re.findall(r"(?<![/\w])tests/[a-z_]+(?:/[a-z_]+)*(?![\w*/.,\[])", lines)}

    assert len(paths) > 20
    assert sorted(path for path in paths if not (ROOT / path).exists()) == []
