"""The HTTP servers of a running service: the control API on a Unix socket; probes, metrics and the same API on a port.

A separate thread serves both, so that no module of the agent can block them.

    routes/        the applications: control API, probes and metrics, hooks, the console
    api/           how a request becomes an operation, and an operation a description
    access/        the access control of the port: tokens, hosts, origins
    front          the thread that serves the sockets; the application of the port, with the control API behind tokens
    connections    limits the time and the number of connections; reads the identity of a peer from the kernel
    problems       renders errors as problem+json (RFC 9457); limits the size of request bodies
    agent_loop     runs work in the agent's event loop
    event_streams  streams events as server-sent events, with heartbeats
"""
