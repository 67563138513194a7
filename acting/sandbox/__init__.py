"""Sandboxes for programs.

spec                 the description of a sandbox, and the orders for kernel and bubblewrap
kernel               sets up namespaces, mounts, Landlock and the filter, in the supervisor's process
landlock             the rights of Landlock that this kernel knows
seccomp              compiles the filter of system calls
command_fingerprint  the files of a command, and whether a standing grant would be too wide
"""
