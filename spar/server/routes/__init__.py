"""The handlers of the servers, a module for each subject.

control    the application of the control API, with the status, the agent's verbs and cycles
events     live events of the agent, as server-sent events
runs       runs: submit, show, wait, follow, abort, give feedback
sessions   sessions: list, show, title, defaults, reset, forget
hooks      `POST /hooks/NAME`, for the webhook sensor of that name
prompts    the next request of a session to a model, by part
steps      parses the input of a step: calls and perceptions as JSON
review     approvals, grants, calls in doubt and dead letters
memory     experiences and transcripts: search, show, forget, import
probes     `/livez`, `/startupz`, `/readyz`, `/metrics`

contacts/   channels, senders and tokens
perceived/  incidents, and examples that the pipeline learns from
"""
