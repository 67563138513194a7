"""Programs as child processes.

launcher    starts programs and ends their whole process tree
program     the description of a program, and the order for its supervisor
supervisor  the process between the service and a program: limits, kills and reaps its tree
"""
