"""Files of the workspace: access that symbolic links and races cannot lead out of it.

operations  reads, lists, writes, copies, moves or deletes one file or folder
rooted      opens paths below a folder without following symbolic links
atomic      changes a file completely or not at all
protected   the names in a workspace that no tool may change
"""
