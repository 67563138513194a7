"""Exit codes of the service and the commands, after sysexits.h. The systemd unit decides by them about a restart."""

from __future__ import annotations

OK = 0
FAILED = 1
USAGE = 64
DAMAGED = 65
UNAVAILABLE = 69
GAVE_UP = 70
CANNOT_CREATE = 73
UNFINISHED = 75
NO_PERMISSION = 77
CONFIG = 78
TIMED_OUT = 124
INTERRUPTED = 130

#: The meaning of each code, for people.
MEANINGS = {
    OK: "The work is done; a service stopped as it was asked to (after `spar stop` work may wait).",
    FAILED: "The answer is no: a run or one of its calls failed, nothing is left to decide, a check found something.",
    USAGE: "The command line is wrong.",
    DAMAGED: "The stored data is damaged.",
    UNAVAILABLE: "No service is there, the store cannot be opened or read now, or the port is in use.",
    GAVE_UP: "The service gave up: the loop failed more often than it may.",
    CANNOT_CREATE: "A file or the state directory cannot be used, or another service uses it.",
    UNFINISHED: "A signal ended the service before its work was done, or it used too much memory; start it again.",
    NO_PERMISSION: "The operation is not permitted.",
    CONFIG: "The configuration cannot be used.",
    TIMED_OUT: "The time to wait was over before there was an answer.",
    INTERRUPTED: "Ctrl-C ended the command; or it asks a question and nobody is there to answer.",
}
