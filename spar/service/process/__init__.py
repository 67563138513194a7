"""The process: one service in the foreground, from the first log line to the exit code.

run      locks the folders, builds the agent, runs the process, and returns the exit code
process  the running service, and its reactions to signals
refusal  the error of a service that cannot start, with its exit code
garbage  runs the garbage collector at quiet moments
systemd  notifies systemd of readiness, progress and stop
"""
