"""Logs and statistics.

logs        the logger: a constant message with values beside it
formatting  renders a log line as JSON or as a line for people
sink        configures logging: sends all lines, also of other libraries, to the writer of each output; counts repeated
            ones and reports their number in one line
writer      writes lines in a separate thread, to a pipe, a stream or a rotated file
stacks      finds the frame in which a task waits
shipped/    the shipped alert rules and dashboard
stats       counts cycles, phases and calls, and their durations
"""
