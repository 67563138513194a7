"""Files for the systems that watch spar from outside.

rules.yml       alert rules for Prometheus, printed by `spar observe rules`
dashboard.json  a dashboard for Grafana, printed by `spar observe dashboard`; `make docs` makes it from the metrics
"""

from importlib import resources


def shipped(name: str) -> str:
    """Return the text of a shipped file.

    Args: name: its name in this folder, such as `rules.yml`.
    Raises: FileNotFoundError when there is no such file.
    """
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")
