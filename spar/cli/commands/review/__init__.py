"""The commands with which people decide, beyond those that follow from the table of operations.

approvals  approves, denies, edits and replaces calls that wait
in_doubt   answers what became of calls that may have had their effect
examples   teaches the intent or kind of texts, lists examples, tries a text
"""
