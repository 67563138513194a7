"""The templates of packages that `spar new` writes, and the profiles of `spar init`.

profile  the shipped configuration in parts, for one use each; written by `make docs` (`tests/docs/profiles.py`)
common   pyproject.toml and README.md, the same for all kinds
sensor, tool, planner   the module of each kind and its test

In a template `@name@` is the part's name, `@module@` its module, `@class@` a class name derived from it, and so on
(`spar.cli.commands.new`). The file ending `.in` keeps linters and test runners from reading templates as Python.
"""

from importlib import resources


def template(kind: str, name: str) -> str:
    """Return the text of a template.

    Args: kind: the folder; name: the file without `.in`.
    Raises: FileNotFoundError: there is no such file.
    """
    return resources.files(__name__).joinpath(kind, f"{name}.in").read_text(encoding="utf-8")
