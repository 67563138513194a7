"""Write the answers anew: `python -m tests.recorded`."""

from tests.recorded.record import FOLDER, answers

if __name__ == "__main__":
    texts = answers()
    for file in FOLDER.rglob("*.*"):
        file.unlink()
    for name, text in texts.items():
        (file := FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
