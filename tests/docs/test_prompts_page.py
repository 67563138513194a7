"""The page of what a model is told shows the conversations as they are sent."""

from __future__ import annotations

import pytest

from tests.docs import prompts


def test_the_page_is_what_is_sent_now() -> None:
    pytest.importorskip("anthropic")

    assert prompts.page() == prompts.PAGE.read_text(encoding="utf-8"), "run `make docs`"
