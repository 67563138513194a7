"""The commands that talk with the service.

runs        gives work to the service: a message, a wait, an abort, a step
follow      follows a run and prints its answer as it is written
transcript  prints the transcript of a session from the store
"""
