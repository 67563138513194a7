"""Nodes: several processes with one database, each of which owns partitions of the sessions.

nodes      the face: this node, its partitions, the exclusive resources of tools, the requests to others
opening    opens a database as one of its nodes
lease      the thread that holds the lease and takes partitions
journal    the journal of a node: it writes and reads the work of its own sessions
writing    transactions and batches that check the lease and the partitions
rows       the statements on nodes, partitions, requests and resources; the tables are in `cluster.sql`
ownership  the present lease and partitions, as all threads see them
decisions  which partition a session belongs to, which node owns it, how long a lease holds: pure functions

A *node* is one process with the database, from the beginning of its *lease* to the end of it; its *token* is new each
time. A *partition* is a share of the sessions, which one node owns. Its *epoch* grows with each change of its owner, so
that a transaction of an owner that was replaced is refused.
"""
