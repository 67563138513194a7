"""Logs and statistics.

logs        the logger: a constant message and values beside it
formatting  renders a log line as JSON or as a line for people
repeats     counts repeated log lines and tells their number in one line
sink        sets logging up: all lines, also of other libraries, to the writer of each output
writer      has loguru write lines in a thread of its own, to a pipe or a rotated file
stacks      finds the frame in which a task waits
tracing/    traces of cycles, told to an OpenTelemetry collector
shipped/    the alert rules and the dashboard that are shipped
stats       counts cycles, phases and calls, and their durations
learning    counts what was learnt: trials, causes of failures, words on how things went
"""
