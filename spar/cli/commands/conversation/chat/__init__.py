"""`spar chat`: a conversation with the running service, in a terminal or a pipe.

talk       the command: shows earlier messages, reads lines, sends them or does what a slash says, and shows their runs
keyboard   reads lines from the terminal or the pipe, also while a run is shown
questions  asks for the approvals of a run while it is shown

Between runs, lines are edited with readline. During a run, the terminal itself edits the line, so that each piece of
the answer is shown at once: a line editor that keeps its prompt below the output would hold the pieces back until a
line is full.
"""
