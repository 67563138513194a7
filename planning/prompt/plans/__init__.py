"""Plans and their versions; pure.

kept      the message that holds a plan, and its update by calls
deadlock  finds circles of calls in a plan before any of them runs
versions  the versions of a piece of work, which its `meta` names
"""
