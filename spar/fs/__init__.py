"""Files: access below a folder that symbolic links and races cannot lead out of, and locks.

rooted  opens paths below a folder without following symbolic links
atomic  changes a file completely or not at all
lock    locks that one process at a time holds
"""
