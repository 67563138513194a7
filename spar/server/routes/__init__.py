"""The handlers of the servers, a file for each subject.

control    the control API below `/v1`: status, pause, resume, stop, memory, cycles
events     live events of the agent below `/v1`, as server-sent events
runs       runs below `/v1`: submit, show, wait, follow, abort
sessions   sessions below `/v1`: list, show, title, defaults, begin anew, forget
hooks      `POST /hooks/NAME`, handed to the sensor of that name
prompts    the next request of a session to a model, by part
steps      parses the input of a step: calls and perceptions as JSON
review     approvals, grants, calls in doubt and dead letters below `/v1`
probes     `/livez`, `/startupz`, `/readyz`, `/metrics`

contacts/   channels, senders and tokens below `/v1`
perceived/  incidents, and examples that are learnt from, below `/v1`
"""
