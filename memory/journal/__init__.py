"""The journal in the database.

journal     the journal's port, put together from its parts
queries     reads that include rows not yet written
replay      reads the state of the journal from its rows
session_rows  the rows of sessions, written with their messages and resets
statements  the statements on what was accepted, open cycles and calls in doubt
budgets     the rows of spent budgets
counts      adds up what the ends of cycles tell of an agent's counts
in_flight   the work in hand of a process, in a small file that outlives it
orphans     finds open cycles of agents that no longer exist

writing/    what is told becomes rows, and those are handed to the writer
"""
