"""The service: settings become agents in a supervised process.

app             the composition root: builds parts, agents and the service from the settings
process         the process in the foreground, from the first log line to the exit code
garbage         runs the garbage collector at quiet moments
exit_codes      the exit codes of sysexits.h
unit            the systemd unit that runs it
tokens          the table of access tokens of the control API
token_rows      the stored row of an access token, and its scopes
metrics         renders the page of metrics in the format of Prometheus
agent_metrics   the metrics of an agent's work, and of its health
changes         records how settings and tools have changed, a row for each change
event_log       logs events, by their table, and each cycle that acted
feed            buffers the newest events for observers outside the process, while there are any
"""
