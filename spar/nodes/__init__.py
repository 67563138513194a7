"""Nodes: processes that run one agent together on one store, each some of its sessions.

owned       the sessions that this node owns: they come, leave and are lost
requests    what the owner of a session does for another node
parts       parts of the agent that run on one of its nodes, such as channels
"""
