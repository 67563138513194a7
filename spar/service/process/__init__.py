"""The process: one service in the foreground, from the first log line to the exit code.

run      locks the folders, puts everything together, runs it, and comes to an exit code
process  the service while it runs, and what the signals mean to it
refusal  the refusal to start, with its exit code
garbage  collects cycles of references at quiet moments
systemd  notifies systemd of readiness, progress and stop
"""
