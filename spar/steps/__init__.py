"""Single phases of an agent, attached.

steps  runs one phase at a time by hand
"""
