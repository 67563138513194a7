"""Runs: the way from a message to its answer.

run          one run, as this process works on it
runs         accepts, starts and ends runs, and wakes the callers that wait for them
timers       ends runs that take too long or are inactive too long
outbox       sends each answer, and each message of a tool, once
transcripts  adds the cycles of runs to the transcripts of their sessions
run_log      keeps the event stream of each run, readable from any number

messages/    messages to people before a run ends, and"""
