"""Experiences: rows, search and exchange.

embedding computes missing vectors in idle time
inspect   shows one experience in full, and counts experiences by kind
jsonl     exports and imports experiences as JSON lines
credit    counts which experiences helped or harmed, and applies later feedback
vectors   stores the vectors that embedders compute from texts
search    finds experiences, and says why
propose   proposes candidates by their words, at a bounded cost
rows      inserts and merges, forgets and lists experiences
recall    ranks experiences; pure
"""
