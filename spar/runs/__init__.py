"""Runs: the way from a message to its answer.

runs         one run, as this process works on it; accepts, starts and ends runs, and wakes the callers that wait
ends         values of their ends; timers, which end runs that take too long or are inactive too long
outbox       sends each answer, and each message of a tool, once
transcripts  adds the cycles of runs to the transcripts of their sessions
"""
