"""A seal for every row: a digest over all its columns, so that no row can be changed, added or taken away unseen.

The seals stand in a table of their own. How many there are of each table, with their sum, stands in the table `state`
under `seals`, with number and link of the newest fact. All of it changes in the transaction that changes the rows:
SQLite tells of each row that a transaction touches (its pre-update hook); the seals are written before the commit.
Facts have no seals: they are a chain (`memory.sqlite.hash_chain`), of which only the end must be known.

It shows that a row was altered, put in or taken out, not who did it: whoever can write the file can seal what he wrote.

keeping    seals the rows that a transaction touches
making     seals the rows of whole tables, for migrations
checking   holds rows against their seals
table      the tables that are sealed, digests, and the totals of all seals
"""

from memory.sqlite.seals.checking import SealBreak, check, check_table, fits
from memory.sqlite.seals.keeping import Seals, of
from memory.sqlite.seals.making import seal_again, seal_all, seal_new
from memory.sqlite.seals.table import HEAD, TABLES

__all__ = [
    "HEAD", "TABLES", "SealBreak", "Seals", "check", "check_table", "fits", "of", "seal_again", "seal_all", "seal_new"
]  # fmt: skip
