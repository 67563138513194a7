"""Programs as child processes.

launcher    starts programs and ends their whole process tree
program     the description of a program, and the order that its supervisor gets
detect      finds the sandboxes of this machine by trying to break out of them; the sandbox of one part's programs
probes      the program that tries to break out
supervisor  the process between the service and a program: limits, kills and reaps its tree
"""
