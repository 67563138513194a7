"""`spar chat`: a conversation with the running service, on the screen of a terminal or in lines.

talk          the command: chooses the screen or lines
conversation  what both have in common: messages, earlier ones, the commands of a slash
questions     asks for the approvals of a run while it is shown
screen        the screen: the input at the bottom, keys, and what it follows; only this module imports prompt_toolkit
view          what the screen shows of runs: the lines that stand for good, and those that still change
markdown      draws answers, block by block while they are written (rich, markdown-it)
lines         lines on a pipe, a simple terminal, or with --plain
keyboard      reads lines from the terminal or the pipe, also while a run is shown

Lines are edited with readline between runs. During a run, the terminal itself edits the line, so that each piece of
the answer is shown at once.
"""
