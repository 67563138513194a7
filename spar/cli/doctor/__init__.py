"""The checks of `spar doctor`: each finds one thing and says in a sentence what to do about it.

checks        the table of checks, and the examination of all of them
installation  the configuration, its secrets, its folders, its port, its unit
machine       the clock, the disk, the limits of this machine
diagnosis     a diagnosis, and what is examined
"""
