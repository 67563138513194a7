"""Holds: reasons not to start a ready call yet. They are composed once for each tool, and taken one after the other.

terms  the holds of each call, composed once for each tool
rule   whether a call may run by rules, hooks and budgets, or people must be asked; the use of an approval
order  the order in which calls with a shared resource start, and the resources of a call

The shape of a hold is in `tooling/limits`, with the slots of a tool and its rate. The journal (`run/journal`) and the
budgets (`run/budget`) are the last holds before a start.
"""
