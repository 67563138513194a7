"""Files of the workspace, safe from links and races.

operations  reads, lists, writes, moves one file or folder
rooted      opens paths beneath a folder without following links out of it
atomic      changes a file completely or not at all
protected   the names in a workspace that no tool may change
"""
