"""Write the answers anew: `python -m tests.recorded`."""

from tests.recorded.record import FOLDER, answers

if __name__ == "__main__":
    for stale in FOLDER.rglob("*.*"):
        stale.unlink()
    for name, text in answers().items():
        (file := FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
