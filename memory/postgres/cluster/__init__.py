"""Nodes: several processes with one database, each of which owns partitions of the sessions.

decisions  which partition a session belongs to, which node owns it, how long a lease holds: pure functions

A *node* is one process with the database, from the beginning of its *lease* to the end of it; its *token* is new each
time. A *partition* is a share of the sessions, which one node owns. Its *epoch* grows with each change of its owner, so
that a transaction of an owner that was replaced is refused.
"""
