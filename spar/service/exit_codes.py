"""Exit codes of the service and the commands, after sysexits.h. The systemd unit decides by them about a restart."""

from __future__ import annotations

OK = 0
"""The work is done; a service stopped as it was asked to (after `spar stop` work may wait)."""
FAILED = 1
"""The answer is no: a run or one of its calls failed, nothing is left to decide, a check found something."""
USAGE = 64
"""The command line is wrong."""
DAMAGED = 65
"""The stored data is damaged."""
UNAVAILABLE = 69
"""No service is there, the store cannot be opened or read now, or the port is in use."""
GAVE_UP = 70
"""The service gave up: the loop failed more often than it may."""
CANNOT_CREATE = 73
"""A file or the state directory cannot be used, or another service uses it."""
UNFINISHED = 75
"""A signal ended the service before its work was done, or it used too much memory; start it again."""
NO_PERMISSION = 77
"""The operation is not permitted."""
CONFIG = 78
"""The configuration cannot be used."""
TIMED_OUT = 124
"""The time to wait was over before there was an answer."""
INTERRUPTED = 130
"""Ctrl-C ended the command; or it asks a question and nobody is there to answer."""
