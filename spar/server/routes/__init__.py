"""The applications of the servers.

control    the control API: a route for each operation
hooks      `POST /hooks/NAME`, for the webhook sensor of that name
probes     `/livez`, `/startupz`, `/readyz`, `/metrics`
"""
