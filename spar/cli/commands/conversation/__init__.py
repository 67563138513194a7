"""The commands that talk with the service.

chat        talks in a terminal or a pipe: streaming, steering, approvals, history
runs        gives work to the service: a message, a wait, an abort, a step
run_options the options of a run on the command line; `spar runs show`
follow      follows a run and prints its answer as it is written
prompt      shows what stands in the next request to a model
sessions    lists, shows, sets, resets and forgets sessions
transcript  prints the transcript of a session from the store
"""
