"""The applications of the servers.

console    the files of the console, and the sign-in with a token
control    the control API: a route for each operation
hooks      `POST /hooks/NAME`, for the webhook sensor of that name
probes     `/livez`, `/startupz`, `/readyz`, `/metrics`
"""
