"""Experiences: rows, search and exchange.

embedding computes missing vectors in idle time, stores them and compares them
inspect   shows one experience in full, and counts experiences by kind
jsonl     exports and imports experiences as JSON lines
credit    counts which experiences helped or harmed, and applies later feedback
search    finds experiences at a bounded cost, and says why
rows      inserts and merges, forgets and lists experiences
recall    ranks experiences; pure
"""
