"""Sessions: one loop for each, with its messages and its run.

session        one session: its life, cycle after cycle, and when the next one comes
cycles         opens the cycles of a session, and sees to what follows from the end of each
work           the work of a session: its run, what waits, and which comes next
sessions       starts and ends the sessions of an agent
parts          the parts of an agent that its sessions share
holding        holds sessions between two cycles while modules are exchanged
phases         calls the four modules in a session, with their contexts and hooks
preview        shows what stands in a session's next request to a model
session_hooks  calls the hooks at the beginning and the end of sessions
control/       what people do with sessions: find, set, begin anew, stop
"""
