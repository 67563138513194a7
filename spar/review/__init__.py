"""Records that wait for people - approvals, calls in doubt, dead letters - and their texts.

kinds              the table of kinds: path, noun, record, texts; the command line and the control API use it
approvals          text of an approval: the exact call, the reason, and warnings; text of a grant
left_work          text of the work that recovery leaves to people: calls in doubt and dead letters
deception          warnings of text that could deceive the eye
render             parts that the texts share: rows, calls, times, lines of a list
pending_approvals  counts pending approvals for log, status and metrics; lists and decides them for a program
"""
