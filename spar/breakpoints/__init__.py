"""Breakpoints: a session of the running agent stands still at a point of its cycle, is looked at, changed, and goes on.

An attachment that hooks into cycles and calls, attached with the first breakpoint; without one nothing of it is
imported. The values are in `spar.ports.breakpoints`.

condition     conditions of breakpoints: bounded expressions
changes       changes by hand of perceptions, plans, calls and results
stops         the sessions that stand: what is seen there, what is changed, how far they go on
breakpoints   the attachment: breakpoints, their hooks, their leases
"""
