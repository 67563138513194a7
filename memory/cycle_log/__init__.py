"""The tape: every cycle as a row, listed by its summary, read back whole.

An action carries its perceptions, a result its action, a reflection its result. Written as they are, everything
would stand on the tape four times; what is the same is left out, noted in `links` and put back when read. What many
cycles hold in common, such as what a model was asked before, is kept once (`memory.pieces`). A cycle that is too large
for a row is cut by shares. A `Fault` of the kind `truncated` in what is read names each part that was cut.

rows       encodes a cycle, masks it and writes it
shares     fits a large cycle into a row
body       leaves repetition out of a body, and puts it back when it is read
queries    lists and finds cycles
"""

from memory.cycle_log.queries import find, summaries
from memory.cycle_log.rows import CycleRow, insert, prepared, row, size_of, write

__all__ = ["CycleRow", "find", "insert", "prepared", "row", "size_of", "summaries", "write"]
