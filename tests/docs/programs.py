"""The programs that people are shown: `python -m tests.docs.programs FOLDER` writes a file for each."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", document.read_text(), re.M | re.S)


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


WITH_PROGRAMS = [document for document in DOCUMENTS if blocks(document, "python")]


def write_programs(folder: Path) -> None:
    """Write the program of each document, the examples, and parts as people write them, to a folder of no others."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.glob("*.py"):
        file.unlink()
    for example in (*EXAMPLES, Path(__file__).with_name("as_people_write.py")):
        (folder / f"example_{example.name}").write_text(example.read_text())
    for document in WITH_PROGRAMS:
        name = re.sub(r"\W", "_", name_of(document).lower())
        (folder / f"in_{name}.py").write_text("\n".join(blocks(document, "python")))


if __name__ == "__main__":
    write_programs(Path(sys.argv[1]))
