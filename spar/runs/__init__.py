"""Runs: the way from a message to its answer.

run          the state of one run: its goal, its limits, its progress
runs         accepts, starts and ends runs, and wakes the callers that wait for them
timers       ends runs that take too long or are inactive too long
verdict      decides after each cycle whether a run has ended, and with which answer; pure
inbox        queues the perceptions and messages of one session
interrupted  queues the interrupted work of one session
outbox       sends each answer, and each message of a tool, once
transcripts  adds the cycles of runs to the transcripts of their sessions
run_log      keeps the event stream of each run, readable from any number
commands     recognizes commands in messages

messages/    messages to people before a run ends, and answers in blocks
"""
