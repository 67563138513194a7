"""Sessions: each runs its own loop, and has its own messages and at most one run at a time.

session        one session: its loop of cycles and the waits between them
cycles         the cycles of one session: their start, their hooks, and the steps after their end
work           the work of one session: its state, and what the facts about it lead to
sessions       the sessions of one agent: their start, their end, and the slots of their runs
parts          the parts of an agent that its sessions share
holding        a gate that stops sessions between two cycles while modules are replaced
phases         the calls of the four modules in one session, with their contexts
session_hooks  the hooks at the start and the end of sessions
control/       operations of people on sessions: list, change, reset, stop, delete
"""
