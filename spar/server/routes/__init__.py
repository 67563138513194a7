"""The applications of the servers.

applications  the control API: a route for each operation; `/livez`, `/startupz`, `/readyz`, `/metrics`
console       the files of the console, and the sign-in with a token
hooks         `POST /hooks/NAME`, for the webhook sensor of that name
"""
