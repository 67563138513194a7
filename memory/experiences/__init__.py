"""Experiences: rows, search and exchange.

rows    inserts, finds, forgets and lists experiences
recall  ranks experiences; pure
jsonl   exports and imports experiences as JSON lines
"""
