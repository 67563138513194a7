"""Plans, their versions and the advisors on them; pure.

kept      the message that holds a plan, and its change by calls
deadlock  finds circles of calls in a plan before any of them runs
versions  the `meta` of a piece of work from version to version
advisors  selects the advisors that speak before the calls are chosen
"""
