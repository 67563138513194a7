"""Lines of 16 systems as they were written, with the event that each is: loghub, 2,000 lines of each.

Zhu et al., "Loghub: A Large Collection of System Log Datasets for AI-driven Log Analytics", ISSRE 2023;
https://github.com/logpai/loghub.
"""

from __future__ import annotations

import csv
from pathlib import Path

from benchmarks.perception.quality import MissingDataError


def systems(data: Path) -> list[str]:
    """Return the names of the systems. Raises: MissingDataError."""
    names = sorted(path.name for path in (data / "loghub").glob("*") if list(path.glob("*_2k.log_structured.csv")))
    if not names:
        raise MissingDataError(f"no */*_2k.log_structured.csv in {data / 'loghub'} (github.com/logpai/loghub)")
    return names


def raw_lines(data: Path, system: str) -> list[str]:
    """Return the lines of a system as its programs wrote them."""
    text = (data / "loghub" / system / f"{system}_2k.log").read_text("utf-8", "replace")
    return [line for line in text.split("\n") if line.strip()]


def events(data: Path, system: str) -> list[tuple[str, str]]:
    """Return the content of each line, without its header, and the event that it is."""
    path = data / "loghub" / system / f"{system}_2k.log_structured.csv"
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        return [(row["Content"], row["EventId"]) for row in csv.DictReader(file)]
