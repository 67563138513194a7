"""The commands that send messages to the service and show runs and sessions.

chat/        a conversation in a terminal or a pipe: streaming, steering, approvals, history
runs         sends a message, waits for a run, aborts it, gives feedback, runs one phase
run_options  the options of a run on the command line; `spar runs show`
follow       follows a run and prints its answer as it is written
prompt       shows the parts of the next request to a model
sessions     lists, shows, sets, resets and forgets sessions
transcript   prints the transcript of a session from the store
"""
