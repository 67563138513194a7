"""The doors of a running service: a control API on a Unix socket, probes and metrics on loopback.

Both are served by a thread of their own, so that nothing a module does can block them.
"""
