"""Sessions: one loop for each, with its messages and its run.

session        one session: its queue, its run, and its loop of cycles
sessions       starts and ends the sessions of an agent
parts          the parts of an agent that its sessions share
holding        holds sessions between two cycles while modules are exchanged
phases         calls the four modules in a session, with their contexts and hooks
session_hooks  calls the hooks at the beginning and the end of sessions
"""
