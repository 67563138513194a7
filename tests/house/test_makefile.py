from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text().replace("\\\n", " ")


def test_each_target_that_is_named_does_something() -> None:
    [groups], [named] = (re.findall(rf"^{head} (.*)$", MAKEFILE, re.MULTILINE) for head in (r"GROUPS +=", r"\.PHONY:"))
    with_recipe = re.findall(r"^([a-z-]+):(?:[^\n]*\n\t| ; )", MAKEFILE, re.MULTILINE)
    only_needing = re.findall(r"^([a-z-]+): [^\n;#]*[a-z][^\n]*\n\n", MAKEFILE, re.MULTILINE)

    assert set(named.replace("$(GROUPS)", groups).split()) - {*with_recipe, *only_needing} == set()


def test_each_folder_of_tests_that_is_named_is_there() -> None:
    """A folder that is gone ends pytest before its first test, and `make check` with it."""
    listed = [
        f"{folder}{name}"
        for folder, names in re.findall(r"\$\(addprefix (tests/[a-z/]*),([a-z ]+)\)", MAKEFILE)
        for name in names.split()
    ]
    paths = {*listed, *re.findall(r"(?<![/\w])tests/[a-z_]+(?:/[a-z_]+)*(?![\w*/.,\[])", MAKEFILE)}

    assert len(paths) > 20
    assert sorted(path for path in paths if not (ROOT / path).exists()) == []
