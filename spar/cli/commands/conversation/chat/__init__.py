"""`spar chat`: a conversation with the running service, in a terminal or a pipe.

talk       the command: reads a line, sends it, shows what comes, until it is left
link       the way to the service: sends once over any restart, follows runs in a thread
keyboard   the lines that are typed or piped, also while something is shown
questions  the approvals of a run, asked in its middle
words      the commands that begin with a slash
history    the earlier messages, from the store

Lines are edited by readline while nothing goes on. While an answer is written the terminal itself takes the line, so
that each piece of the answer is shown the moment it comes: a line editor that keeps its prompt below the output would
hold the pieces back until a line is full.
"""
