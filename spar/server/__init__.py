"""The HTTP servers of a running service: the control API on a Unix socket; probes, metrics and the same API on a port.

A separate thread serves both, so that no module of the agent can block them.

    routes/        the applications: control API, probes and metrics, hooks, the console
    api/           how a request becomes an operation, and an operation a description
    access         the access control of the port: tokens, hosts, origins, the sessions of browsers
    front          the thread that serves the sockets, within limits of time and number; the application of the port
    problems       renders errors as problem+json (RFC 9457)
    agent_loop     runs work in the agent's event loop
    event_streams  streams events as server-sent events, with heartbeats
"""
