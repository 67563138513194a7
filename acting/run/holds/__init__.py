"""Holds: reasons not to start a ready call yet. They are composed once for each tool, and taken one after the other.

hold    the shape of a hold
rule    whether a call may run by rules, hooks and budgets, or people must be asked
answer  answers of people, by the queue of approvals or the embedding program
order   the order in which calls with a shared resource start, and the resources of a call
start   the use of the approval, and the start on disk

The slots of a tool and its rate are holds as well: `tooling/limits`.
"""
