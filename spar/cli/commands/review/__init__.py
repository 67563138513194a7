"""The commands with which people decide, beyond those that follow from the table of operations.

decisions  approves, denies, edits and replaces calls that wait; answers what became of calls in doubt
examples   teaches the intent or kind of texts, lists examples, tries a text
"""
