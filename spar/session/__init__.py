"""Sessions: each runs its own loop, and has its own messages and at most one run at a time.

cycles           the cycles of one session: their phases, with the calls of the modules, and the steps after their end
work             the work of one session: its state, what the facts about it lead to, its waits, and the end of its runs
sessions         the sessions of one agent: the loop of each, their start, their end, and the slots of their runs
parts            the parts of an agent that its sessions share; the gate that stops sessions between two cycles
session_hooks    the hooks at the start and the end of sessions
session_records  the records of the sessions: the last used ones in memory, all of them in the store; when one is over;
                 checks of their options against the planner and the sender's trust
resets           aborts runs, whether they wait or run; resets sessions, so that their transcripts start anew; deletes
                 them
"""
