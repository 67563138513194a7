"""Runs: from a message to its answer.

run          the state of one run: its goal, its limits, its progress
runs         starts and ends runs, and wakes the callers that wait for them
timers       ends the runs that take too long or rest too long
verdict      judges after each cycle whether a run is over, and what it answered; pure
inbox        queues the perceptions and messages of one session
interrupted  the interrupted work of one session
outbox       sends each answer and each message of a tool once
transcripts  adds the cycles of runs to the transcripts of their sessions
run_log      keeps the stream of each run, to be read again from any number
run_events   translates events of the bus into events of a run's stream
commands     tells commands in messages from text

messages/    what people are told before a run ends, and answers in blocks
"""
