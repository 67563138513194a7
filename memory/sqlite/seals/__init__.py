"""Seals of rows: a digest over all columns of each row shows if a row was changed, added or removed.

The seals are in a table of their own. The table `state` has, under `seals`, the head: number and sum of the seals of
each table, and number and link of the newest fact. Both change in the transaction that changes the rows: SQLite calls
a function for each row that a transaction touches (its pre-update hook), and the seals are written before the commit.
Facts have no seals: they are a chain (`memory.engine.hash_chain`), of which only the end must be known.

Seals show that a row was altered, inserted or removed, not who did it: a person who can write the file can write seals.

keeping    the tables that are sealed, digests, totals; seals the rows that a transaction touches
making     seals the rows of whole tables, for migrations
checking   compares rows with their seals
"""

from memory.sqlite.seals.checking import SealBreak, check, check_table, fits
from memory.sqlite.seals.keeping import HEAD, TABLES, Seals, of
from memory.sqlite.seals.making import seal_again, seal_all, seal_new

__all__ = [
    "HEAD", "TABLES", "SealBreak", "Seals", "check", "check_table", "fits", "of", "seal_again", "seal_all", "seal_new"
]  # fmt: skip
