"""Markdown on a terminal: what is settled while it is written, and that nothing in it is lost or acts."""

from __future__ import annotations

import click
import pytest

from spar.chat.markdown import LONGEST_BLOCK, drawn, settled

PAGE = """# Head

A paragraph with `code` and [a link](https://example.org/x).

1. one
2. two

| a | b |
|---|---|
| c | d |

```python
def f(): ...

# in the fence
```

The end"""


def plain(text: str, width: int = 60) -> str:
    return "\n".join(line.rstrip() for line in click.unstyle(drawn(text, width)).split("\n"))


def test_the_parts_of_a_page_are_drawn_as_the_whole_however_it_comes() -> None:
    for size in (1, 7, 50):
        written, lines = "", list[str]()
        for at in range(0, len(PAGE), size):
            head, written = settled(written + PAGE[at : at + size])
            lines += plain(head).split("\n")
        lines += plain(written).split("\n")
        assert [line for line in lines if line] == [line for line in plain(PAGE).split("\n") if line], size


def test_a_block_that_does_not_end_is_settled_by_its_lines_and_loses_nothing() -> None:
    lines = [f"line {number}" for number in range(600)]
    for text in ("```\n" + "\n".join(lines), "\n".join(lines), " ".join(lines), "x" * 3 * LONGEST_BLOCK):
        written, shown = "", ""
        for at in range(0, len(text), 500):
            head, written = settled(written + text[at : at + 500])
            assert len(written) <= LONGEST_BLOCK + 500
            shown += drawn(head, 60)
        shown += drawn(written, 60)
        assert "".join(click.unstyle(shown).split()) == "".join(text.removeprefix("```").split())


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[2J\x07\x9b",
        "&#x202e; &#27; &rlm;",
        "`\x1b]0;t\x07`",
        "```\x1b\n\x1b[31m\n```",
        "[a](http://b/\u202e)",
        "a\u2066b",
    ],
)
def test_nothing_acts_on_the_terminal(text: str) -> None:
    assert not {*map(chr, [*range(10), *range(11, 32), *range(127, 160)]), "\u202e", "\u200f", "\u2066"} & set(
        click.unstyle(drawn(text, 40))
    )


def test_what_looks_like_html_is_shown_as_it_stands() -> None:
    assert plain("a List<String>, <b>bold</b>") == "a List<String>, <b>bold</b>"
    assert plain("<script>\nalert()\n</script>") == "<script> alert() </script>"


def test_a_link_and_an_image_show_their_addresses() -> None:
    assert plain("[the page](https://example.org) ![a cat](cat.png)") == (
        "the page (https://example.org) !a cat (cat.png)"
    )


@pytest.mark.parametrize("width", [2, 12, 40, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    from rich.cells import cell_len

    text = PAGE + "\n\n" + "日本語" * 30 + "\n\n" + "🎉 " * 30 + "\n\n" + "x" * 300
    assert max(map(cell_len, plain(text, width).split("\n"))) <= width
