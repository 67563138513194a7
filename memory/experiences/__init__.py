"""Experiences: rows, search and exchange.

embedding embeds what has no vector yet, in idle time
inspect   shows one in full, and counts what is of use
jsonl     exports and imports experiences as JSON lines
credit    counts what helped, and takes a later word on how something went
vectors   keeps what embedders make of texts
search    finds experiences, and says why
propose   proposes candidates by their words, at a bounded cost
rows      inserts and merges, forgets and lists experiences
recall    ranks experiences; pure
likeness  says which experiences are alike; pure
"""
