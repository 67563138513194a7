"""Files below a folder: access that symbolic links and races cannot lead out of it.

rooted  opens paths below a folder without following symbolic links
atomic  changes a file completely or not at all
"""
