"""Values of what trials teach about tools: pure.

situations  the names of situations and of tasks
abilities   the ability of a tool at a task: how trials change it, what it is now; decisions that experiences changed
"""
