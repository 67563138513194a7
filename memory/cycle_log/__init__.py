"""Cycle log: stores each cycle as a row, lists cycles by their summaries, and reads whole cycles.

An action contains its perceptions, a result its action, and a reflection its result. Without a remedy the perceptions
would be stored four times. So repeated parts are left out, noted in `links`, and put back when the row is read. Parts
that many cycles share, such as earlier requests to a model, are stored once (`memory.pieces`). A cycle that is too
large for a row is cut: each part gets a share of the room. A cycle that is read back has a `Fault` of the kind
`truncated` for each part that was cut.

rows       encodes a cycle, masks it, cuts a large one and writes it
body       leaves defaults and repeated parts out of a body, and puts them back when it is read
queries    lists and finds cycles
"""

from memory.cycle_log.queries import find, records, summaries
from memory.cycle_log.rows import CycleRow, insert, prepared, row, size_of, write

__all__ = ["CycleRow", "find", "insert", "prepared", "records", "row", "size_of", "summaries", "write"]
