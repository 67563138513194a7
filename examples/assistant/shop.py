"""Tools of a small shop: one that looks, one that spends money. Their types and docstrings are what the model "
"is told."""

import json
from pathlib import Path

from spar import tool

BOOK = Path(__file__).with_name("orders.jsonl")
STOCK = {"lamp": 1, "chair": 12}


@tool(effect="read", brings_untrusted=False)  # a number of the shop's own
async def stock(article: str) -> int:
    """Tell how many of an article there are."""
    if article not in STOCK:
        raise ValueError(f"no article {article!r}; known: {', '.join(STOCK)}")
    return STOCK[article]


@tool(effect="once")
async def order(article: str, number: int) -> str:
    """Order more of an article."""
    with BOOK.open("a") as book:
        book.write(json.dumps({"article": article, "number": number}) + "\n")
    return f"ordered {number} of {article}"
