from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spar.data.text_blocks import Block, BlockCutter

SENTENCE = "The quick brown fox jumps over the lazy dog. "


def cut(text: str, least: int = 100, most: int = 200, sizes: list[int] | None = None) -> list[Block]:
    """The blocks of a text that comes in pieces of these sizes, the last again and again; None: at once."""
    cutter, blocks, at = BlockCutter(least, most), [], 0
    sizes = list(sizes or [len(text) or 1])
    while at < len(text):
        size = sizes.pop(0) if len(sizes) > 1 else sizes[0]
        blocks += cutter.feed(text[at : at + size])
        at += size
    return blocks + cutter.flush()


def open_fence(shown: str) -> str:
    """The marker of the fence that is open at the end of a text, "" if none is."""
    marker = ""
    for line in shown.split("\n"):
        match = re.fullmatch(r" {0,3}(`{3,10}|~{3,10}(?!~))(.*)", line.rstrip())
        if match is None:
            continue
        if marker and match[1].startswith(marker) and not match[2].strip():
            marker = ""
        elif not marker and not (match[1][0] == "`" and "`" in match[2]):
            marker = match[1]
    return marker


def whole_lines(blocks: list[Block]) -> bool:
    """Whether all blocks begin at the beginning of a line."""
    return all(block.text.endswith("\n") for block in blocks[:-1])


LINES = st.one_of(
    st.sampled_from(
        ["", " ", "```", "```python", "~~~", "````", "   ```sh", "``` `x`", "~~~~ a", "x" * 130, SENTENCE * 4]
    ),
    st.text(alphabet="ab .!?。`~\u0301\u200d\r", max_size=80),
)
TEXTS = st.lists(LINES, max_size=40).map("\n".join)


@given(TEXTS, st.lists(st.integers(1, 90), min_size=1, max_size=20), st.integers(1, 120))
def test_the_blocks_are_the_text_however_it_comes(text: str, sizes: list[int], least: int) -> None:
    blocks = cut(text, least, 120, sizes)

    assert "".join(block.text for block in blocks) == text
    assert blocks == cut(text, least, 120)
    assert all(len(block.before) + len(block.text) + len(block.behind) <= 120 for block in blocks)
    assert all(block.text for block in blocks)


@given(st.lists(LINES.filter(lambda line: len(line) < 40), max_size=60).map("\n".join), st.integers(1, 200))
def test_no_block_but_the_last_leaves_a_fence_open(text: str, least: int) -> None:
    blocks = cut(text, least, 200)

    for block in blocks[:-1] if whole_lines(blocks) else ():
        assert open_fence(f"{block.before}{block.text}{block.behind}") == ""


@given(TEXTS, st.integers(1, 30))
def test_the_work_is_proportional_to_the_text(text: str, size: int) -> None:
    cutter = BlockCutter(60, 120)
    for at in range(0, len(text), size):
        cutter.feed(text[at : at + size])
    cutter.flush()

    assert cutter.read <= 8 * len(text) + 8 * 120


def test_a_long_text_that_comes_at_once_is_read_about_once() -> None:
    cutter = BlockCutter(800, 1_200)
    text = "word " * 200_000

    assert sum(len(block.text) for block in cutter.feed(text)) > len(text) - 1_200
    assert cutter.read <= 4 * len(text)


def test_a_block_ends_with_the_first_paragraph_that_is_long_enough() -> None:
    text = f"{SENTENCE * 2}\n\n{SENTENCE * 2}\n\n{SENTENCE}"
    cutter = BlockCutter(100, 1_000)

    assert [block.shown for block in cutter.feed(text)] == [text[: text.rindex("\n\n")].rstrip()]
    assert [block.shown for block in cutter.flush()] == [SENTENCE.rstrip()]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        (f"{'a b. ' * 19}\n{'a b. ' * 4}\n{'a b. ' * 40}", f"{'a b. ' * 19}\n{'a b. ' * 4}\n"),
        ("a b. " * 100, "a b. " * 40),
        ("ab " * 100, "ab " * 66),
        ("x" * 300, "x" * 200),
        (f"{'x' * 199}e\u0301{'x' * 200}", "x" * 199),
        (f"{'中。' * 150}", "中。" * 100),
        (f"{'x' * 110} {'x' * 300}", f"{'x' * 110} "),
    ],
    ids=["line", "sentence", "word", "nothing", "sign", "no space", "long word"],
)
def test_without_a_paragraph_a_block_ends_with_a_line_a_sentence_a_word(text: str, first: str) -> None:
    assert cut(text)[0].text == first


def test_a_fence_that_fits_into_a_block_is_never_parted() -> None:
    code = "```python\n" + "print(1)\n\n" * 18 + "```\n"
    blocks = cut(f"See here:\n{code}That was it.")

    assert [block.text for block in blocks] == ["See here:\n", code, "That was it."]
    assert [(block.before, block.behind) for block in blocks] == [("", "")] * 3


def test_a_fence_that_is_too_long_is_closed_and_opened_again_with_its_language() -> None:
    blocks = cut("~~~sh\n" + "echo hello\n" * 40 + "~~~\nDone.")

    assert len(blocks) > 2
    assert all(block.shown.startswith("~~~sh\necho hello\n") for block in blocks)
    assert all(block.shown.endswith("echo hello\n~~~") for block in blocks[:-1])
    assert blocks[-1].shown.endswith("echo hello\n~~~\nDone.")


def test_a_line_of_a_fence_that_is_too_long_is_cut_where_there_is_room() -> None:
    blocks = cut("```\n" + "x" * 500 + "\n```")

    assert [block.shown for block in blocks[:2]] == [f"```\n{'x' * 192}\n```"] * 2
    assert "".join(block.text for block in blocks) == "```\n" + "x" * 500 + "\n```"


def test_code_between_backticks_in_a_line_is_no_fence_and_one_that_nobody_closes_is_left_as_it_is() -> None:
    blocks = cut("```a``` is code. " + SENTENCE * 10)

    assert all(not block.before and not block.behind for block in blocks)
    assert cut("```\nx")[-1].shown == "```\nx"


@pytest.mark.parametrize(("least", "most"), [(0, 100), (200, 100), (10, 99)])
def test_sizes_that_make_no_sense_are_refused(least: int, most: int) -> None:
    with pytest.raises(ValueError, match=f"a block has {least} to {most} characters"):
        BlockCutter(least, most)
