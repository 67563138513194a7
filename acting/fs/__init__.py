"""Files of the workspace, by `spar.fs`.

operations  reads, lists, writes, copies, moves or deletes one file or folder
protected   the names in a workspace that no tool may change
"""
