"""The generated part of docs/learning.md: the table, and the plot beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.learning.gain import Gain, rendered
from benchmarks.learning.lived import Life
from benchmarks.learning.measures import Seen
from benchmarks.learning.plot import Curves, drawn, smoothed

PAGE = Path(__file__).parents[2] / "docs" / "learning.md"
BEGIN, END = "<!-- table: python -m benchmarks.learning --write -->", "<!-- end of the table -->"
#: The worlds that are drawn: title, and episodes that a point is the mean of.
DRAWN = {
    "texts": ("texts to tools", 100),
    "alerts": ("alerts and remedies", 30),
    "lake": ("FrozenLake", 20),
    "drift-1000": ("drifting tools", 50),
    "repaired": ("a tool is broken and repaired", 20),
    "host": ("a host's troubles, first call right", 6),
}


def written(lines: Sequence[Gain], panels: Mapping[str, Curves], page: Path) -> None:
    """Put table and plot in their places. Args: panels: by title; page: docs/learning.md, the plot goes beside it."""
    text = page.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n{rendered(lines)}\n\n{END}{after}")
    if panels:
        page.with_suffix(".svg").write_text(drawn(panels))


def curves_of(seen: Seen) -> dict[str, Curves]:
    """Return the curves of the worlds that are drawn, by title."""
    return {
        title: {
            mode: smoothed([_values(life, world) for life in lives], window)
            for mode, lives in seen[world].first.items()
        }
        for world, (title, window) in DRAWN.items()
        if world in seen
    }


def _values(life: Life, world: str) -> list[float]:
    """Return of each episode whether it is drawn as a success."""
    return [float(not each["steps"][0][2] if world == "host" else each["success"]) for each in life]
