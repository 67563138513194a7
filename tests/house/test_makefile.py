from __future__ import annotations

import re
from pathlib import Path

MAKEFILE = (Path(__file__).parents[2] / "Makefile").read_text()


def test_each_target_that_is_named_does_something() -> None:
    [named] = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    with_recipe = re.findall(r"^([a-z-]+):(?:[^\n]*\n\t| ; )", MAKEFILE, re.MULTILINE)
    only_needing = re.findall(r"^([a-z-]+): [^\n;#]*[a-z][^\n]*\n\n", MAKEFILE, re.MULTILINE)

    assert set(named.split()) - {*with_recipe, *only_needing} == set()
