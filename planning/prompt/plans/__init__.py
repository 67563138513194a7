"""Plans and their versions; pure.

kept      the message that holds a plan, and its change by calls
deadlock  finds circles of calls in a plan before any of them runs
versions  the `meta` of a piece of work from version to version
"""
