"""The templates of packages that `spar new` writes: the files of every kind, and those of each.

common   pyproject.toml and README.md
sensor, tool, planner   the module and its test

In a template `@name@` is the part's name, `@module@` its module, `@class@` a class name made of it, and so on
(`spar.cli.commands.setup.new`). The ending `.in` keeps tools from taking a template for a program.
"""

from importlib import resources


def template(kind: str, name: str) -> str:
    """Return the text of a template.

    Args: kind: the folder; name: the file without `.in`.
    Raises: FileNotFoundError: there is no such file.
    """
    return resources.files(__name__).joinpath(kind, f"{name}.in").read_text(encoding="utf-8")
