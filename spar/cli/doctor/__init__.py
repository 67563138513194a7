"""The checks of `spar doctor`: each examines one thing and gives a sentence of advice if something is wrong.

checks        the command, the table of checks, and those of the running service
installation  checks of the configuration, its secrets, folders, port and unit
machine       checks of the file system, the clock and the limits of this machine; the subject of all checks
"""
