"""The proof of several processes on one database of PostgreSQL: `python -m tests.cluster` (or `make cluster`).

worker    a process with an agent that works, or stands by until it may
takeover  workers are killed and stopped, backends are ended, the server restarts; what became of all that was accepted
upgrades  nodes of two releases are exchanged one after the other, and back
nodes     speed of processes that all work: with their number, to the begin elsewhere, after a kill; a hundred leases
speed     cycles a second beside a file, and what a cycle takes of the server
table     the counts and figures, each beside what is owed
"""
